"""The tool convention for models whose template knows no tools: Hermes-style tags.

The same for serving and training. Definitions go to the end of the system
message; calls are written by the assistant as ``<tool_call>`` JSON objects, one
each; results come back in a user message, one ``<tool_response>`` each:

    <tool_call>
    {"name": "get_time", "arguments": {"zone": "Europe/Paris"}}
    </tool_call>

    <tool_response>
    14:05
    </tool_response>
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from art_core.chat.turns import Call, Turn, arguments_object
from art_core.trajectories import Tool

_PREAMBLE = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments \
within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


def write_as_text(
    turns: Sequence[Turn], tools: Sequence[Tool], mark: Callable[[str], str]
) -> list[Turn]:
    """The conversation with definitions, calls and results as text in it.

    ``mark`` makes marked text of a tag, for models that have it as a control token.
    """
    tags = _Tags(mark)
    written: list[Turn] = []
    results: list[str] = []  # of one turn's calls: they go into one user message
    for turn in (*turns, None):
        if turn is not None and turn.role == "tool":
            results.append(f"{tags.result}\n{turn.text}\n{tags.result_end}")
            continue
        if results:
            written.append(Turn(role="user", text="\n".join(results)))
            results = []
        if turn is not None:
            written.append(tags.with_calls(turn) if turn.calls else turn)
    return _with_preamble(written, tools) if tools else written


class _Tags:
    def __init__(self, mark: Callable[[str], str]) -> None:
        self.call, self.call_end = mark("<tool_call>"), mark("</tool_call>")
        self.result, self.result_end = mark("<tool_response>"), mark("</tool_response>")

    def with_calls(self, turn: Turn) -> Turn:
        parts = [turn.text] if turn.text else []
        parts += [self.call_text(call) for call in turn.calls]
        return replace(turn, text="\n".join(parts), calls=())

    def call_text(self, call: Call) -> str:
        arguments = arguments_object(call.arguments)
        # Invalid arguments stay as they were spelled: the model sees what it wrote.
        text = call.arguments if arguments is None else json.dumps(arguments, ensure_ascii=False)
        name = json.dumps(call.name, ensure_ascii=False)
        return f'{self.call}\n{{"name": {name}, "arguments": {text}}}\n{self.call_end}'


def _with_preamble(turns: Sequence[Turn], tools: Sequence[Tool]) -> list[Turn]:
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    preamble = _PREAMBLE.format(tools=lines)
    if turns[0].role in ("system", "developer"):
        first = replace(
            turns[0], text=f"{turns[0].text}\n\n{preamble}" if turns[0].text else preamble
        )
        return [first, *turns[1:]]
    return [Turn(role="system", text=preamble), *turns]
