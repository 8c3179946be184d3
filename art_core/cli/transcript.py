"""Prints a trajectory: as a conversation, or token by token."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from art_core.trajectories import History, Message, Trajectory

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROLE_STYLES = {"system": "magenta", "user": "cyan", "assistant": "green", "tool": "yellow"}


def print_transcript(console: Console, trajectory: Trajectory) -> None:
    """The messages, and how it was scored."""
    for message in trajectory.messages():
        print_message(console, message)
    others = len(trajectory.histories) - 1
    if others > 0:
        console.print(f"[dim]… and {others} more histories of this rollout[/]")
    metrics = "".join(f", {name} {value:.3g}" for name, value in trajectory.metrics.items())
    console.print(f"reward {trajectory.reward}{escape(metrics)}", highlight=False)
    if trajectory.error is not None:
        console.print(Text(trajectory.error, style="red"))


def print_message(console: Console, message: Message) -> None:
    """One message: role, text and tool calls."""
    role = str(message.get("role"))
    content = message.get("content")
    text = Text(f"{role:>9}  ", style=f"bold {_ROLE_STYLES.get(role, 'white')}")
    if content is not None:
        text.append(content if isinstance(content, str) else json.dumps(content), style="not bold")
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for call in calls:
            text.append(f"\n{'':9}  calls {json.dumps(call)}", style="not bold")
    console.print(text, soft_wrap=True)


def print_tokens(console: Console, trajectory: Trajectory, base_model: str | None) -> None:
    """Each history token by token: role, text, whether it's trained, logprob, version.

    Raises:
        MissingExtraError: transformers isn't installed.
        UnknownModelError, WeightsError: the base model's tokenizer can't be had.
    """
    if not trajectory.histories:
        console.print("This trajectory has no recorded tokens.")
        return
    from art_core.cli.token_roles import TokenReader

    reader = TokenReader.for_model(base_model)
    for number, history in enumerate(trajectory.histories, start=1):
        trained = history.sampled_tokens
        console.print(
            f"history {number} of {len(trajectory.histories)}: {len(history.token_ids)} tokens, "
            f"{trained} trained, {len(history.completion_ids)} calls",
            highlight=False,
        )
        console.print(token_table(history, reader.texts(history), reader.roles(history)))


def token_table(history: History, texts: Sequence[str], roles: Sequence[str]) -> Table:
    """A row per token, coloured by who said it, whether it is trained and how likely it was."""
    table = Table(box=None, header_style="bold")
    for heading, justify in (
        ("#", "right"), ("role", "left"), ("id", "right"), ("token", "left"),
        ("trained", "center"), ("logprob", "right"), ("version", "right"),
    ):  # fmt: skip
        table.add_column(heading, justify="right" if justify == "right" else "left")
    rows = zip(
        roles,
        history.token_ids,
        texts,
        history.loss_mask,
        history.logprobs,
        history.policy_versions,
        strict=True,
    )
    for number, (role, token_id, text, trained, logprob, version) in enumerate(rows):
        table.add_row(
            str(number),
            Text(role, style=_ROLE_STYLES.get(role, "white")),
            str(token_id),
            Text(json.dumps(text, ensure_ascii=False), style="bold green" if trained else "dim"),
            "●" if trained else "",
            "" if logprob is None else Text(f"{logprob:.3f}", style=_surprise(logprob)),
            "" if version is None else str(version),
        )
    return table


def _surprise(logprob: float) -> str:
    """A colour for how unlikely the token was under the policy that sampled it."""
    if logprob > -0.7:  # above even odds
        return "green"
    return "yellow" if logprob > -3.0 else "red"
