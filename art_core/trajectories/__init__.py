"""Completions, histories, trajectories and groups: the data that everything else passes on."""

from art_core.trajectories.choices import (
    COMPLETION_ID_FIELD,
    MessageOrChoice,
    MessagesAndChoices,
    as_message,
    choice_completion_id,
    is_choice,
)
from art_core.trajectories.completion import Completion, CompletionStatus, Message, Tool
from art_core.trajectories.group import (
    ExceptionRecord,
    PendingGroup,
    PendingRollout,
    TrajectoryGroup,
)
from art_core.trajectories.history import History, build_histories
from art_core.trajectories.sampling import SamplingParams
from art_core.trajectories.trajectory import (
    MetadataValue,
    RolloutAccess,
    Trajectory,
    TrajectoryStatus,
    check_reward,
)

__all__ = [
    "COMPLETION_ID_FIELD",
    "Completion",
    "CompletionStatus",
    "ExceptionRecord",
    "History",
    "Message",
    "MessageOrChoice",
    "MessagesAndChoices",
    "MetadataValue",
    "PendingGroup",
    "PendingRollout",
    "RolloutAccess",
    "SamplingParams",
    "Tool",
    "Trajectory",
    "TrajectoryGroup",
    "TrajectoryStatus",
    "as_message",
    "build_histories",
    "check_reward",
    "choice_completion_id",
    "is_choice",
]
