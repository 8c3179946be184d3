"""What a tool returned, as text for the model: complete, or saying what is missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from mcp.types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)


def result_text(result: CallToolResult) -> str:
    """Text as it is, what isn't text in words, and structured content that the text lacks."""
    parts = [_block_text(block) for block in result.content]
    if result.structured_content is not None and not _says(parts, result.structured_content):
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return _encodable("\n".join(part for part in parts if part)) or "(empty result)"


def cut(text: str, most: int) -> str:
    """The first ``most`` characters, and how many there would have been."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[cut: {len(text) - most:,} of {len(text):,} characters not shown]"


def _block_text(block: ContentBlock) -> str:
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ImageContent | AudioContent):
        return f"[{block.mime_type}, {_size(block.data)}, not shown]"
    if isinstance(block, ResourceLink):
        about = f": {block.description}" if block.description else ""
        return f"[resource {block.uri} ({block.name}){about}]"
    return _resource_text(block)


def _resource_text(block: EmbeddedResource) -> str:
    resource = block.resource
    if isinstance(resource, TextResourceContents):
        return f"[resource {resource.uri}]\n{resource.text}"
    kind = resource.mime_type or "binary"
    return f"[resource {resource.uri}: {kind}, {_size(resource.blob)}, not shown]"


def _size(base64_text: str) -> str:
    padding = len(base64_text) - len(base64_text.rstrip("="))
    return f"{len(base64_text) * 3 // 4 - padding:,} bytes"


def _says(parts: Sequence[str], structured: Any) -> bool:
    """Whether one of the texts is the structured content, as servers repeat it for old clients."""
    for part in parts:
        try:
            said = json.loads(part)
        except ValueError:
            said = part
        if said == structured or (
            isinstance(structured, dict)
            and list(cast("dict[str, Any]", structured).values()) == [said]
        ):
            return True
    # A list is repeated item by item.
    return structured == {"result": [_parsed(part) for part in parts]}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _encodable(text: str) -> str:
    """Lone surrogates, which JSON can spell and no file can hold, become question marks."""
    return text.encode("utf-8", "replace").decode()
