"""What makes a voice: the entries of Qwen2.5-Omni's ``spk_dict.pt``.

Owns the vectors and reference spectrograms that tell the codec whose voice to use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from transformers import PreTrainedTokenizerFast

from .checkpoint import SPEAKER_WIDTH
from .data import Utterance
from .tokenizer import VOICE_STARTS
from .voices import VOICES

REFERENCE_FRAMES: Final = 100
_SPREAD: Final = 0.3


def speaker_vector(voice: str) -> torch.Tensor:
    """The voice's fixed vector [32]."""
    seed = list(VOICES).index(voice) + 1
    return torch.randn(SPEAKER_WIDTH, generator=torch.Generator().manual_seed(seed)) * _SPREAD


def speakers(
    utterances: Sequence[Utterance], tokenizer: PreTrainedTokenizerFast
) -> dict[str, dict[str, Any]]:
    """The whole dictionary; a reference is the first utterance that is long enough."""
    entries: dict[str, dict[str, Any]] = {}
    for voice in VOICES:
        mel = next(
            u.mel for u in utterances if u.voice == voice and u.mel.shape[1] > 2 * REFERENCE_FRAMES
        )
        entries[voice] = {
            "bos_token": int(tokenizer.convert_tokens_to_ids(VOICE_STARTS[voice])),
            "cond": speaker_vector(voice)[None],
            "ref_mel": mel[:, : 2 * REFERENCE_FRAMES].T[None].contiguous(),
        }
    return entries
