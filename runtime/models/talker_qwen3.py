"""Qwen3-Omni's Talker: frames of codes, the first of each from the Talker, the others predicted.

It hears what the user said, then the reply. The user's words come as the Thinker's embeddings of
them, pictures and sound as a layer's hidden states; of the reply only the embeddings are heard.
A few codes open the reply, one of which is the voice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..protocol.errors import InvalidRequest
from ..protocol.frames import Frame
from .ar_stage import ARResult, SubConfig
from .qwen_omni import RATE_HZ
from .talker import INPUT, Hidden, Rows, Talker
from .weight_rows import weight_rows

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

_EMBEDDING = "thinker.model.embed_tokens.weight"
_ROLE_TOKENS = 3
"""Of the reply's turn: its start, whose it is, a line break. They have no code."""
_PADS = 4
_OPENING = ("codec_nothink_id", "codec_think_bos_id", "codec_think_eos_id")


class Qwen3Talker(Talker):
    """See `Talker`."""

    sub_config = SubConfig("talker_config", "Qwen3OmniMoeTalker")

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Read the embeddings that surround a reply.

        Raises:
            ModelLoadFailed: the checkpoint lacks them.
        """
        super().__init__(checkpoint)
        index = checkpoint.index
        names = ("tts_bos_token_id", "tts_eos_token_id", "tts_pad_token_id")
        self._edges = weight_rows(checkpoint, _EMBEDDING, [index[name] for name in names])
        self._turns = _Turns(index)
        codec = index["code2wav_config"]
        samples = math.prod([*codec["upsample_rates"], *codec["upsampling_ratios"]])
        self.codes_per_second = RATE_HZ / samples
        self._stop = [int(self.config["codec_eos_token_id"])]
        speakers = self.config["speaker_id"]
        self._voices = {name.lower(): int(token) for name, token in speakers.items()}

    def engine_args(self) -> dict[str, Any]:
        """See `ARStage.engine_args`."""
        options = {"conditioned": True, "code_predictor": True}
        return {**super().engine_args(), "additional_config": {"omnistage": options}}

    def prompt(self, hidden: Hidden, voice: str) -> list[int]:
        """See `Talker.prompt`; the codes of rows that add none stand for nothing."""
        silent = self._turns.user(hidden).sum().item() + _ROLE_TOKENS
        pad, begin = int(self.config["codec_pad_id"]), int(self.config["codec_bos_id"])
        opening = [int(self.config[name]) for name in _OPENING]
        return [*[pad] * int(silent), *opening, self._voices[voice], pad, begin]

    def positions(self, hidden: Hidden) -> torch.Tensor | None:
        """See `Talker.positions`: the Thinker's, without the gaps where others spoke."""
        if hidden.positions is None:
            return None
        theirs, begin, parts = hidden.positions, 0, []
        for start, end in _runs(self._turns.user(hidden)):
            part = theirs[start:end] - theirs[start].min() + begin
            begin = int(part.max()) + 1
            parts.append(part)
        reply = torch.arange(_ROLE_TOKENS + _PADS + 2) + begin
        return torch.cat([*parts, reply[:, None].expand(-1, 3)]).T

    def rows(self, voice: str) -> Rows:  # the voice is a code of the prompt
        """See `Talker.rows`."""
        return _Qwen3Rows(self._layers, self._width, self._edges, self._turns)

    def codes(self, news: ARResult) -> torch.Tensor:
        """See `Talker.codes`: one that was not an input has no frame, so neither has the last."""
        frames = [frame.cpu() for frame in news.frames]
        if not frames:
            return torch.empty(0, int(self.config["num_code_groups"]), dtype=torch.int64)
        return torch.stack(frames)

    def sampling(self, most: int) -> dict[str, Any]:
        """See `Talker.sampling`."""
        return {"max_tokens": most + 1, "stop_token_ids": self._stop}


class _Turns:
    """Whose words are which tokens of a prompt."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._start = int(config["im_start_token_id"])
        self._user = int(config["user_token_id"])
        self._assistant = int(config["assistant_token_id"])
        thinker = config["thinker_config"]
        names = ("audio_token_id", "image_token_id", "video_token_id")
        self._media = torch.tensor([thinker[name] for name in names])

    def user(self, hidden: Hidden) -> torch.Tensor:
        """Which tokens of the prompt are the user's `[n]`."""
        ids = hidden.ids[: hidden.prompt_tokens]
        places = torch.arange(len(ids))
        starts = torch.where(ids == self._start, places, -1).cummax(0).values.clamp_min(0)
        return ids[(starts + 1).clamp_max(len(ids) - 1)] == self._user

    def media(self, hidden: Hidden) -> torch.Tensor:
        """Which tokens of the prompt stand for pictures and sound `[n]`."""
        return torch.isin(hidden.ids[: hidden.prompt_tokens], self._media)

    def reply(self, hidden: Hidden) -> int:
        """Where the reply's turn starts, or -1."""
        ids = hidden.ids[: hidden.prompt_tokens]
        starts = (ids[:-1] == self._start) & (ids[1:] == self._assistant)
        found = starts.nonzero().flatten()
        return int(found[-1]) if len(found) else -1


class _Qwen3Rows(Rows):
    """Rows as `Qwen3OmniTalker` takes them.

    A state or an embedding; which of the two; and whether the code's embedding is added.

    Args:
        edges: the embeddings of the reply's begin, of its end, and of padding `[3, width]`.
    """

    def __init__(
        self, layers: tuple[int, ...], width: int, edges: torch.Tensor, turns: _Turns
    ) -> None:
        super().__init__(layers, width)
        self._begin, self._end, self._pad = edges[:, None]
        self._turns = turns

    def begin(self, part: Frame) -> Hidden:
        """See `Rows.begin`.

        Raises:
            InvalidRequest: see there; or the prompt does not end with the reply's turn.
        """
        hidden = super().begin(part)
        start = self._turns.reply(hidden)
        if start < 0 or hidden.prompt_tokens - start < _ROLE_TOKENS:
            raise InvalidRequest("The Thinker's prompt has no turn for a reply.", field=INPUT)
        return hidden

    def prompt(self, hidden: Hidden) -> torch.Tensor:
        """See `Rows.prompt`."""
        embeddings, states = (hidden.rows[n][: hidden.prompt_tokens] for n in self._layers)
        media = self._turns.media(hidden)[:, None]
        heard = _with_flags(torch.where(media, states, embeddings), 0)
        heard[:, -2:-1] = media
        reply = embeddings[self._turns.reply(hidden) :]
        return torch.cat(
            [
                heard[self._turns.user(hidden)],
                _with_flags(reply[:_ROLE_TOKENS], 0),
                _with_flags(torch.cat([*[self._pad] * _PADS, self._begin]), 1),
                _with_flags(reply[_ROLE_TOKENS:], 1),
            ]
        )

    def reply(self, rows: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """See `Rows.reply`."""
        return _with_flags(rows[self._layers[0]], 1)

    def end(self) -> torch.Tensor:
        """See `RowSource.end`."""
        return _with_flags(torch.cat([self._end, self._pad]), 1)


def _with_flags(embeddings: torch.Tensor, adds_code: int) -> torch.Tensor:
    flagged = torch.nn.functional.pad(embeddings, (0, 2))
    flagged[:, -1] = adds_code
    return flagged


def _runs(mask: torch.Tensor) -> list[tuple[int, int]]:
    """The longest stretches in which a mask is set, as (start, end)."""
    edges = torch.diff(mask.int(), prepend=torch.zeros(1), append=torch.zeros(1))
    starts, ends = (edges > 0).nonzero().flatten(), (edges < 0).nonzero().flatten()
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
