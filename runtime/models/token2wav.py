"""Qwen2.5-Omni's codec: a diffusion transformer makes mel frames of codes, a vocoder sound."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn
from transformers import (
    Qwen2_5OmniToken2WavBigVGANModel,
    Qwen2_5OmniToken2WavDiTModel,
    Qwen2_5OmniToken2WavModel,
)
from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import (
    Qwen2_5OmniBigVGANConfig,
    Qwen2_5OmniToken2WavConfig,
)

from ..protocol.errors import InvalidRequest, ModelLoadFailed
from .call_spec import CallSpec
from .checkpoint_part import load_part
from .codec import STAGE, CodecDecode, CodeLayout
from .program import LoadedModel, StageContext
from .voices import SPEAKERS

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

SPECS = {
    ("dit", "__call__"): CallSpec(
        primary="hidden_states",
        rows=frozenset(
            {
                "hidden_states",
                "condition_vector",
                "speaker_embedding",
                "quantized_code",
                "time_step",
            }
        ),
    ),
    ("vocoder", "__call__"): CallSpec(primary="frames", rows=frozenset({"frames"})),
}
"""How calls merge; proved by the perturbation test in `tests/runtime/models`."""

_UNSETTLED_CODES: Final = 3
"""Codes whose sound is held back until more come.

Without what follows, the vocoder makes the sound of a chunk's last two codes wrong; with three
held back, seams are no worse than the rest (`tests/runtime/models/test_codec_qwen25.py`).
"""

_EDGE_REACH: Final = 3
"""Inputs before an output that the vocoder's first and last convolution take, seven wide."""

_ACTIVATION_REACH: Final = 6
"""The same for an activation: a filter of twelve at twice the rate, before it and after it."""

_CALLS_A_STEP: Final = 4
"""Transformer calls of a step: the solver is a Runge-Kutta method of fourth order."""


def load(checkpoint: Checkpoint, *, device: str) -> LoadedModel:
    """Load the codec in float32, which is what transformers runs it in, too."""
    config = Qwen2_5OmniToken2WavConfig(**checkpoint.index.get("token2wav_config", {}))
    model = load_part(
        checkpoint,
        Qwen2_5OmniToken2WavModel,
        config,
        prefix="token2wav.",
        dtype="float32",
        device=device,
    )
    voices = load_voices(checkpoint, model.code2wav_dit_model)
    return LoadedModel(
        modules={
            "dit": GuidedDiT(model.code2wav_dit_model),
            "vocoder": Vocoder(model.code2wav_bigvgan_model),
        },
        specs=SPECS,
        programs={STAGE: CodecDecode(Token2Wav(config, voices))},
        denoiser=("dit", "__call__"),
    )


class GuidedDiT(nn.Module):
    """The diffusion transformer with rows on the first dimension of all it takes and gives.

    transformers' doubles its rows itself for guidance, and its result holds all guided rows
    before the unguided, which nobody could cut by request. And it encodes the voice's sample in
    each call; samples of two voices differ in length, so their calls could not be merged.
    """

    def __init__(self, dit: Qwen2_5OmniToken2WavDiTModel) -> None:
        super().__init__()
        dit.input_embed.spk_encoder = nn.Identity()  # a voice is encoded once, when it is loaded
        self._dit = dit
        self.config, self.repeats, self.mel_dim = dit.config, dit.repeats, dit.mel_dim

    def forward(
        self,
        hidden_states: torch.Tensor,
        condition_vector: torch.Tensor,
        speaker_embedding: torch.Tensor,
        quantized_code: torch.Tensor,
        time_step: torch.Tensor,
        apply_cfg: bool,
    ) -> torch.Tensor:
        """The velocity of mel frames.

        Args:
            hidden_states: `[rows, frames, mel]`.
            condition_vector: encodings of the voice and of no voice, `[rows, 2, width]`.
            speaker_embedding: `[rows, frames, width]`.
            quantized_code: `[rows, codes]`.
            time_step: `[rows]`.
            apply_cfg: whether there is guidance.

        Returns:
            `[rows, 2, frames, mel]`, with voice and codes and without; `[rows, frames, mel]` if
            there is no guidance.
        """
        voice, nobody = condition_vector.unbind(1)
        if not apply_cfg:
            return self._dit(
                hidden_states, voice, speaker_embedding, quantized_code, time_step, apply_cfg=False
            )
        both = self._dit(
            torch.cat([hidden_states, hidden_states]),
            torch.cat([voice, nobody]),
            torch.cat([speaker_embedding, torch.zeros_like(speaker_embedding)]),
            torch.cat([quantized_code, torch.zeros_like(quantized_code)]),
            torch.cat([time_step, time_step]),
            apply_cfg=False,
        )
        return both.unflatten(0, (2, -1)).transpose(0, 1)


class Vocoder(nn.Module):
    """BigVGAN with its rows kept: transformers' drops the dimension if there is one row."""

    def __init__(self, bigvgan: Qwen2_5OmniToken2WavBigVGANModel) -> None:
        super().__init__()
        self._bigvgan = bigvgan

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Mel frames `[rows, frames, mel]` to waveforms `[rows, samples]`."""
        return self._bigvgan(frames.transpose(1, 2)).view(len(frames), -1)


@dataclass(frozen=True, slots=True)
class Voice:
    """What the transformer is told about a voice.

    Attributes:
        speaker: its embedding, `[1, width]`.
        encodings: of its sample and of a silent one, `[1, 2, width]`.
    """

    speaker: torch.Tensor
    encodings: torch.Tensor


def load_voices(checkpoint: Checkpoint, dit: Qwen2_5OmniToken2WavDiTModel) -> dict[str, Voice]:
    """The voices by their names in lower case.

    Raises:
        ModelLoadFailed: the file is corrupt, or its voices do not fit the model.
    """
    path = checkpoint.folder / SPEAKERS
    try:
        found = torch.load(path, map_location=dit.device, weights_only=True)
        return {str(name).lower(): _encoded(facts, dit) for name, facts in found.items()}
    except (
        OSError,
        EOFError,
        RuntimeError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        pickle.UnpicklingError,
    ) as error:
        raise ModelLoadFailed(
            f"The voices in {path} could not be loaded: {error}", field=path.name
        ) from error


@torch.no_grad()
def _encoded(facts: Mapping[str, Any], dit: Qwen2_5OmniToken2WavDiTModel) -> Voice:
    speaker, sample = facts["cond"].float(), facts["ref_mel"].float()
    width = dit.config.enc_emb_dim
    if speaker.shape != (1, width):
        raise ValueError(f"cond has the shape {list(speaker.shape)}, not [1, {width}]")
    encodings = dit.input_embed.spk_encoder(torch.cat([sample, torch.zeros_like(sample)]))
    return Voice(speaker, encodings.unsqueeze(0))


class Token2Wav:
    """See `Codec`.

    Attributes:
        longest: codes that can be decoded in one piece.
        reach: codes before a sample that its sound depends on through the vocoder.
    """

    def __init__(self, config: Qwen2_5OmniToken2WavConfig, voices: Mapping[str, Voice]) -> None:
        dit = config.dit_config
        self._voices = voices
        self.longest = dit.max_position_embeddings // dit.repeats
        self.reach = math.ceil(vocoder_reach(config.bigvgan_config) / dit.repeats)
        samples = dit.repeats * math.prod(config.bigvgan_config.upsample_rates)
        self.layout = CodeLayout(
            shape=(),
            count=dit.num_embeds + 1,
            samples=samples,
            unsettled=_UNSETTLED_CODES * samples,
            block=dit.block_size // dit.repeats,
        )

    def steps(self, params: Mapping[str, Any]) -> int:
        """See `Codec.steps`: those of the solver."""
        return int(params["steps"]) - 1

    def decoder(
        self, context: StageContext, params: Mapping[str, Any], facts: Mapping[str, Any]
    ) -> Token2WavDecoder:
        """See `Codec.decoder`."""
        name = facts.get("voice")
        voice = self._voices.get(str(name).lower())
        if voice is None:
            raise InvalidRequest(
                f"This model has no voice {name!r}.",
                field="voice",
                value=name,
                allowed=", ".join(sorted(self._voices)),
                stage=STAGE,
            )
        return Token2WavDecoder(context, params, voice, self)


def vocoder_reach(config: Qwen2_5OmniBigVGANConfig) -> int:
    """Mel frames before a sample of sound that BigVGAN makes it of.

    Follows its layers from the sound back to the frames. Source: the classes of transformers'
    `modeling_qwen2_5_omni.py` from `Qwen2_5OmniUpSample1d` to `Qwen2_5OmniToken2WavBigVGANModel`.
    """
    blocks = zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True)
    block = max(
        sum(kernel // 2 * (dilation + 1) + 2 * _ACTIVATION_REACH for dilation in dilations)
        for kernel, dilations in blocks
    )
    reach = _EDGE_REACH + _ACTIVATION_REACH  # the last layers, which keep the rate
    for rate, kernel in reversed(
        list(zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True))
    ):
        reach = (reach + block + kernel - 1 - (kernel - rate) // 2) // rate
    return reach + _EDGE_REACH


class Token2WavDecoder:
    """See `Decoder`.

    Noise belongs to a code by its place in the speech, so a chunk begins with the noise that
    the whole would have there, whatever else runs.
    """

    def __init__(
        self, context: StageContext, params: Mapping[str, Any], voice: Voice, codec: Token2Wav
    ) -> None:
        self._context = context
        self._params = params
        self._voice = voice
        self._codec = codec
        self._dit = context.module("dit")
        self._noise = Noise(params["seed"], self._dit.repeats, self._dit.mel_dim)

    def window(self, codes: torch.Tensor, start: int, told: int) -> torch.Tensor:
        """See `Decoder.window`.

        The vocoder is given the frames that the wanted sound depends on, the transformer all.

        Raises:
            InvalidRequest: there are more codes than the model has places for.
        """
        longest = self._codec.longest
        if len(codes) > longest:
            raise InvalidRequest(
                f"{len(codes)} codes are too many to be decoded in one piece; "
                f"this model takes {longest}.",
                field="whole" if self._params["whole"] else "chunk",
                value=len(codes),
                allowed=f"at most {longest} codes; smaller chunks, and not the whole at once",
                stage=STAGE,
            )
        first = max(told - self._codec.reach, 0)
        frames = self._frames(codes, start)[:, first * self._dit.repeats :]
        waveform = self._context.module("vocoder")(frames)[0]
        return waveform[(told - first) * self._codec.layout.samples :]

    def _frames(self, codes: torch.Tensor, start: int) -> torch.Tensor:
        """Codes to mel frames `[1, frames, mel]`."""
        noise = self._noise.of(start, start + len(codes))
        mel = Qwen2_5OmniToken2WavDiTModel.sample(
            _SharedDiT(self._context, noise),
            self._voice.speaker,
            self._voice.encodings,
            codes.unsqueeze(0),
            num_steps=self._params["steps"],
            guidance_scale=self._params["guidance"],
        )
        return mel.transpose(1, 2)

    def whole(self, codes: torch.Tensor) -> torch.Tensor:
        """See `Decoder.whole`."""
        return self.window(codes, start=0, told=0)


class Noise:
    """Normal noise of a request, by the place of the code it is for.

    Drawn on the CPU, code by code. As far as one code's noise is a multiple of 16 numbers, that
    is what `torch.randn` draws for all of them at once from the same seed.
    """

    def __init__(self, seed: int, *shape: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._shape = shape
        self._drawn: list[torch.Tensor] = []

    def of(self, start: int, stop: int) -> torch.Tensor:
        """Noise for codes `start` to `stop`, joined."""
        while len(self._drawn) < stop:
            self._drawn.append(torch.randn(self._shape, generator=self._generator))
        return torch.cat(self._drawn[start:stop])


class _SharedDiT:
    """What transformers' `sample` takes for its transformer: calls go to the engine.

    `sample` draws its noise from torch's own generator, which all requests share. The state that
    its solver begins with comes here first, and there this request's noise is put in its place.
    """

    def __init__(self, context: StageContext, noise: torch.Tensor) -> None:
        self._context = context
        self._dit = context.module("dit")
        self._noise = noise
        self._calls = 0
        self.config, self.repeats, self.mel_dim = (
            self._dit.config,
            self._dit.repeats,
            self._dit.mel_dim,
        )

    def __call__(
        self,
        *,
        hidden_states: torch.Tensor,
        condition_vector: torch.Tensor,
        speaker_embedding: torch.Tensor,
        quantized_code: torch.Tensor,
        time_step: torch.Tensor,
        apply_cfg: bool,
        **_: bool,
    ) -> torch.Tensor:
        """The transformer's result as `sample` expects it: `[2 * rows, frames, mel]`."""
        if not self._calls:
            hidden_states.copy_(self._noise)
        velocity = self._dit(
            hidden_states=hidden_states,
            condition_vector=condition_vector,
            speaker_embedding=speaker_embedding,
            quantized_code=quantized_code,
            time_step=time_step.expand(len(hidden_states)),
            apply_cfg=apply_cfg,
        )
        self._calls += 1
        if self._calls % _CALLS_A_STEP == 0:
            self._context.end_step()
        return velocity.transpose(0, 1).flatten(0, 1) if apply_cfg else velocity
