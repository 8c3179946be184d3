"""All that a server lists, page after page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from mcp import Client, ClientSession
from mcp.shared.exceptions import MCPError
from mcp.types import (
    METHOD_NOT_FOUND,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
)
from pydantic import ValidationError

from art_core.errors import ToolServerError

PAGE_TIMEOUT = 60.0
"""Seconds for one page."""
MOST_PAGES = 1_000


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


PageT = TypeVar("PageT", bound=_Page)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a server offers."""

    tools: list[Tool]
    resources: list[Resource]
    resource_templates: list[ResourceTemplate]
    prompts: list[Prompt]


async def list_tools(client: Client | ClientSession, timeout: float = PAGE_TIMEOUT) -> list[Tool]:
    """All tools of a server, asked for anew.

    Raises:
        ToolServerError: it doesn't answer within ``timeout`` seconds a page, lists what
            isn't a tool, or never comes to an end.
        MCPError: it answers with an error, or its connection is closed.
    """
    session = session_of(client)
    pages = await _pages("tools/list", lambda at: session.list_tools(params=at), timeout)
    return [tool for page in pages for tool in page.tools]


async def list_everything(client: Client | ClientSession, timeout: float = PAGE_TIMEOUT) -> Listing:
    """Tools, resources and prompts; what a server doesn't know of is empty.

    Raises:
        ToolServerError, MCPError: see `list_tools`.
    """
    session = session_of(client)

    async def all_of(
        what: str, ask: Callable[[PaginatedRequestParams | None], Awaitable[PageT]]
    ) -> list[PageT]:
        try:
            return await _pages(what, ask, timeout)
        except MCPError as error:
            if error.code == METHOD_NOT_FOUND:
                return []
            raise

    async def tools(at: PaginatedRequestParams | None) -> ListToolsResult:
        return await session.list_tools(params=at)

    async def resources(at: PaginatedRequestParams | None) -> ListResourcesResult:
        return await session.list_resources(params=at)

    async def templates(at: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        return await session.list_resource_templates(params=at)

    async def prompts(at: PaginatedRequestParams | None) -> ListPromptsResult:
        return await session.list_prompts(params=at)

    return Listing(
        tools=[x for page in await all_of("tools/list", tools) for x in page.tools],
        resources=[x for page in await all_of("resources/list", resources) for x in page.resources],
        resource_templates=[
            x
            for page in await all_of("resources/templates/list", templates)
            for x in page.resource_templates
        ],
        prompts=[x for page in await all_of("prompts/list", prompts) for x in page.prompts],
    )


def session_of(client: Client | ClientSession) -> ClientSession:
    """The session under a client: without its cache, and with one way to ask for a page."""
    return client.session if isinstance(client, Client) else client


async def _pages(
    what: str, ask: Callable[[PaginatedRequestParams | None], Awaitable[PageT]], timeout: float
) -> list[PageT]:
    pages: list[PageT] = []
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        try:
            async with asyncio.timeout(timeout):
                page = await ask(None if cursor is None else PaginatedRequestParams(cursor=cursor))
        except TimeoutError as error:
            raise ToolServerError(
                f"{what}: page {len(pages) + 1} took more than {timeout:g} s",
                "Is the server overloaded?",
            ) from error
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in problem["loc"])
            raise ToolServerError(
                f"{what}: {where}: {problem['msg']}", "The server breaks the protocol: report it."
            ) from error
        pages.append(page)
        cursor = page.next_cursor
        if cursor is None:
            return pages
        if cursor in seen or len(pages) == MOST_PAGES:
            raise ToolServerError(
                f"{what} comes to no end: after {len(pages)} pages there is cursor {cursor!r:.100}",
                "The server breaks the protocol: report it.",
            )
        seen.add(cursor)
