"""The stage `codec_decode` of models that speak: codes to sound, in chunks as they come."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from ..protocol.errors import InvalidRequest, JobFailed
from .chunks import Chunking
from .program import Bundle, LoadedModel, StageContext
from .qwen_omni import RATE_HZ, is_qwen3

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

STAGE: Final = "codec_decode"


@dataclass(frozen=True, slots=True)
class CodeLayout:
    """What a codec's codes are, and what becomes of them.

    Attributes:
        shape: of one code; empty, or its number of groups.
        count: codes are 0 to `count - 1`.
        samples: of sound that a code stands for.
        lag: samples that are missing at the end of what codes decode to; the next codes bring
            them.
        unsettled: samples before those that later codes still change much; they are told with
            the next chunk, or at the end.
        block: codes that the model looks at together.
    """

    shape: tuple[int, ...]
    count: int
    samples: int
    lag: int = 0
    unsettled: int = 0
    block: int = 1

    def chunking(self, params: Mapping[str, Any]) -> Chunking:
        """The cuts that a stage's parameters ask for."""
        untold = math.ceil((self.lag + self.unsettled) / self.samples)  # codes of chunks before
        left = max(params["left_context"], math.ceil(untold / self.block) * self.block)
        return Chunking(params["first_chunk"], params["chunk"], left, self.block)


class Decoder(Protocol):
    """Decodes the codes of one request; each decode ends the codec's number of steps."""

    def window(self, codes: torch.Tensor, start: int, told: int) -> torch.Tensor:
        """Codes to their waveform `[samples]`, without that of the first `told` codes.

        Args:
            codes: `[n, *shape]`.
            start: the first one's number in the speech.
            told: codes whose sound was told before, fewer than `n`.
        """

    def whole(self, codes: torch.Tensor) -> torch.Tensor:
        """All codes to their waveform `[samples]` just as transformers does."""


class Codec(Protocol):
    """A family's codec."""

    layout: CodeLayout

    def steps(self, params: Mapping[str, Any]) -> int:
        """Progress steps of one decode."""

    def decoder(
        self, context: StageContext, params: Mapping[str, Any], facts: Mapping[str, Any]
    ) -> Decoder:
        """A decoder for one request.

        Raises:
            InvalidRequest: what the codes' facts say does not fit the model.
        """


def load(checkpoint: Checkpoint, *, dtype: str, device: str) -> LoadedModel:
    """Load the codec of a Qwen-Omni checkpoint; see `Family.load`."""
    if is_qwen3(checkpoint.index):
        from . import code2wav

        return code2wav.load(checkpoint, dtype=dtype, device=device)
    from . import token2wav

    return token2wav.load(checkpoint, device=device)


class CodecDecode:
    """The stage's program.

    Codes are int64 `[n, *shape]`, the sound float32 `[1, 1, samples]` at 24 kHz.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def __call__(
        self, context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
    ) -> dict[str, Bundle]:
        """See `Program`.

        Raises:
            InvalidRequest: the codes are none of this model's.
            JobFailed: there are no codes, or they decode to something that is no sound.
        """
        self._begin_steps(context, params, inputs)
        codes = _Codes(context.parts("codes"), self._codec.layout)
        make = self._whole if params["whole"] else self._chunks
        pieces = []
        for waveform in make(context, params, codes):
            _check_sound(waveform)
            pieces.append(waveform.float().cpu().view(1, 1, -1))
            context.emit(audio=_audio(pieces[-1]))
        if not pieces:
            raise JobFailed(
                "The talker said nothing, so there is no speech to decode. "
                "See what the thinker wrote: it may be empty, or nothing that can be said.",
                field="codes",
                stage=STAGE,
            )
        return {"audio": _audio(torch.cat(pieces, -1))}

    def _begin_steps(
        self, context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
    ) -> None:
        """Say how many steps are to come, if all codes are there already."""
        if "codes" not in inputs:
            return
        codes = inputs["codes"].tensors.get("codes")
        count = 0 if codes is None or not codes.ndim else len(codes)
        windows = self._codec.layout.chunking(params).windows([count])
        decodes = 1 if params["whole"] else sum(1 for _ in windows)
        context.begin_steps(decodes * self._codec.steps(params))

    def _whole(
        self, context: StageContext, params: Mapping[str, Any], codes: _Codes
    ) -> Iterator[torch.Tensor]:
        for _ in codes.arrivals():
            pass
        if len(codes):
            yield self._codec.decoder(context, params, codes.facts).whole(codes.of(0, len(codes)))

    def _chunks(
        self, context: StageContext, params: Mapping[str, Any], codes: _Codes
    ) -> Iterator[torch.Tensor]:
        layout = self._codec.layout
        decoder: Decoder | None = None
        told = 0  # samples so far
        rest: torch.Tensor | None = None
        for window in layout.chunking(params).windows(codes.arrivals()):
            decoder = decoder or self._codec.decoder(context, params, codes.facts)
            known = told // layout.samples  # codes of the speech whose sound is told
            seen = codes.of(window.start, window.end)
            waveform = decoder.window(seen, window.start, known - window.start)
            first = known * layout.samples
            until = window.end * layout.samples - layout.lag - layout.unsettled
            if until > told:
                yield waveform[told - first : until - first]
                told = until
            rest = waveform[told - first :]
        if rest is not None and len(rest):
            yield rest


class _Codes:
    """The codes of one request, as far as they have come.

    Attributes:
        facts: what is said about them.
    """

    def __init__(self, parts: Iterator[Bundle], layout: CodeLayout) -> None:
        self._parts = parts
        self._layout = layout
        self._codes: torch.Tensor | None = None
        self.facts: Mapping[str, Any] = {}

    def __len__(self) -> int:
        return 0 if self._codes is None else len(self._codes)

    def arrivals(self) -> Iterator[int]:
        """How many there are, each time that more have come.

        Raises:
            InvalidRequest: what came is no row of codes, or holds a code that there is not.
        """
        for part in self._parts:
            more = self._checked(part)
            self._codes = more if self._codes is None else torch.cat([self._codes, more])
            self.facts = {**part.facts, **self.facts}
            yield len(self)

    def of(self, start: int, stop: int) -> torch.Tensor:
        """Codes `start` to `stop`: `[stop - start, *shape]`."""
        assert self._codes is not None
        return self._codes[start:stop]

    def _checked(self, part: Bundle) -> torch.Tensor:
        codes = part.tensors.get("codes")
        shape = self._layout.shape
        found = None if codes is None else f"{codes.dtype} {list(codes.shape)}"
        if codes is None or not _fits(codes, shape):
            wanted = ", ".join(map(str, ("n", *shape)))
            raise InvalidRequest(
                f"This codec takes codes as int64 of shape [{wanted}].",
                field="codes",
                value=found,
                allowed=f"int64 [{wanted}]",
                stage=STAGE,
            )
        wrong = codes[(codes < 0) | (codes >= self._layout.count)]
        if len(wrong):
            raise InvalidRequest(
                f"{int(wrong[0])} is no code of this codec. "
                "The codes are another model's, or not all special codes were taken out.",
                field="codes",
                value=int(wrong[0]),
                allowed=f"0 to {self._layout.count - 1}",
                stage=STAGE,
            )
        return codes


def _fits(codes: torch.Tensor, shape: tuple[int, ...]) -> bool:
    return codes.dtype is torch.int64 and codes.ndim > 0 and codes.shape[1:] == shape


def _audio(waveform: torch.Tensor) -> Bundle:
    return Bundle({"waveform": waveform}, {"kind": "audio", "rate": RATE_HZ})


def _check_sound(waveform: torch.Tensor) -> None:
    if not torch.isfinite(waveform).all():
        raise JobFailed(
            "The codec made sound that holds numbers which are not finite. Another seed may help; "
            "if it happens with each, the model's weights are damaged.",
            stage=STAGE,
        )
