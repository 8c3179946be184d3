# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeArgument=false
"""Base weights, loaded once; module trees over them, as many as are wanted."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from art_core.errors import WeightsError
from art_core.weights.files import BaseModelFiles

DtypeName = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, slots=True, eq=False)
class BaseWeights:
    """A base model in memory, shared by engine and trainer; nothing ever writes to it."""

    files: BaseModelFiles
    tokenizer: PreTrainedTokenizerBase
    _pristine: PreTrainedModel

    @property
    def config(self) -> PretrainedConfig:
        return self._pristine.config

    @property
    def dtype(self) -> torch.dtype:
        return self._pristine.dtype

    @property
    def device(self) -> torch.device:
        return self._pristine.device

    def new_model(self) -> PreTrainedModel:
        """A fresh module tree, frozen and in eval mode, over the same weight storage.

        PEFT rewrites a model in place, so each user gets a tree of its own; a tree
        costs kilobytes. Its parameters are new objects on shared memory: don't
        write into them.
        """
        # deepcopy with every parameter already "copied": only modules are duplicated,
        # tied weights stay tied, and buffers (rotary frequencies) are copied for real.
        memo: dict[int, Any] = {
            id(p): nn.Parameter(p.data, requires_grad=False) for p in self._pristine.parameters()
        }
        return copy.deepcopy(self._pristine, memo).eval()


def load(files: BaseModelFiles, *, dtype: DtypeName = "auto", device: str = "auto") -> BaseWeights:
    """Load a base model into memory.

    Args:
        dtype: ``auto`` picks what this device computes fastest, see `pick_dtype`.
        device: a torch device, or ``auto``: CUDA, else MPS, else the CPU.

    Raises:
        WeightsError: the folder isn't a causal language model that transformers
            has code for, or its weights are incomplete.
    """
    target = pick_device() if device == "auto" else torch.device(device)
    chosen = pick_dtype(target) if dtype == "auto" else getattr(torch, dtype)
    try:
        tokenizer = AutoTokenizer.from_pretrained(files.path, local_files_only=True)
        with _no_progress_bar():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                files.path,
                dtype=chosen,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError) as error:
        raise WeightsError(
            f"can't load {files.name} from {files.path}: {error}",
            "The folder must hold a causal language model that transformers supports.",
        ) from error
    model, info = loaded
    if info["missing_keys"] or info["mismatched_keys"]:
        missing = sorted(str(key) for key in [*info["missing_keys"], *info["mismatched_keys"]])
        raise WeightsError(
            f"{files.path} lacks weights of {files.name}: {', '.join(missing[:5])}",
            "Fetch the model again, whole.",
        )
    return BaseWeights(files, tokenizer, model.to(target).requires_grad_(False).eval())


def pick_device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def pick_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the hardware multiplies it, else float32.

    A CPU without bfloat16 units emulates it: 9× slower than float32 on AVX2.
    """
    if device.type == "cuda":
        native = torch.cuda.get_device_capability(device) >= (8, 0)
    elif device.type == "cpu":
        features = cast("dict[str, Any]", torch.cpu.get_capabilities())
        native = any(on for name, on in features.items() if name.endswith("bf16"))
    else:
        native = False
    return torch.bfloat16 if native else torch.float32


@contextlib.contextmanager
def _no_progress_bar() -> Generator[None]:
    """transformers draws one while it loads, through whatever the caller shows."""
    enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            transformers_logging.enable_progress_bar()
