"""A policy that does what its task says; gateway, records and capture are real.

A task is a JSON list of turns: a text is said, a list of ``[tool, arguments]`` is called.
"""

from __future__ import annotations

import json
from typing import Any

from art_core.errors import ContextLengthError
from art_core.gateway import Policy
from art_core.rollouts import Model
from art_core.runs.records import RecordStore
from tests.integrations.langgraph.served import TURN, ScriptedBackend, ScriptedEngine

MOST_CHARACTERS = 400_000
Turn = str | list[tuple[str, Any]]


def task(*turns: Turn) -> str:
    return json.dumps(turns)


class ScriptedAgentEngine(ScriptedEngine):
    def _answer(self, prompt: str) -> str:
        if len(prompt) > MOST_CHARACTERS:
            raise ContextLengthError("the prompt is too long")
        turns = TURN.findall(prompt)
        start = next(i for i, (_, text) in enumerate(turns) if text.startswith("["))
        done = sum(role == "assistant" for role, _ in turns[start:])
        turn = json.loads(turns[start][1])[done]
        if isinstance(turn, str):
            return turn
        calls = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in turn]
        return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)


class AgentBackend(ScriptedBackend):
    async def register(self, model: Model[Any]) -> None:
        records = RecordStore(self._folder / f"{model.name}.sqlite")
        self._records[model.name] = records
        engine = ScriptedAgentEngine(self._chat)
        self._gateway.add_policy(
            Policy(
                name=model.name,
                project=model.project,
                chat=self._chat,
                engine=engine,
                records=records,
            )
        )
        model.inference_base_url = f"{self._gateway.url}/v1"
        model.inference_api_key = "unused"
        model.inference_model_name = model.name
