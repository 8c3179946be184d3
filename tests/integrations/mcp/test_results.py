"""What isn't text in a tool's result is told to the model: its kind and size, never nothing."""

from __future__ import annotations

from base64 import b64encode

import pytest
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
)

from integrations.mcp.results import result_text


@pytest.mark.parametrize("size", [0, 1, 2, 3, 70_001])
def test_kind_and_size(size: int) -> None:
    data = b64encode(b"x" * size).decode()
    blob = BlobResourceContents(uri="file:///a.zip", blob=data, mime_type="application/zip")
    said = {
        "image/png": ImageContent(type="image", data=data, mime_type="image/png"),
        "audio/wav": AudioContent(type="audio", data=data, mime_type="audio/wav"),
        "resource file:///a.zip: application/zip": EmbeddedResource(type="resource", resource=blob),
    }
    blocks: dict[str, ContentBlock] = dict(said)
    for kind, block in blocks.items():
        shown = result_text(CallToolResult(content=[block]))
        assert shown == f"[{kind}, {size:,} bytes, not shown]"


def test_in_their_places() -> None:
    image = ImageContent(type="image", data="eHg=", mime_type="image/jpeg")
    texts = [TextContent(type="text", text=text) for text in ("before", "after")]
    shown = result_text(CallToolResult(content=[texts[0], image, image, texts[1]]))
    placeholder = "[image/jpeg, 2 bytes, not shown]"
    assert shown.splitlines() == ["before", placeholder, placeholder, "after"]
