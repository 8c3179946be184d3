"""Base models: found, fetched, and loaded once for engine and trainer.

Light to import: torch and transformers come in with `load` only, which is why it
lives in `art_core.weights.loading`.
"""

from art_core.weights.files import BaseModelFiles, OnProgress, Progress, default_cache_dir
from art_core.weights.resolve import BUILT_IN_MODELS, find_built_in, resolve

__all__ = [
    "BUILT_IN_MODELS",
    "BaseModelFiles",
    "OnProgress",
    "Progress",
    "default_cache_dir",
    "find_built_in",
    "resolve",
]
