"""The trained part of a model: a LoRA adapter through PEFT, or every weight."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import peft
import torch
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from art_core.config import LoraConfig
from art_core.errors import ConfigError, RunDamagedError

WEIGHTS_FILE = "adapter_model.safetensors"
POLICY = "default"
"""PEFT's name for the adapter that is trained."""
REFERENCE = "reference"


class Adapter:
    """A LoRA adapter on ``model``, in fp32 whatever the base's dtype.

    Args:
        model: changed in place by PEFT.
        seed: of the A matrices' random start (B starts at 0).
        base_name: what the saved adapter names as its base.
        base_digest: … and the base's hash, saved as PEFT's ``revision``.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        lora: LoraConfig,
        *,
        seed: int,
        base_name: str | None,
        base_digest: str | None,
    ) -> None:
        targets = lora.target_modules
        config = peft.LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,  # type: ignore[arg-type]  # PEFT takes floats
            lora_dropout=lora.dropout,
            target_modules=targets if isinstance(targets, str) else list(targets),
            use_rslora=lora.rslora,
            use_dora=lora.dora,
            fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
            task_type="CAUSAL_LM",
        )
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            # PEFT reads a property that transformers has renamed, and adds patterns of its own
            # for mixtures of experts whether or not they match.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            warnings.filterwarnings("ignore", "The following .*_pattern keys", RuntimeWarning)
            torch.manual_seed(seed)
            try:
                wrapped = peft.get_peft_model(model, config)
            except ValueError as error:
                raise ConfigError(
                    f"lora.target_modules is {targets!r}: {error}",
                    "Name linear layers of this model, or use 'all-linear'.",
                ) from error
        self._peft_model: Any = wrapped
        self._reference_folder: Path | None = None
        self._saved_config = config
        config.base_model_name_or_path = base_name or config.base_model_name_or_path
        config.revision = base_digest or config.revision

    def save(self, folder: Path) -> None:
        """Write the adapter as PEFT does, for `peft.PeftModel.from_pretrained`."""
        # "auto", the default, asks the model hub whether the vocabulary was resized.
        state = get_peft_model_state_dict(
            self._peft_model, adapter_name=POLICY, save_embedding_layers=False
        )
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
        save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
        training, self._saved_config.inference_mode = self._saved_config.inference_mode, True
        self._saved_config.save_pretrained(str(folder))
        self._saved_config.inference_mode = training

    def load(self, folder: Path) -> None:
        """Read the weights back.

        Raises:
            RunDamagedError: they aren't this adapter's.
        """
        path = folder / WEIGHTS_FILE
        result = set_peft_model_state_dict(self._peft_model, load_file(path), adapter_name=POLICY)
        missing = [name for name in result.missing_keys if f".{POLICY}." in name]
        if missing or result.unexpected_keys:
            raise RunDamagedError(
                f"{path} isn't an adapter of this model: {[*missing, *result.unexpected_keys][:3]}",
                "Resume with the same base model and LoRA settings.",
            )

    def parameters(self) -> dict[str, nn.Parameter]:
        """What the optimizer changes, by name."""
        model: nn.Module = self._peft_model
        return {name: p for name, p in model.named_parameters() if p.requires_grad}

    @contextmanager
    def reference(self, adapter: Path | None) -> Generator[None]:
        """Inside, the model is the base, or has ``adapter``'s weights.

        Raises:
            ConfigError: the folder doesn't hold an adapter of this model.
        """
        if adapter is None:
            with self._peft_model.disable_adapter():
                yield
            return
        self._load_reference(adapter)
        self._peft_model.set_adapter(REFERENCE, inference_mode=True)
        try:
            yield
        finally:
            self._peft_model.set_adapter(POLICY)

    def _load_reference(self, folder: Path) -> None:
        if self._reference_folder == folder:
            return
        if self._reference_folder is not None:
            self._peft_model.delete_adapter(REFERENCE)
        try:
            self._peft_model.load_adapter(str(folder), REFERENCE, is_trainable=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"kl_adapter is {folder}: {error}",
                "Give the folder of a PEFT adapter of this base.",
            ) from error
        self._reference_folder = folder
