"""ruler: rewards from a judge that compares trajectories, and training from a description.

`score` scores a group, `Ruler` is what ``art.train(reward=…)`` takes, `evaluate` measures a
judge, `make_scenarios` and `autorl` need nothing but a description. See ``docs/ruler.md`` and
``docs/autorl.md``.
"""

from art_core.errors import (
    BudgetSpentError,
    JudgeAnswerError,
    JudgeError,
    JudgeSetupError,
    JudgeUnavailableError,
)
from ruler.answers import Judgement
from ruler.asking import Patience
from ruler.auto.making import make_scenarios
from ruler.auto.run import AutoReport, autorl
from ruler.auto.scenario import Origin, Scenario
from ruler.auto.sifting import Sifted, sift_scenarios
from ruler.auto.splitting import split_scenarios
from ruler.auto.store import load_scenarios
from ruler.auto.winning import WinRate, win_rate
from ruler.judges.base_model import BaseModelJudge
from ruler.judges.litellm_model import LiteLLMModel
from ruler.judges.model import JudgeModel, Price, Reply, RetryLater
from ruler.judges.openai_server import OpenAIServer
from ruler.methods.absolute import Absolute
from ruler.methods.function import FunctionJudge
from ruler.methods.judge import Judge, Verdict
from ruler.methods.pairwise import Pairwise
from ruler.methods.panel import Panel
from ruler.methods.relative import Relative
from ruler.openpipe import TrajectoryScore, ruler, ruler_score_group
from ruler.report import JudgeReport
from ruler.rewarding import weighted
from ruler.rubric import DEFAULT_RUBRIC, Criterion
from ruler.scorer import Ruler, score
from ruler.tally import Budget, Tally
from ruler.trust import evaluate, labelled_groups

__all__ = [
    "DEFAULT_RUBRIC",
    "Absolute",
    "AutoReport",
    "BaseModelJudge",
    "Budget",
    "BudgetSpentError",
    "Criterion",
    "FunctionJudge",
    "Judge",
    "JudgeAnswerError",
    "JudgeError",
    "JudgeModel",
    "JudgeReport",
    "JudgeSetupError",
    "JudgeUnavailableError",
    "Judgement",
    "LiteLLMModel",
    "OpenAIServer",
    "Origin",
    "Pairwise",
    "Panel",
    "Patience",
    "Price",
    "Relative",
    "Reply",
    "RetryLater",
    "Ruler",
    "Scenario",
    "Sifted",
    "Tally",
    "TrajectoryScore",
    "Verdict",
    "WinRate",
    "autorl",
    "evaluate",
    "labelled_groups",
    "load_scenarios",
    "make_scenarios",
    "ruler",
    "ruler_score_group",
    "score",
    "sift_scenarios",
    "split_scenarios",
    "weighted",
    "win_rate",
]
