"""What can be configured about the autoregressive core."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class ARSettings(BaseModel):
    """Settings of every AR engine; a model's own `vllm` options win over them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kv_cache_mb: int | None = Field(
        None,
        ge=1,
        description="Memory for the KV cache of each stage; by default 512 on a CPU, else 4096.",
    )
    idle_unload_s: float = Field(
        0.0, ge=0, description="Unload a stage that was idle for so long; 0: never."
    )
    vllm: dict[str, Any] = Field(
        default_factory=dict,
        description="Options of vLLM's engine, passed through untouched, e.g. max_num_seqs.",
    )

    def kv_cache_bytes(self, device: str) -> int:
        """Memory for the KV cache of a stage on a torch device."""
        return (self.kv_cache_mb or (512 if device == "cpu" else 4096)) << 20
