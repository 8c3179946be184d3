"""Whatever the judge says, rewards are exactly its valid scores by id, or absent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from art_core.trajectories import Message
from ruler import Patience, Reply, Ruler
from tests.ruler.fake_judge import recordings
from tests.ruler.groups import quality_group, rewards

QUALITIES = (0.1, 0.5, 0.9)

numbers = st.one_of(
    st.floats(),
    st.floats(0, 1),
    st.integers(),
    st.integers(0, 1),
    st.booleans(),
    st.none(),
    st.text(max_size=5),
    st.just([0.5]),
)
"""What may stand where a score should."""
right: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"explanation": st.text(max_size=20), "score": st.floats(0, 1) | st.integers(0, 1)}
)
anything: st.SearchStrategy[Any] = st.one_of(
    right,
    st.fixed_dictionaries({"explanation": st.text(max_size=20), "score": numbers}),
    st.dictionaries(st.sampled_from(["score", "explanation", "note"]), numbers, max_size=3),
    numbers,
)


WRAPPINGS = {"{}": True, "Well: {} So.": True, "```json\n{}\n```": True, "{} {}": False}
"""What may stand around the answer, and whether it is still one object then."""


class SaysAnything:
    """A judge model that puts drawn judgements under drawn keys, in a drawn order."""

    name = "says anything"
    identity: Mapping[str, JsonValue] = {}

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.expected: list[float | None] = []

    async def reply(self, messages: Sequence[Message], schema: Mapping[str, JsonValue]) -> Reply:
        said = recordings(str(messages[1]["content"]), str(messages[0]["content"]))
        id_of = {float(text.split("quality=")[1][:3]): name for name, text in said.items()}
        keys = self.draw(
            st.permutations(list(said)) | st.lists(st.sampled_from([*said, "other"]), max_size=5)
        )
        judgements = self.draw(st.sampled_from([right, anything]))
        values = [self.draw(judgements) for _ in keys]
        wrapping = self.draw(st.sampled_from(list(WRAPPINGS)))
        pairs = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in zip(keys, values, strict=True)]
        answer = "{" + ", ".join(pairs) + "}"
        text = wrapping.replace("{}", answer)
        # Short of the end of the (first) object.
        cut = self.draw(st.none() | st.integers(0, wrapping.index("{") + len(answer) - 1))
        is_whole = (
            sorted(keys) == sorted(said)
            and all(is_right(value) for value in values)
            and WRAPPINGS[wrapping]
            and cut is None
        )
        self.expected = [
            values[keys.index(id_of[quality])]["score"] if is_whole else None
            for quality in QUALITIES
        ]
        return Reply(text=text[:cut], prompt_tokens=1, completion_tokens=1, cost_usd=0.0)


def is_right(judgement: Any) -> bool:
    """An independent reading of what a judgement must be."""
    match judgement:
        case {"explanation": str(), "score": int() | float() as score} if len(judgement) == 2:
            return not isinstance(score, bool) and 0 <= score <= 1
        case _:
            return False


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_rewards_are_valid_scores_by_id_or_absent(data: st.DataObject) -> None:
    model = SaysAnything(data)
    ruler = Ruler(model, cache=False, patience=Patience(repairs=0))
    scored = asyncio.run(ruler.score(quality_group(*QUALITIES)))
    assert rewards(scored) == model.expected
    event(f"scored: {None not in model.expected}")
    assert scored.metrics["ruler/scored"] == (None not in model.expected)
