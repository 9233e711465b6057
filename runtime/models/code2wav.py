"""Qwen3-Omni's codec: a causal network from frames of codes to sound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import Qwen3OmniMoeCode2Wav
from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import (
    Qwen3OmniMoeCode2WavConfig,
)

from .call_spec import CallSpec
from .checkpoint_part import load_part
from .codec import STAGE, CodecDecode, CodeLayout
from .program import LoadedModel, StageContext

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

SPECS = {("code2wav", "__call__"): CallSpec(primary="codes", rows=frozenset({"codes"}))}
"""How calls merge; proved by the perturbation test in `tests/runtime/models`."""


def load(checkpoint: Checkpoint, *, dtype: str, device: str) -> LoadedModel:
    """Load the codec."""
    config = Qwen3OmniMoeCode2WavConfig(**checkpoint.index.get("code2wav_config", {}))
    model = load_part(
        checkpoint, Qwen3OmniMoeCode2Wav, config, prefix="code2wav.", dtype=dtype, device=device
    )
    return LoadedModel(
        modules={"code2wav": FramesFirst(model)},
        specs=SPECS,
        programs={STAGE: CodecDecode(Code2Wav(config, int(model.total_upsample)))},
        denoiser=("code2wav", "__call__"),
    )


class FramesFirst(nn.Module):
    """The network with codes as they travel: frame by frame."""

    def __init__(self, code2wav: Qwen3OmniMoeCode2Wav) -> None:
        super().__init__()
        self._code2wav = code2wav
        self.total_upsample = int(code2wav.total_upsample)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Codes `[rows, frames, groups]` to waveforms `[rows, 1, samples]`."""
        return self._code2wav(codes.transpose(1, 2))


class Code2Wav:
    """See `Codec`."""

    def __init__(self, config: Qwen3OmniMoeCode2WavConfig, samples: int) -> None:
        self.layout = CodeLayout(
            shape=(config.num_quantizers,),
            count=config.codebook_size,
            samples=samples,
            lag=_lag(config.upsample_rates),
        )

    def steps(self, params: Mapping[str, Any]) -> int:
        """See `Codec.steps`."""
        return 1

    def decoder(
        self, context: StageContext, params: Mapping[str, Any], facts: Mapping[str, Any]
    ) -> Code2WavDecoder:
        """See `Codec.decoder`; the voice is in the codes themselves."""
        return Code2WavDecoder(context, self.layout.samples)


class Code2WavDecoder:
    """See `Decoder`."""

    def __init__(self, context: StageContext, samples: int) -> None:
        self._context = context
        self._samples = samples

    def window(self, codes: torch.Tensor, start: int, told: int) -> torch.Tensor:
        """See `Decoder.window`."""
        waveform = self._context.module("code2wav")(codes=codes.unsqueeze(0))
        self._context.end_step()
        return waveform.flatten()[told * self._samples :]

    def whole(self, codes: torch.Tensor) -> torch.Tensor:
        """See `Decoder.whole`.

        transformers decodes 300 frames at a time and leaves out, at each of those seams, the
        samples that the next frames would have brought.
        """
        shared = _SharedCode2Wav(self._context.module("code2wav"))
        waveform = Qwen3OmniMoeCode2Wav.chunked_decode(shared, codes.T.unsqueeze(0))
        self._context.end_step()
        return waveform.flatten()


class _SharedCode2Wav:
    """What transformers' `chunked_decode` takes for its network: calls go to the engine."""

    def __init__(self, code2wav: Any) -> None:
        self._code2wav = code2wav
        self.total_upsample = code2wav.total_upsample

    def __call__(self, codes: torch.Tensor) -> torch.Tensor:
        return self._code2wav(codes=codes.transpose(1, 2))


def _lag(rates: tuple[int, ...] | list[int]) -> int:
    """Samples fewer than the frames stand for.

    Each upsampling layer of the decoder leaves out what the next of its inputs would add to.
    """
    lag = 0
    for rate in rates:
        lag = (lag + 1) * rate
    return lag
