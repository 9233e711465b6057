"""What can be configured about the diffusion core."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

PolicyName = Literal["fcfs", "srpt", "fair", "priority"]
MergeMode = Literal["packed", "grouped", "single"]


class EngineSettings(BaseModel):
    """Settings of one diffusion core."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: PolicyName = Field("srpt", description="Which requests go first.")
    mode: MergeMode = Field(
        "packed", description="The best merge mode that may be used; families fall back from it."
    )
    max_rows: int = Field(64, ge=1, description="Rows in one forward pass, at most.")
    full_at: float = Field(
        0.95,
        gt=0,
        lt=1,
        description="A batch is full at this share of the throughput more rows could reach.",
    )
    ageing: float = Field(
        0.5, ge=0, description="srpt: seconds of work forgiven per second a request has waited."
    )
    profile: bool = Field(
        True, description="Measure how a forward's time grows with rows when it is first seen."
    )
    strict: bool = Field(False, description="Treat every request as strict: never merge.")
    memory_mb: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="Weights in memory, at most. auto: 90 % of a GPU, 70 % of memory on the CPU; "
        "0: no limit.",
    )
    host_memory_mb: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="With a GPU: copies of weights in the machine's memory, at most, from which "
        "they are loaded again sooner. auto: half of it; 0: no limit.",
    )
    threads: int = Field(0, ge=0, description="CPU threads of torch; 0 leaves torch's default.")
    preview_px: int = Field(256, ge=16, description="Longest side of a preview.")
    preview_interval_ms: int = Field(150, ge=0, description="Shortest time between two previews.")
