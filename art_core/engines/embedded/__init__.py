"""The embedded engine: continuous batching on PyTorch, in this process.

Read in this order: `request`, `scheduler` (what is computed next), `cache` and `kv`
(where keys and values live), `attention`, `model` (transformers' models on flat
batches), `runner` (one step), `sampler`, `worker` (the loop), `engine` (the face).
"""

from art_core.engines.embedded.engine import EmbeddedEngine
from art_core.engines.embedded.options import EmbeddedOptions
from art_core.engines.embedded.stats import EngineStats

__all__ = ["EmbeddedEngine", "EmbeddedOptions", "EngineStats"]
