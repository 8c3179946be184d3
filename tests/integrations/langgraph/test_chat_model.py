# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""The policy as a LangChain chat model."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.language_models import BaseChatModel
from pydantic import BaseModel

from art_core.errors import ConfigError
from art_core.rollouts import TrainableModel
from integrations.langgraph import chat_model, rollout
from tests.integrations.langgraph.served import ScriptedBackend, nodes_of, records_of
from tests.integrations.langgraph.shapes import Tools, chain, question
from tests.integrations.langgraph.zoo_models import Score, Verdict, agent, lookup

Policy = TrainableModel[Any]
CALL = 'm5 [[call lookup {"word": "m5"}]]'


async def test_whole_and_streamed_sync_and_async(policy: Policy) -> None:
    llm = chat_model(policy)
    assert isinstance(llm, BaseChatModel)
    answers = [
        llm.invoke("m5").text,
        (await llm.ainvoke("m5")).text,
        "".join(chunk.text for chunk in llm.stream("m5")),
        "".join([chunk.text async for chunk in llm.astream("m5")]),
    ]
    assert answers == ["ok m5"] * 4


async def test_it_may_be_built_before_its_model_is_registered(
    scripted_backend: ScriptedBackend,
) -> None:
    model = TrainableModel(name="late", project="zoo", base_model="scripted")
    llm = chat_model(model)
    with pytest.raises(ConfigError, match="'late' isn't registered"):
        await llm.ainvoke("m5")
    await model.register(scripted_backend)
    assert (await llm.ainvoke("m5")).text == "ok m5"


async def test_tools(policy: Policy) -> None:
    llm = chat_model(policy).bind_tools([lookup])
    assert [(c["name"], c["args"]) for c in (await llm.ainvoke(CALL)).tool_calls] == [
        ("lookup", {"word": "m5"})
    ]
    (whole, *rest) = [chunk async for chunk in llm.astream(CALL)]
    for chunk in rest:
        whole = whole + chunk
    assert [(c["name"], c["args"]) for c in whole.tool_calls] == [("lookup", {"word": "m5"})]  # type: ignore[attr-defined]


async def test_usage_and_callbacks(policy: Policy) -> None:
    usage = UsageMetadataCallbackHandler()
    answer = await chat_model(policy, callbacks=[usage], stream_usage=True).ainvoke("m5")
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] > 0
    assert list(usage.usage_metadata.values()) == [answer.usage_metadata]


@pytest.mark.parametrize(
    ("schema", "name"),
    [(Score, "Score"), (Verdict, "Verdict"), (Score.model_json_schema(), "Score")],
)
async def test_structured_output(schema: Any, name: str, policy: Policy) -> None:
    judge = chat_model(policy).with_structured_output(schema)
    found: Any = await judge.ainvoke(f'm5 [[call {name} {{"score": 3}}]]')
    assert (dict(found) if isinstance(found, BaseModel) else found) == {"score": 3}


async def test_in_a_rollout_it_is_recorded_with_its_options(policy: Policy) -> None:
    llm = chat_model(policy, max_tokens=5, metadata={"mine": 1})

    async def node(state: Any) -> Any:
        return {"messages": [await llm.ainvoke(state["messages"])]}

    graph = chain({"ask": node})

    @rollout(policy)
    async def run(marker: str) -> None:
        await graph.ainvoke(question(marker))

    trajectory = await run.play("m1")
    assert await nodes_of(policy, trajectory) == ["ask"]
    (record,) = await records_of(policy, trajectory)
    assert record.sampling.max_tokens == 5
    assert record.tags["run_id"]


def test_it_can_be_built_before_the_model_is_registered() -> None:
    model = TrainableModel[Any](name="later", project="zoo", base_model="scripted")
    llm = chat_model(model)
    with pytest.raises(ConfigError, match=r"'later' isn't registered.*register\(backend\)"):
        llm.invoke("m5")


@pytest.mark.parametrize("option", ["model", "base_url", "api_key"])
def test_options_that_the_policy_decides(option: str, policy: Policy) -> None:
    with pytest.raises(ConfigError, match=f"chat_model\\(\\) was given {option}"):
        chat_model(policy, **{option: "x"})


async def test_create_agent_takes_it(policy: Policy) -> None:
    graph = agent(
        Tools(chat=lambda: chat_model(policy), openai=dict, model="", defaults={}, sync=False)
    )
    state = await graph.ainvoke({"messages": [("user", CALL)]})
    assert state["messages"][-1].text == "ok m5"
