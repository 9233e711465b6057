"""The Talker stage: a Thinker's hidden states, as they come, to a codec's tokens in a voice."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..protocol.errors import InvalidRequest
from ..protocol.frames import Frame, Tensor
from .ar_stage import POSITIONS, ARRequest, ARResult, RowSource, SubConfig
from .qwen_omni import is_qwen3, talker_layers

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

INPUT = "hidden"
_ROUNDING = 1e-6
"""Codes: so that as many seconds as make a whole number of them do not lose one."""


def talker_of(checkpoint: Checkpoint) -> Talker:
    """The Talker of an omni model.

    Raises:
        ModelLoadFailed: the checkpoint lacks what it needs.
    """
    if is_qwen3(checkpoint.index):
        from .talker_qwen3 import Qwen3Talker

        return Qwen3Talker(checkpoint)
    from .talker_qwen25 import Qwen25Talker

    return Qwen25Talker(checkpoint)


class Talker(ABC):
    """See `ARStage`.

    Attributes:
        config: the checkpoint's `talker_config`.
        sub_config: the config and class that vLLM runs.
        codes_per_second: codes, or frames of them, in a second of speech.
    """

    sub_config: SubConfig
    codes_per_second: float

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.config: dict[str, Any] = checkpoint.index["talker_config"]
        self._layers = talker_layers(checkpoint.index)
        self._width = int(checkpoint.index["thinker_config"]["text_config"]["hidden_size"])

    @abstractmethod
    def prompt(self, hidden: Hidden, voice: str) -> list[int]:
        """The tokens it begins with, as many as there are rows for them."""

    @abstractmethod
    def rows(self, voice: str) -> Rows:
        """What makes its rows."""

    @abstractmethod
    def codes(self, news: ARResult) -> torch.Tensor:
        """The codes, int64 `[n]` or `[n, groups]`, that a result or a share of one adds."""

    @abstractmethod
    def sampling(self, most: int) -> dict[str, Any]:
        """How it ends, after so many codes at most."""

    def positions(self, hidden: Hidden) -> torch.Tensor | None:
        """Those of the prompt's tokens `[3, n]`; None: they are counted."""
        return None

    def engine_args(self) -> dict[str, Any]:
        """See `ARStage.engine_args`."""
        return {
            "hf_overrides": self.sub_config,
            "enable_prompt_embeds": True,
            "enable_prefix_caching": False,  # tokens alike have rows that differ
            "skip_tokenizer_init": True,
            "generation_config": "vllm",  # the checkpoint's is the Thinker's
            "additional_config": {"omnistage": {"conditioned": True}},
        }

    def prepare(self, params: Mapping[str, Any], inputs: Mapping[str, Frame]) -> list[ARRequest]:
        """See `ARStage.prepare`."""
        voice = params["voice"]

        def part(news: ARResult) -> dict[str, Frame]:
            codes = self.codes(news)
            return {"codes": _frame(codes, voice)} if len(codes) else {}

        rows = self.rows(voice)
        most = params["max_seconds"] * self.codes_per_second + _ROUNDING
        sampling = {
            **{name: params[name] for name in ("temperature", "top_p", "top_k", "seed")},
            "repetition_penalty": params["repetition_penalty"],
            "detokenize": False,
            "ignore_eos": True,  # vLLM's is the Thinker's, and may be the number of a code
            **self.sampling(max(math.floor(most), 1)),
        }
        hidden = rows.begin(inputs[INPUT])
        return [
            ARRequest(
                {"prompt_token_ids": self.prompt(hidden, voice)},
                sampling,
                rows=rows,
                follows=INPUT,
                positions=self.positions(hidden),
                part=part,
            )
        ]

    def outputs(
        self, params: Mapping[str, Any], inputs: Mapping[str, Frame], results: Sequence[ARResult]
    ) -> dict[str, Frame]:
        """See `ARStage.outputs`."""
        (result,) = results
        reason = {"finish_reason": result.finish_reason}
        return {"codes": _frame(self.codes(result), params["voice"], **reason)}


@dataclass(frozen=True, slots=True)
class Hidden:
    """A Thinker's hidden states, or a part of them.

    Attributes:
        ids: tokens of the prompt and, as far as they have come, of the reply.
        rows: float32 `[n, width]` by layer; of the prompt's tokens and of the reply's but the last.
        positions: int64 `[n, 3]`, of a Thinker that tells them.
    """

    ids: torch.Tensor
    rows: Mapping[int, torch.Tensor]
    prompt_tokens: int
    positions: torch.Tensor | None


class Rows(RowSource, ABC):
    """Makes a Talker's rows: of the prompt first, then one for each token of the reply.

    Args:
        layers: the Thinker's layers that are needed.
        width: the Thinker's.
    """

    def __init__(self, layers: tuple[int, ...], width: int) -> None:
        self._layers = layers
        self._width = width
        self._begun = False

    @abstractmethod
    def prompt(self, hidden: Hidden) -> torch.Tensor:
        """The rows of the prompt, without those that depend on the reply."""

    @abstractmethod
    def reply(self, rows: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """The rows of the reply's next tokens, from theirs by layer."""

    def push(self, part: Frame) -> torch.Tensor:
        """See `RowSource.push`."""
        if self._begun:
            return self.reply(self._read(part).rows)
        self._begun, hidden = True, self.begin(part)
        rest = {layer: rows[hidden.prompt_tokens :] for layer, rows in hidden.rows.items()}
        return torch.cat([self.prompt(hidden), self.reply(rest)])

    def begin(self, part: Frame) -> Hidden:
        """What is in the first part, which holds the whole prompt.

        Raises:
            InvalidRequest: it does not, it lacks a layer, or is not a Thinker's of this model.
        """
        hidden = self._read(part)
        count = hidden.prompt_tokens
        if not 0 < count <= min(len(hidden.ids), *map(len, hidden.rows.values())):
            raise InvalidRequest(
                "The Thinker's hidden states do not begin with those of its prompt.",
                field=INPUT,
                value=count,
                allowed="prompt_tokens, and as many ids and rows at least",
            )
        return hidden

    def _read(self, part: Frame) -> Hidden:
        kept = part.header.get("layers")
        missing = [n for n in self._layers if f"layer_{n}" not in part.tensors]
        if missing or "token_ids" not in part.tensors:
            raise InvalidRequest(
                f"The Talker needs the Thinker's hidden states of layers {list(self._layers)}; "
                f"these are of {kept}. Ask for them with hidden_layers.",
                field="hidden_layers",
                value=kept,
                allowed=", ".join(map(str, self._layers)),
            )
        rows = {n: torch.tensor(part.tensors[f"layer_{n}"].array) for n in self._layers}
        for layer in rows.values():
            if layer.ndim != 2 or layer.shape[1] != self._width:
                raise InvalidRequest(
                    f"Hidden states of shape {list(layer.shape)} are not of this model's Thinker.",
                    field=INPUT,
                    value=list(layer.shape),
                    allowed=f"[tokens, {self._width}]",
                )
        ids = torch.tensor(part.tensors["token_ids"].array)
        told = part.tensors.get(POSITIONS)
        positions = None if told is None else torch.tensor(told.array)
        return Hidden(ids, rows, int(part.header.get("prompt_tokens", 0)), positions)


def _frame(codes: torch.Tensor, voice: str, **facts: Any) -> Frame:
    header = {"kind": "codes", "voice": voice, **facts}
    return Frame(header, {"codes": Tensor.of(np.ascontiguousarray(codes.numpy()))})
