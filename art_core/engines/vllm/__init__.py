"""The vLLM engine: an OpenAI-compatible vLLM server, ours or one that runs already.

Read in this order: `wire` (requests and answers in token ids), `supervisor` (start,
watch, start again), `child` and `attached` (what is watched), `adapters`, `probe`
(is what it answers exact?), `engine` (the face). vLLM itself is never imported: the
server runs in an environment of its own.
"""

from art_core.engines.vllm.engine import VllmEngine
from art_core.engines.vllm.options import VllmOptions

__all__ = ["VllmEngine", "VllmOptions"]
