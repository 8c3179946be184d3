# pyright: reportUnknownMemberType=false
"""Answers that must be JSON or call a tool, sampled by a real engine from a random model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Annotated, Any, Literal

import anthropic
import openai
import pytest
import torch
from pydantic import BaseModel, Field
from transformers import AutoConfig, AutoModelForCausalLM

from art_core.chat import chat_format_for
from art_core.engines.embedded import EmbeddedEngine
from art_core.gateway import GatewayServer, Policy
from art_core.runs.records import RecordStore
from art_core.trajectories import Completion, build_histories
from art_core.weights import resolve
from art_core.weights.loading import load
from tests.art_core.gateway.scripted import Bench, ask, ask_streaming, extra, make_tokenizer, user


class Report(BaseModel):
    who: Literal["ada", "bob"]
    fine: bool


class Fine(BaseModel):
    kind: Literal["fine"]
    """Told by it, and required: `.parse()` requires all fields."""
    by: Literal["me", "you"]


class Bad(BaseModel):
    kind: Literal["bad", "awful"] = "bad"


class Finding(BaseModel):
    result: Annotated[Fine | Bad, Field(discriminator="kind")]


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


LOOK = tool("look", at={"enum": ["sea", "sky"]})
FIND = tool("find", what={"enum": ["x", "y"]})
TOOLS: Any = [LOOK, FIND]


class Served:
    """A random model on a gateway."""

    def __init__(self, server: GatewayServer, records: RecordStore) -> None:
        self._server = server
        self._records = records
        self.rollout = server.open_rollout("random", mode="train", seed=1)
        self.client = openai.OpenAI(base_url=self.rollout.base_url, api_key="x", max_retries=0)

    def records(self) -> list[Completion]:
        return self._records.by_rollout(self.rollout.rollout_id)


@pytest.fixture(scope="module")
def random_model(
    gateway: GatewayServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RecordStore]:
    """A byte-level model with Qwen3's template that has learned nothing."""
    folder = tmp_path_factory.mktemp("random-model")
    template = files("trl").joinpath("chat_templates/qwen3_instruct_2507.jinja").read_text()
    make_tokenizer(template).save_pretrained(folder)
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama",
        vocab_size=272,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        eos_token_id=264,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    weights = load(resolve(str(folder)))
    records = RecordStore(tmp_path_factory.mktemp("random-records") / "records.sqlite")
    chat = chat_format_for(weights.tokenizer)
    gateway.add_policy(
        Policy(name="random", chat=chat, engine=EmbeddedEngine(weights), records=records)
    )
    yield records
    records.close()


@pytest.fixture
def served(gateway: GatewayServer, random_model: RecordStore) -> Iterator[Served]:
    served = Served(gateway, random_model)
    yield served
    served.client.close()


def test_parse_gives_the_object_that_was_asked_for(served: Served) -> None:
    completion = served.client.chat.completions.parse(
        model="m", messages=[user("who?")], response_format=Report, n=3
    )
    for choice in completion.choices:
        assert isinstance(choice.message.parsed, Report)
    records = served.records()
    assert len(records) == 3
    for record in records:
        assert record.sampling.grammar is not None
        assert json.loads(str(record.response["content"]))["who"] in ("ada", "bob")
    histories = build_histories(records)
    # Trained is where the model had a choice: it may think first; then a or b, t or f.
    for history, record in zip(histories, records, strict=True):
        assert history.sampled_tokens == sum(record.trainable) < len(record.trainable)


def test_parse_of_a_discriminated_union(served: Served) -> None:
    completion = served.client.chat.completions.parse(
        model="m", messages=[user("how?")], response_format=Finding, n=8
    )
    found = [choice.message.parsed for choice in completion.choices]
    assert {type(each.result) for each in found if each} == {Fine, Bad}
    assert "oneOf" in json.dumps(Finding.model_json_schema())


def test_json_of_any_kind(served: Served) -> None:
    answer = ask(served.client, response_format={"type": "json_object"}, max_tokens=3000)
    choice = answer.choices[0]
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content or ""), dict)


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_is_required(served: Served, stream: bool) -> None:
    if stream:
        with served.client.chat.completions.stream(
            model="m",
            messages=[user("look")],
            tools=TOOLS,
            tool_choice="required",
            parallel_tool_calls=False,
        ) as events:
            choice: Any = events.get_final_completion().choices[0]
    else:
        choice = ask(
            served.client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False
        ).choices[0]
    (call,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls"
    assert call.function.name in ("look", "find")
    assert set(json.loads(call.function.arguments)) <= {"at", "what"}


def test_a_call_of_a_tool_that_is_named(served: Served) -> None:
    choice = {"type": "function", "function": {"name": "find"}}
    message = ask(served.client, tools=TOOLS, tool_choice=choice).choices[0].message
    assert {call.function.name for call in message.tool_calls or []} == {"find"}  # type: ignore[union-attr]


def test_a_forced_call_is_gone_on_from(served: Served) -> None:
    first = ask(served.client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    message = first.choices[0].message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "r"}
    ask(served.client, user("hi"), message, result, tools=TOOLS, max_tokens=3)
    one, two = served.records()
    recorded = one.prompt_token_ids + one.completion_token_ids
    assert two.prompt_token_ids[: len(recorded)] == recorded


def test_responses_parse(served: Served) -> None:
    response = served.client.responses.parse(model="m", input="who?", text_format=Report)
    assert isinstance(response.output_parsed, Report)


def test_a_response_that_must_call(served: Served) -> None:
    flat: Any = [{"type": "function", **each["function"]} for each in (LOOK, FIND)]
    named: Any = {"type": "function", "name": "look"}
    response = served.client.responses.create(
        model="m", input="look", tools=flat, tool_choice=named, parallel_tool_calls=False
    )
    calls: list[Any] = [item for item in response.output if item.type == "function_call"]
    assert [call.name for call in calls] == ["look"]


def test_a_message_that_must_call(served: Served) -> None:
    base = served.rollout.base_url.removesuffix("/v1")
    tools: Any = [
        {"name": each["function"]["name"], "input_schema": each["function"]["parameters"]}
        for each in (LOOK, FIND)
    ]
    with anthropic.Anthropic(base_url=base, api_key="x", max_retries=0) as claude:
        message = claude.messages.create(
            model="m",
            max_tokens=3000,
            messages=[{"role": "user", "content": "look"}],
            tools=tools,
            tool_choice={"type": "tool", "name": "find", "disable_parallel_tool_use": True},
        )
    uses: list[Any] = [block for block in message.content if block.type == "tool_use"]
    assert [use.name for use in uses] == ["find"]
    assert uses[0].input["what"] in ("x", "y")


@pytest.mark.parametrize("schema", [{"type": "stringy"}, {"not": {"type": "string"}}])
def test_a_schema_that_cannot_be_used_is_named(served: Served, schema: dict[str, Any]) -> None:
    response_format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match="the grammar can't be used"):
        ask(served.client, response_format=response_format)
    assert served.records() == []


def test_a_one_of_that_cannot_be_kept_is_named(served: Served) -> None:
    schema = {"properties": {"a": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}}
    response_format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match="oneOf at #/properties/a can't be kept"):
        ask(served.client, response_format=response_format)


TWO_CALLS = (
    '<tool_call>\n{"name": "look", "arguments": {"at": "sea"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "find", "arguments": {"what": "x"}}\n</tool_call>'
)


@pytest.mark.parametrize("stream", [False, True])
def test_without_parallel_calls_an_answer_ends_with_its_first(
    tool_bench: Bench, stream: bool
) -> None:
    tool_bench.say(TWO_CALLS)
    ticket = tool_bench.server.open_rollout(tool_bench.name, mode="train")
    with openai.OpenAI(base_url=ticket.base_url, api_key="x", max_retries=0) as client:
        if stream:
            chunks = ask_streaming(client, tools=TOOLS, parallel_tool_calls=False)
            calls: Any = [c for k in chunks for c in k.choices[0].delta.tool_calls or []]
            last = chunks[-1].choices[0]
        else:
            last = ask(client, tools=TOOLS, parallel_tool_calls=False).choices[0]
            calls = last.message.tool_calls
        assert [call.function.name for call in calls] == ["look"]
        assert last.finish_reason == "tool_calls"
        record = tool_bench.record_of(extra(last, "completion_id"))
        assert tool_bench.engine.served[0].ending == "cancelled"
        assert tool_bench.engine.served[0].token_ids == record.completion_token_ids
        assert tool_bench.chat.decode(record.completion_token_ids).endswith("</tool_call>")
        result = {"role": "tool", "tool_call_id": calls[0].id, "content": "r"}
        message = {**record.response}
        ask(client, user("hi"), message, result, tools=TOOLS, parallel_tool_calls=False)
    first, second = tool_bench.engine.served
    recorded = first.prompt + first.token_ids
    assert second.prompt[: len(recorded)] == recorded
