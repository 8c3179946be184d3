"""A call as the Responses API answers it: one object, or its events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from art_core.chat.protocol import Delta
from art_core.gateway.call import Call
from art_core.gateway.http import as_problem, named_event
from art_core.gateway.logprobs import chat_logprobs, usage
from art_core.gateway.responses_input import Item, items_of_message
from art_core.trajectories import COMPLETION_ID_FIELD, Completion


class ResponsesAnswer:
    """One response.

    Args:
        settings: what the request asked for, to be repeated in the answer.
        keep: called with the completion before the answer ends.
    """

    def __init__(
        self,
        call: Call,
        settings: dict[str, Any],
        *,
        logprobs: bool,
        keep: Callable[[Completion], None],
    ) -> None:
        self._call = call
        self._settings = settings
        self._wants_logprobs = logprobs
        self._keep = keep
        self._created = int(time.time())
        self.id = f"resp_{call.id}"

    def whole(self, completions: Sequence[Completion]) -> dict[str, Any]:
        (completion,) = completions
        items = items_of_message(completion.response)
        places: dict[str, int] = {}
        for item in items:
            item |= {"id": self._item_id(item, places), "status": "completed"}
        return self._finished(completion, items)

    async def events(self) -> AsyncIterator[bytes]:
        """The events of a streamed response; the last holds all of it."""
        numbered = _Numbered()
        output = _Output(self)
        try:
            for kind in ("response.created", "response.in_progress"):
                yield numbered.event(kind, response=self._object("in_progress", []))
            async for piece in self._call.pieces():
                for kind, fields in output.add(piece.delta):
                    yield numbered.event(kind, **fields)
            (completion,) = await self._call.completions()
        except Exception as error:  # noqa: BLE001  (becomes an event that clients raise)
            yield numbered.event("error", **as_problem(error).body())
            return
        for kind, fields in output.close():
            yield numbered.event(kind, **fields)
        whole = self._finished(completion, output.items)
        yield numbered.event(f"response.{whole['status']}", response=whole)

    def _finished(self, completion: Completion, items: list[Item]) -> dict[str, Any]:
        self._keep(completion)
        if self._wants_logprobs:
            run = self._call.choices[0]
            sampled = chat_logprobs(self._call.caller.policy.chat, run.everything())["content"]
            for item in items:
                if item["type"] == "message":
                    item["content"][0]["logprobs"] = sampled
        counted = usage(completion.prompt_token_ids, [completion])
        truncated = completion.finish_reason == "length"
        answer = self._object("incomplete" if truncated else "completed", items)
        answer |= {
            "incomplete_details": {"reason": "max_output_tokens"} if truncated else None,
            "usage": {
                "input_tokens": counted["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": counted["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": counted["total_tokens"],
            },
            COMPLETION_ID_FIELD: completion.id,
        }
        return answer

    def _object(self, status: str, items: list[Item]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "output": items,
            "usage": None,
            "policy_version": self._call.caller.version,
            **self._settings,
        }

    def _item_id(self, item: Item, places: dict[str, int]) -> str:
        """An id that is the same whether the response is streamed or whole."""
        prefix = {"reasoning": "rs", "message": "msg", "function_call": "fc"}[item["type"]]
        place = places.get(prefix, 0)
        places[prefix] = place + 1
        return f"{prefix}_{self._call.id}_{place}"

    def new_item(self, item: Item, places: dict[str, int]) -> Item:
        return {**item, "id": self._item_id(item, places), "status": "in_progress"}


class _Numbered:
    """Events count up from 0."""

    def __init__(self) -> None:
        self._next = 0

    def event(self, kind: str, **fields: Any) -> bytes:
        number, self._next = self._next, self._next + 1
        return named_event(kind, {"type": kind, "sequence_number": number, **fields})


Events = Iterator[tuple[str, dict[str, Any]]]


class _Output:
    """Output items as they grow. Reasoning and text each stay one item until the end."""

    def __init__(self, answer: ResponsesAnswer) -> None:
        self.items: list[Item] = []
        self._answer = answer
        self._places: dict[str, int] = {}
        self._growing: dict[str, int] = {}
        """Index of the item that a kind of text goes to."""

    def add(self, delta: Delta) -> Events:
        if delta.reasoning:
            yield from self._text("reasoning_text", delta.reasoning)
        if delta.content:
            yield from self._text("output_text", delta.content)
        for call in delta.tool_calls:
            yield from self._call(call)

    def close(self) -> Events:
        for kind, index in self._growing.items():
            item = self.items[index]
            (part,) = item["content"]
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            yield f"response.{kind}.done", {**place, "text": part["text"], **_no_logprobs(kind)}
            yield "response.content_part.done", {**place, "part": part}
            yield from self._done(index)

    def _text(self, kind: str, text: str) -> Events:
        if kind not in self._growing:
            yield from self._begin_text(kind)
        index = self._growing[kind]
        item = self.items[index]
        item["content"][0]["text"] += text
        place = {"item_id": item["id"], "output_index": index, "content_index": 0}
        yield f"response.{kind}.delta", {**place, "delta": text, **_no_logprobs(kind)}

    def _begin_text(self, kind: str) -> Events:
        part: Item = {"type": kind, "text": ""}
        item: Item = {"type": "reasoning", "summary": []}
        if kind == "output_text":
            part["annotations"] = []
            item = {"type": "message", "role": "assistant"}
        self._growing[kind] = len(self.items)
        yield from self._added({**item, "content": []})
        added = self.items[-1]
        place = {"item_id": added["id"], "output_index": len(self.items) - 1, "content_index": 0}
        yield "response.content_part.added", {**place, "part": dict(part)}
        added["content"].append(part)

    def _call(self, call: dict[str, Any]) -> Events:
        function = call["function"]
        item = {"type": "function_call", "call_id": call["id"], "name": function["name"]}
        yield from self._added({**item, "arguments": ""})
        index, added = len(self.items) - 1, self.items[-1]
        added["arguments"] = function["arguments"]
        place = {"item_id": added["id"], "output_index": index}
        kind = "response.function_call_arguments"
        yield f"{kind}.delta", {**place, "delta": added["arguments"]}
        yield f"{kind}.done", {**place, "arguments": added["arguments"], "name": added["name"]}
        yield from self._done(index)

    def _added(self, item: Item) -> Events:
        item = self._answer.new_item(item, self._places)
        self.items.append(item)
        shown = dict(item)
        if "content" in shown:
            shown["content"] = []
        yield "response.output_item.added", {"output_index": len(self.items) - 1, "item": shown}

    def _done(self, index: int) -> Events:
        self.items[index]["status"] = "completed"
        yield "response.output_item.done", {"output_index": index, "item": self.items[index]}


def _no_logprobs(kind: str) -> dict[str, Any]:
    return {"logprobs": []} if kind == "output_text" else {}
