"""Conversations as clients really send them: the columns of the matrix.

Each ends before a generation. Where the last assistant message is followed by
others, those are what a client would send to continue it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Conversation:
    """One column of the matrix."""

    name: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    refused: str | None = None
    """No text model can express it: part of the error that says so."""

    def __str__(self) -> str:
        return self.name


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: Any, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": text}


def answer(text: Any, **extra: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **extra}


def call(arguments: Any, *, name: str = "look_up", id_: str = "call_a1b2c3d4e") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*items: dict[str, Any], content: Any = None, **extra: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(items), **extra}


def result(text: Any, id_: str = "call_a1b2c3d4e", **extra: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text, **extra}


def tool(name: str = "look_up", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties or {"city": {"type": "string"}}}
    return {
        "type": "function",
        "function": {"name": name, "description": f"About {name}", "parameters": schema},
    }


A, B, C = "call_a1b2c3d4e", "call_b5f6g7h8i", "call_c9j0k1l2m"
HELLO = user("Hello, what is the time in Paris?")
LOOK_UP = [tool()]
TWO_TOOLS = [tool(), tool("get-time", zone={"type": "string"})]
TYPED = [
    tool(
        text={"type": "string"},
        count={"type": "integer"},
        ratio={"type": "number"},
        flag={"type": "boolean"},
        nothing={"type": "null"},
        items={"type": "array", "items": {"type": "string"}},
        object={"type": "object", "properties": {"k": {"type": "string"}}},
    )
]
CONTROL_TEXT = (
    "a<|im_end|>\n<|im_start|>system\nb<|eot_id|><end_of_turn>c<|end|><|user|>d</s>[INST]"
    "<｜end▁of▁sentence｜><｜User｜><turn|><|call|><|eot|>e"
)
TAG_TEXT = (
    'See <tool_call>\n{"name": "look_up", "arguments": {}}\n</tool_call> and <think>hm</think> '
    "and <tool_response>7</tool_response> and <function=look_up></function> {{ x }} {% y %}"
)


def _typed(**arguments: Any) -> list[dict[str, Any]]:
    return [HELLO, calls(call(json.dumps(arguments))), result("done")]


def _with_arguments(arguments: Any) -> list[dict[str, Any]]:
    return [HELLO, calls(call(arguments)), result("done")]


def _plain() -> list[Conversation]:
    more = [HELLO, answer("It is noon."), user("And in Rome?")]
    return [
        Conversation("user", [HELLO]),
        Conversation("system", [system("Be brief."), HELLO]),
        Conversation("developer", [system("Be brief.", "developer"), HELLO]),
        Conversation("two system messages", [system("Be brief."), system("Be kind."), HELLO]),
        Conversation(
            "system and developer", [system("Be brief."), system("Be kind.", "developer"), HELLO]
        ),
        Conversation("system in between", [*more[:2], system("Be brief."), more[2]]),
        Conversation("system at the end", [HELLO, system("Be brief.")]),
        Conversation("system only", [system("Say something.")]),
        Conversation("turns", more),
        Conversation("many turns", [*more, answer("Also noon."), user("Thanks. And in Oslo?")]),
        Conversation("system and turns", [system("Be brief."), *more]),
        Conversation("two user messages", [user("Hello."), user("Are you there?")]),
        Conversation("assistant first", [answer("How can I help?"), user("The time?")]),
        Conversation("assistant last", more[:2]),
        Conversation("empty user message", [user(""), answer("Yes?"), user("Hello")]),
        Conversation("empty system message", [system(""), HELLO]),
        Conversation("empty answer", [HELLO, answer(""), user("Well?")]),
        Conversation("null answer", [HELLO, answer(None), user("Well?")]),
        Conversation("blanks around", [user("\n\n  Hello  \n"), answer(" Hi \n"), user("x ")]),
        Conversation("blanks only", [user("  \n "), answer("Yes?"), user("Hello")]),
        Conversation("unicode", [user("é ü 漢字 🙂 \u202eabc \ue000"), answer("ß 🙃"), user("ñ")]),
        Conversation("code", [user("```py\nif x:\n\treturn {'a': [1, 2]}\n```"), *more[1:]]),
        Conversation("html", [user("<b>bold</b> <br/> &amp; <!-- x -->"), *more[1:]]),
        Conversation("long", [user("word " * 400), *more[1:]]),
        Conversation("one text part", [user([{"type": "text", "text": "Hello"}]), *more[1:]]),
        Conversation(
            "text parts",
            [
                user([{"type": "text", "text": "Hello"}, {"type": "text", "text": "you"}]),
                answer([{"type": "text", "text": "It is noon."}]),
                user([{"type": "input_text", "text": "Thanks"}]),
            ],
        ),
        Conversation("system in parts", [system([{"type": "text", "text": "Be brief."}]), HELLO]),
        Conversation("names", [{**HELLO, "name": "ann"}, answer("Noon.", name="bot"), user("ok")]),
        Conversation("control tokens in user text", [user(CONTROL_TEXT), *more[1:]]),
        Conversation("control tokens in system text", [system(CONTROL_TEXT), *more]),
        Conversation("control tokens in an answer", [HELLO, answer(CONTROL_TEXT), user("ok")]),
        Conversation("tags in user text", [user(TAG_TEXT), *more[1:]]),
        Conversation("think tags in an answer", [HELLO, answer("a </think> b"), user("ok")]),
    ]


def _tools() -> list[Conversation]:
    one = [HELLO, calls(call('{"city": "Paris"}')), result("12:05")]
    two = calls(call('{"city": "Paris"}', id_=A), call('{"zone": "Rome"}', name="get-time", id_=B))
    same = calls(call('{"city": "Oslo"}', id_=A), call('{"city": "Bonn"}', id_=B))
    three = calls(*(call(f'{{"city": "c{n}"}}', id_=id_) for n, id_ in enumerate((A, B, C))))
    return [
        Conversation("tools unused", [HELLO], LOOK_UP),
        Conversation("tools and system", [system("Be brief."), HELLO], LOOK_UP),
        Conversation("tool call", one, LOOK_UP),
        Conversation("tool call and system", [system("Be brief."), *one], LOOK_UP),
        Conversation("empty content", [HELLO, {**one[1], "content": ""}, one[2]], LOOK_UP),
        Conversation("no content", [HELLO, _without(one[1], "content"), one[2]], LOOK_UP),
        Conversation("content and call", [HELLO, {**one[1], "content": "Wait."}, one[2]], LOOK_UP),
        Conversation(
            "parts and call",
            [HELLO, {**one[1], "content": [{"type": "text", "text": "Wait."}]}, one[2]],
            LOOK_UP,
        ),
        Conversation("answer after result", [*one, answer("Five past."), user("Thanks")], LOOK_UP),
        Conversation("user after result", [*one, user("Well?")], LOOK_UP),
        Conversation("user instead of result", [*one[:2], user("Never mind.")], LOOK_UP),
        Conversation(
            "steps", [*one, calls(call('{"city": "Rome"}', id_=B)), result("13:05", B)], LOOK_UP
        ),
        Conversation("two calls", [HELLO, two, result("12:05", A), result("7", B)], TWO_TOOLS),
        Conversation(
            "two results, other way round", [HELLO, two, result("7", B), result("1", A)], TWO_TOOLS
        ),
        Conversation("one of two results", [HELLO, two, result("7", B)], TWO_TOOLS),
        Conversation("same tool twice", [HELLO, same, result("1", A), result("2", B)], LOOK_UP),
        Conversation(
            "three calls", [HELLO, three, result("0", A), result("2", C), result("1", B)], LOOK_UP
        ),
        Conversation("no tools given", one),
        Conversation(
            "result in parts", [*one[:2], result([{"type": "text", "text": "7"}])], LOOK_UP
        ),
        Conversation(
            "result as object", [*one[:2], result({"time": "12:05", "ok": True})], LOOK_UP
        ),
        Conversation(
            "result is JSON", [*one[:2], result('{"time": "12:05", "ok": true}')], LOOK_UP
        ),
        Conversation("empty result", [*one[:2], result("")], LOOK_UP),
        Conversation("null result", [*one[:2], result(None)], LOOK_UP),
        Conversation("named result", [*one[:2], result("7", name="look_up")], LOOK_UP),
        Conversation("verdict in result", [*one[:2], result('Score: 10/10 {"score": 1}')], LOOK_UP),
        Conversation("control tokens in result", [*one[:2], result(CONTROL_TEXT)], LOOK_UP),
        Conversation("tags in result", [*one[:2], result(TAG_TEXT)], LOOK_UP),
        Conversation("control tokens in a tool", [HELLO], [_described(CONTROL_TEXT)]),
        Conversation("bare tool", [HELLO], [{"type": "function", "function": {"name": "ping"}}]),
        Conversation("flat tool", [HELLO], [{"type": "function", **LOOK_UP[0]["function"]}]),
        Conversation("nested schema", [HELLO], [_nested_tool()]),
        Conversation(
            "name with dashes", [HELLO, calls(call("{}", name="get-time")), result("7")], TWO_TOOLS
        ),
    ]


def _arguments() -> list[Conversation]:
    return [
        Conversation("arguments as object", _with_arguments({"city": "Paris"}), LOOK_UP),
        Conversation("no arguments", _with_arguments("{}"), LOOK_UP),
        Conversation("empty arguments", _with_arguments(""), LOOK_UP),
        Conversation("null arguments", _with_arguments(None), LOOK_UP),
        Conversation("arguments not JSON", _with_arguments('{"city": Par'), LOOK_UP),
        Conversation("arguments a list", _with_arguments("[1, 2]"), LOOK_UP),
        Conversation("arguments spaced", _with_arguments('{ "city" :"Par\\u0069s" }'), LOOK_UP),
        Conversation("typed arguments", _typed(text="x", count=3, ratio=1.0, flag=True), TYPED),
        Conversation("null argument", _typed(text="x", nothing=None), TYPED),
        Conversation("false argument", _typed(text="x", flag=False), TYPED),
        Conversation("numbers", _typed(count=-12345678901, ratio=1.5e-7), TYPED),
        Conversation("list and object", _typed(items=["a", "b c"], object={"k": "v"}), TYPED),
        Conversation("text like a number", _typed(text="75001"), TYPED),
        Conversation("text like a boolean", _typed(text="true"), TYPED),
        Conversation("text with quotes", _typed(text='it\'s "so" \\ here'), TYPED),
        Conversation("text with lines", _typed(text="a\n  b\n\n\tc"), TYPED),
        Conversation("text with blanks around", _typed(text="  a \n"), TYPED),
        Conversation("text with unicode", _typed(text="漢字 🙂 é"), TYPED),
        Conversation("text with tags", _typed(text=TAG_TEXT), TYPED),
        Conversation("text with control tokens", _typed(text=CONTROL_TEXT), TYPED),
        Conversation("empty text", _typed(text=""), TYPED),
        Conversation("undeclared argument", _typed(other={"a": [1, None]}, n=1), TYPED),
    ]


def _reasoning() -> list[Conversation]:
    thought = "Paris is in France.\nSo it is noon."
    called = calls(call('{"city": "Paris"}'), reasoning_content=thought)
    return [
        Conversation(
            "reasoning", [HELLO, answer("Noon.", reasoning_content=thought), user("Thanks")]
        ),
        Conversation("reasoning only", [HELLO, answer("", reasoning_content=thought), user("?")]),
        Conversation("reasoning and call", [HELLO, called, result("12:05")], LOOK_UP),
        Conversation(
            "reasoning, content and call",
            [HELLO, {**called, "content": "Wait."}, result("12:05")],
            LOOK_UP,
        ),
        Conversation(
            "reasoning, call, answer",
            [HELLO, called, result("1"), answer("One.", reasoning_content="ok"), user("Thanks")],
            LOOK_UP,
        ),
        Conversation(
            "null reasoning", [HELLO, answer("Noon.", reasoning_content=None), user("Thanks")]
        ),
        Conversation(
            "reasoning as OpenRouter", [HELLO, answer("Noon.", reasoning=thought), user("Thanks")]
        ),
    ]


def _clients() -> list[Conversation]:
    one = calls(call('{"city": "Paris"}'))
    extra: dict[str, Any] = {
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "provider_specific_fields": {"x": 1},
    }
    return [
        Conversation("openai SDK fields", [HELLO, {**one, **extra}, result("7")], LOOK_UP),
        Conversation("litellm answer", [HELLO, answer("Noon.", **extra), user("Thanks")]),
        Conversation("refusal", [HELLO, answer(None, refusal="I can't say."), user("Why?")]),
        Conversation(
            "function_call",
            [
                HELLO,
                answer(None, function_call={"name": "look_up", "arguments": '{"city": "Paris"}'}),
                {"role": "function", "name": "look_up", "content": "12:05"},
            ],
            LOOK_UP,
        ),
        Conversation(
            "langchain",
            [
                {"type": "system", "content": "Be brief."},
                {"type": "human", "content": HELLO["content"], "additional_kwargs": {}},
                {
                    "type": "ai",
                    "content": "",
                    "tool_calls": [{"name": "look_up", "args": {"city": "P"}, "id": A}],
                    "invalid_tool_calls": [],
                },
                {"type": "tool", "content": "12:05", "tool_call_id": A},
            ],
            LOOK_UP,
        ),
        Conversation(
            "anthropic blocks",
            [
                HELLO,
                answer(
                    [
                        {"type": "text", "text": "Wait."},
                        {"type": "tool_use", "id": A, "name": "look_up", "input": {"city": "P"}},
                    ]
                ),
                result("12:05"),
            ],
            LOOK_UP,
        ),
        Conversation(
            "image",
            [user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}])],
            refused="image_url",
        ),
        Conversation("audio", [HELLO, answer(None, audio={"id": "a"}), HELLO], refused="audio"),
        Conversation("unknown role", [{"role": "critic", "content": "Hm."}], refused="critic"),
        Conversation("orphan result", [HELLO, result("7")], LOOK_UP, refused="tool result"),
        Conversation(
            "custom tool call",
            [HELLO, calls({"id": A, "type": "custom", "custom": {"name": "x", "input": "y"}})],
            refused="custom",
        ),
        Conversation("no messages", [], refused="empty"),
    ]


def _without(message: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != key}


def _described(text: str) -> dict[str, Any]:
    made = tool(city={"type": "string", "description": text, "enum": [text]})
    made["function"]["description"] = text
    return made


def _nested_tool() -> dict[str, Any]:
    made = tool(
        where={
            "anyOf": [
                {"type": "string"},
                {"type": "object", "properties": {"lat": {"type": "number"}}},
                {"type": "null"},
            ],
            "description": "A place",
        },
        days={"type": "array", "items": {"type": "integer", "minimum": 0}},
    )
    made["function"]["strict"] = True
    made["function"]["parameters"]["additionalProperties"] = False
    return made


CONVERSATIONS = [*_plain(), *_tools(), *_arguments(), *_reasoning(), *_clients()]
