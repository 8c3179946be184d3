"""Base models: found, fetched, and loaded once for engine and trainer.

Light to import: torch and transformers come in with `load` only, which is why it
lives in `art_core.weights.loading`.
"""

from art_core.weights.files import BaseModelFiles, OnProgress, Progress
from art_core.weights.resolve import BUILT_IN_MODELS, resolve

__all__ = ["BUILT_IN_MODELS", "BaseModelFiles", "OnProgress", "Progress", "resolve"]
