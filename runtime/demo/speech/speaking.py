"""Asks a checkpoint to speak, through transformers' own ``generate``.

Knows nothing of the runtime, nor of scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoTokenizer

from .checkpoint import CHECKPOINT, CODEC_END, CODEC_PAD, GUIDANCE, STEPS, load

_MOST_TOKENS: Final = 24
_MOST_CODES: Final = 400


@dataclass(frozen=True, slots=True)
class Answer:
    """What was written, its codes [N], and the sound [480 N] at 24 kHz."""

    text: str
    codes: torch.Tensor
    wave: torch.Tensor


class Speaker:
    """A loaded checkpoint."""

    def __init__(self, folder: Path = CHECKPOINT) -> None:
        self._model = load(folder)
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._codes = torch.zeros(0)
        self._model.token2wav.register_forward_pre_hook(self._note_codes)

    @property
    def voices(self) -> list[str]:
        """The names that `answer` takes."""
        return list(self._model.speaker_map)

    def answer(self, messages: Sequence[dict[str, str]], voice: str, seed: int) -> Answer:
        """The model's answer to a conversation, with the sampling that transformers defaults to."""
        text = self._tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
        ids = self._tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        torch.manual_seed(seed)
        tokens, wave = self._model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            speaker=voice,
            thinker_do_sample=False,
            thinker_max_new_tokens=_MOST_TOKENS,
            talker_max_new_tokens=_MOST_CODES,
            talker_eos_token_id=[CODEC_PAD, CODEC_END],
            token2wav_num_steps=STEPS,
            token2wav_guidance_scale=GUIDANCE,
        )
        written = self._tokenizer.decode(tokens[0, ids.shape[1] :], skip_special_tokens=True)
        return Answer(written, self._codes[0], wave.float())

    def _note_codes(self, _module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        """`generate` returns the sound alone; its codes pass here."""
        self._codes = args[0]
