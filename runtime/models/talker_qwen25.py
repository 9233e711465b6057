"""Qwen2.5-Omni's Talker: 50 codes a second, one codebook.

Each of its tokens is the sum of two things: a code's embedding, and a row made of the Thinker's
embedding and last hidden state of a token. Over the prompt there is no code; after the reply
comes the embedding of its end, and then, for ever, that of padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..protocol.errors import ModelLoadFailed
from .ar_stage import ARResult, SubConfig
from .talker import Hidden, Rows, Talker
from .voices import SPEAKERS
from .weight_rows import weight_rows

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

_EMBEDDING = "thinker.model.embed_tokens.weight"
_MEDIA = ("audio_token_index", "image_token_index", "video_token_index")


class Qwen25Talker(Talker):
    """See `Talker`."""

    sub_config = SubConfig("talker_config", "Qwen2_5OmniTalker", counted=True)
    codes_per_second = 50.0

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Read the embeddings of the voices and of the reply's end.

        Raises:
            ModelLoadFailed: the checkpoint lacks them.
        """
        super().__init__(checkpoint)
        config = self.config
        voices = _voice_tokens(checkpoint)
        specials = [config["tts_text_end_token_id"], config["tts_text_pad_token_id"]]
        embeddings = weight_rows(checkpoint, _EMBEDDING, [*specials, *voices.values()])
        self._end = embeddings[: len(specials)]
        self._voices = dict(zip(voices, embeddings[len(specials) :, None], strict=True))
        self._media = torch.tensor([checkpoint.index["thinker_config"][name] for name in _MEDIA])
        self._stop = [config["tts_codec_end_token_id"], config["tts_codec_pad_token_id"]]

    def prompt(self, hidden: Hidden, voice: str) -> list[int]:
        """See `Talker.prompt`: no code but for the voice's row and the reply's first."""
        names = ("tts_codec_mask_token_id", "tts_codec_pad_token_id", "tts_codec_start_token_id")
        mask, pad, start = (int(self.config[name]) for name in names)
        return [*[mask] * hidden.prompt_tokens, pad, start]

    def rows(self, voice: str) -> Rows:
        """See `Talker.rows`."""
        return _Qwen25Rows(self._layers, self._width, self._voices[voice], self._end, self._media)

    def codes(self, news: ARResult) -> torch.Tensor:
        """See `Talker.codes`."""
        return torch.tensor([t for t in news.token_ids if t not in self._stop], dtype=torch.int64)

    def sampling(self, most: int) -> dict[str, Any]:
        """See `Talker.sampling`."""
        return {"max_tokens": most, "stop_token_ids": self._stop}


class _Qwen25Rows(Rows):
    """Rows as `Qwen2_5OmniTalker` takes them: the sum, and whether the code is added to it.

    Args:
        voice: the embedding of its token `[1, width]`.
        end: the embeddings of the reply's end and of padding `[2, width]`.
        media: tokens that stand for pictures and sound; they have no embedding.
    """

    def __init__(
        self,
        layers: tuple[int, ...],
        width: int,
        voice: torch.Tensor,
        end: torch.Tensor,
        media: torch.Tensor,
    ) -> None:
        super().__init__(layers, width)
        self._voice = voice
        self._end = end
        self._media = media
        self._in_prompt = True

    def prompt(self, hidden: Hidden) -> torch.Tensor:
        """See `Rows.prompt`."""
        count = hidden.prompt_tokens
        embeddings, states = (hidden.rows[layer][:count] for layer in self._layers)
        is_media = torch.isin(hidden.ids[:count], self._media)
        embeddings = embeddings.masked_fill(is_media[:, None], 0)
        return _with_flag(torch.cat([embeddings + states, self._voice]), 0)

    def reply(self, rows: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """See `Rows.reply`."""
        embeddings, states = (rows[layer] for layer in self._layers)
        return self._after_voice(embeddings + states)

    def end(self) -> torch.Tensor:
        """See `RowSource.end`."""
        return self._after_voice(self._end)

    def _after_voice(self, rows: torch.Tensor) -> torch.Tensor:
        """The first row after the voice's still belongs to the prompt."""
        flagged = _with_flag(rows, 1)
        if self._in_prompt and len(rows):
            flagged[0, -1] = 0
            self._in_prompt = False
        return flagged


def _with_flag(rows: torch.Tensor, flag: int) -> torch.Tensor:
    return torch.nn.functional.pad(rows, (0, 1), value=float(flag))


def _voice_tokens(checkpoint: Checkpoint) -> dict[str, int]:
    """The text token by which a reply in each voice begins, by the voice's name in lower case."""
    path = checkpoint.folder / SPEAKERS
    try:
        speakers = torch.load(path, map_location="cpu", weights_only=True)
        return {name.lower(): int(voice["bos_token"]) for name, voice in speakers.items()}
    except Exception as error:  # whatever torch's unpickler makes of a file that is none
        raise ModelLoadFailed(f"The file {path} is corrupt: {error}", field=SPEAKERS) from error
