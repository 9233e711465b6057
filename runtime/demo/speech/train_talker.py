"""Teaches the talker: the thinker's states in, codes out, by teacher forcing.

The stream is laid out as Qwen2.5-Omni's ``generate`` lays it out. Extra heads, thrown away
afterwards, tell from the middle layers how far the sentence is; without them the talker finds
out much later where it is in the text, which runs ahead of the sound.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.nn import functional
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5OmniForConditionalGeneration,
    Qwen2_5OmniTalkerForConditionalGeneration,
)

from .checkpoint import CODEC_END, CODEC_PAD, CODEC_START
from .codec import CODES
from .data import Line, load_lines
from .fit import Recipe, fit, load_weights
from .prompts import training_request
from .tokenizer import TEXT_END, TEXT_PAD, VOICE_STARTS
from .train_thinker import answer_ids, prompt_ids
from .vocabulary import HELLO, MAX_WORDS, SORRY, WORDS

_RECIPE: Final = Recipe(1.3e-3, weight_decay=0.02)
_BATCH: Final = 12
_NOISE: Final = 0.05
_HEADS_WEIGHT: Final = 0.5
_IGNORED: Final = -100
_NO_WORD: Final = len(WORDS)
_PLACE_LAYER, _WORD_LAYER = 2, 3


@dataclass(frozen=True, slots=True)
class _Batch:
    """Lines laid out as streams.

    Conditioning [B, L, 128], codes fed back [B, L] (0: none), next codes [B, L], and for each
    next code the place of its word, the word and the word after it [3, B, L].
    """

    states: torch.Tensor
    codes: torch.Tensor
    targets: torch.Tensor
    whereabouts: torch.Tensor


class TaughtTalker(nn.Module):
    """The talker with the heads that help it to learn."""

    def __init__(self, talker: Qwen2_5OmniTalkerForConditionalGeneration) -> None:
        super().__init__()
        self.talker = talker
        width = talker.config.hidden_size
        heads = [nn.Linear(width, n) for n in (MAX_WORDS + 1, len(WORDS) + 1, len(WORDS) + 1)]
        for head in heads:
            nn.init.zeros_(head.weight)
        self.heads = nn.ModuleList(heads)

    def forward(self, batch: _Batch) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The cross-entropy of the codes, and that of each head."""
        embedded = self.talker.model.embed_tokens(batch.codes) * (batch.codes > 0)[..., None]
        output = self.talker.model(
            inputs_embeds=self.talker.thinker_to_talker_proj(batch.states + embedded),
            use_cache=False,
            output_hidden_states=True,
        )
        layers = (_PLACE_LAYER, _WORD_LAYER, _WORD_LAYER)
        helps = [
            _cross_entropy(head(output.hidden_states[layer]), wanted)
            for head, layer, wanted in zip(self.heads, layers, batch.whereabouts, strict=True)
        ]
        logits = self.talker.codec_head(output.last_hidden_state)
        return _cross_entropy(logits, batch.targets), helps

    def forget_borders(self) -> None:
        """Keeps the rows that `generate` adds to padded requests only at zero."""
        with torch.no_grad():
            self.talker.model.embed_tokens.weight[[CODEC_PAD, CODEC_START]] = 0


def train_talker(
    model: Qwen2_5OmniForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    steps: int,
) -> None:
    """Trains ``model.talker`` in place on the states of ``model.thinker``; see `fit`."""
    stream = _Stream(model, tokenizer)
    lines = sorted(_repeated(load_lines(folder)), key=lambda line: len(line.codes))
    taught = TaughtTalker(model.talker).train()

    def loss(rng: random.Random) -> tuple[torch.Tensor, dict[str, float]]:
        start = rng.randint(0, len(lines) - _BATCH)
        value, helps = taught(stream.batch(lines[start : start + _BATCH], rng))
        facts = {
            "codes": value.item(),
            **{
                name: part.item()
                for name, part in zip(("place", "word", "next"), helps, strict=True)
            },
        }
        return value + _HEADS_WEIGHT * torch.stack(helps).sum(), facts

    fit("talker", taught, loss, _RECIPE, folder, steps, after_step=taught.forget_borders)


def _repeated(lines: list[Line]) -> list[Line]:
    """The few lines of one word as often as they are asked for, and not as rare as they are."""
    return [line for line in lines for _ in range(_repeats(line))]


def _repeats(line: Line) -> int:
    if line.words in ((HELLO,), (SORRY,)):
        return 250
    return 8 if len(line.words) == 1 else 1


def load_talker(talker: Qwen2_5OmniTalkerForConditionalGeneration, folder: Path) -> None:
    """Reads the trained weights, without the heads."""
    load_weights(TaughtTalker(talker), folder / "talker.safetensors")


class _Stream:
    """Lays lines out as the talker meets them."""

    def __init__(
        self, model: Qwen2_5OmniForConditionalGeneration, tokenizer: PreTrainedTokenizerFast
    ) -> None:
        self._thinker = model.thinker.eval()
        self._tokenizer = tokenizer
        self._starts = [int(tokenizer.convert_tokens_to_ids(t)) for t in VOICE_STARTS.values()]
        self._end = self._embedding(TEXT_END)
        self._pad = self._embedding(TEXT_PAD)

    @torch.no_grad()
    def batch(self, lines: list[Line], rng: random.Random) -> _Batch:
        """Asks for the lines in random ways and voices; shorter rows end in nothing."""
        rows = []
        for line in lines:
            request = training_request(line.words, rng)
            prompt = prompt_ids(request, self._tokenizer)
            states = self._thought(prompt + answer_ids(request, self._tokenizer))
            rows.append((self._conditioning(states, len(prompt), len(line.codes), rng), line))
        longest = max(len(states) for states, _ in rows)
        shape = (len(rows), longest)
        batch = _Batch(
            torch.zeros(*shape, rows[0][0].shape[1]),
            torch.zeros(shape, dtype=torch.long),
            torch.full(shape, _IGNORED),
            torch.full((3, *shape), _IGNORED),
        )
        for index, (states, line) in enumerate(rows):
            first, last = len(states) - len(line.codes), len(states)
            batch.states[index, :last] = states
            batch.codes[index, first:last] = _noisy(line.codes)
            batch.targets[index, first - 1 : last - 1] = line.codes
            batch.targets[index, last - 1] = CODEC_END
            batch.whereabouts[:, index, first - 1 : last] = _whereabouts(line)
        return batch

    def _thought(self, ids: list[int]) -> torch.Tensor:
        """The sum of first and last layer [L, 128], which is what the talker reads."""
        embedded = self._thinker.model.embed_tokens(torch.tensor([ids]))
        states = self._thinker.model(inputs_embeds=embedded, use_cache=False).last_hidden_state
        return (embedded + states)[0]

    def _conditioning(
        self, states: torch.Tensor, prompt: int, codes: int, rng: random.Random
    ) -> torch.Tensor:
        """Prompt, start of speech and first word; then one state for each code fed back."""
        start = self._thinker.model.embed_tokens(torch.tensor([rng.choice(self._starts)]))
        answer = [*states[prompt + 1 :], self._end]
        answer += [self._pad] * max(0, codes - len(answer))
        parts = [states[:prompt], start, states[prompt : prompt + 1], torch.stack(answer[:codes])]
        return torch.cat(parts)

    def _embedding(self, token: str) -> torch.Tensor:
        index = torch.tensor(self._tokenizer.convert_tokens_to_ids(token))
        return self._thinker.model.embed_tokens(index).detach()


def _noisy(codes: torch.Tensor) -> torch.Tensor:
    """Some codes replaced, so that the talker forgives its own slips."""
    wrong = torch.rand(len(codes)) < _NOISE
    return torch.where(wrong, torch.randint(1, CODES + 1, codes.shape), codes)


def _whereabouts(line: Line) -> torch.Tensor:
    """Place, word and next word for each code and the end [3, N + 1]."""
    numbers = torch.tensor([*(WORDS.index(word) for word in line.words), _NO_WORD, _NO_WORD])
    places = torch.cat([line.places, torch.tensor([len(line.words)])])
    return torch.stack([places, numbers[places], numbers[places + 1]])


def _cross_entropy(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=_IGNORED)
