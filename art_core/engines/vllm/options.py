"""What can be set about the vLLM engine."""

from __future__ import annotations

from pathlib import Path

from art_core.config import Config, NonNegativeFloat, PositiveFloat, PositiveInt
from art_core.errors import ConfigError


class VllmOptions(Config):
    """How a vLLM server is started; of one that runs already only the last three apply."""

    python: Path | None = None
    """The interpreter of the environment that vLLM is installed in; None: this one."""
    port: int = 0
    """On the loopback address; 0 takes a free one at every start."""
    context_length: PositiveInt | None = None
    """Most tokens of prompt and completion; None: what the model was trained for."""
    max_adapters: PositiveInt = 4
    """Adapter versions in one batch; requests for others wait."""
    max_lora_rank: PositiveInt | None = None
    """Largest rank of an adapter; None: that of the first model served."""
    gpus: tuple[int, ...] | None = None
    """Of the server, as CUDA numbers them; None: those that the trainer doesn't use,
    or its own where there is only one."""
    gpu_memory: PositiveFloat | None = None
    """Share of each GPU's whole memory that the server takes; None: see `plan_gpus`."""
    sleep: bool | None = None
    """Free the server's GPU memory during training steps; None: where they share a GPU."""
    cpu_kv_gigabytes: PositiveInt = 1
    """Memory for keys and values where there is no GPU, GiB."""
    arguments: tuple[str, ...] = ()
    """More arguments of the server; they win over ours."""
    environment: dict[str, str] = {}
    """More environment variables of the server; they win over ours."""
    start_timeout: PositiveFloat = 900.0
    """Seconds that the server may take to start; a large model is read from disk meanwhile."""
    api_key: str | None = None
    """What a server that runs already asks for."""
    patience: NonNegativeFloat = 120.0
    """Seconds that a server that runs already may be gone before requests fail."""
    max_restarts: PositiveInt = 5
    """Starts in a row that may fail, or end within a minute, before the engine gives up."""

    def check(self, *, attached: bool) -> None:
        """Raises ConfigError: a field doesn't go with this kind of server."""
        if not 0 <= self.port <= 65535:
            raise ConfigError(
                f"port is {self.port}", "Ports go from 1 to 65535; 0 takes a free one."
            )
        if self.gpu_memory is not None and self.gpu_memory > 1:
            raise ConfigError(
                f"gpu_memory is {self.gpu_memory}", "It is a share of the GPU's memory: at most 1."
            )
        if attached:
            mine = {"api_key", "patience", "max_restarts"}
            wrong = sorted(self.model_fields_set - mine)
            if wrong:
                raise ConfigError(
                    f"{', '.join(wrong)} can't be set for a vLLM server that runs already",
                    "Set it where that server is started, or leave out url.",
                )
        elif self.api_key is not None:
            raise ConfigError(
                "api_key is only for a vLLM server that runs already", "Leave it out, or set url."
            )
