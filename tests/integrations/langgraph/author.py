"""The author of a graph: writes ``ChatOpenAI`` and ``OpenAI`` into it and knows nothing of us."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import openai
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.integrations.langgraph.shapes import Mode, Tools

KEY = "sk-author"


@asynccontextmanager
async def author(
    base_url: str | None, mode: Mode, model: str = "gpt-4.1", **defaults: Any
) -> AsyncGenerator[Tools]:
    """Tools whose models are at ``base_url`` (None: at OpenAI); closes their connections.

    ``defaults`` are for each `ChatOpenAI`.
    """
    sync = mode in ("invoke", "batch")
    plain_client = openai.OpenAI if sync else openai.AsyncOpenAI
    with openai.DefaultHttpxClient() as client:
        async with openai.DefaultAsyncHttpxClient() as aclient:

            def chat(**options: Any) -> ChatOpenAI:
                return ChatOpenAI(
                    model=model,
                    api_key=SecretStr(KEY),
                    base_url=base_url,
                    http_client=client,
                    http_async_client=aclient,
                    **{**defaults, **options},
                )

            yield Tools(
                chat=chat,
                openai=lambda: plain_client(api_key=KEY, base_url=base_url),
                model=model,
                defaults=defaults,
                sync=sync,
            )
