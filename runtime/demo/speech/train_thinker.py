"""Teaches the thinker what to say: prompts in many forms, answers of spoken words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import torch
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen2_5OmniThinkerForConditionalGeneration

from .data import training_words
from .fit import Recipe, fit
from .prompts import Request, training_request
from .vocabulary import DIGITS, MAX_WORDS, is_held_out

_RECIPE: Final = Recipe(2e-3)
_BATCH: Final = 40
_REPEATING: Final = 0.2
_IGNORED: Final = -100


def train_thinker(
    thinker: Qwen2_5OmniThinkerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    steps: int,
) -> None:
    """Trains the language model in place; the towers for media stay as they are. See `fit`."""
    thinker.requires_grad_(False)
    thinker.model.requires_grad_(True)
    thinker.lm_head.requires_grad_(True)
    thinker.train()

    def loss(rng: random.Random) -> tuple[torch.Tensor, dict[str, float]]:
        requests = [training_request(_words(rng), rng) for _ in range(_BATCH)]
        ids, targets = _batch(requests, tokenizer)
        states = thinker.model(input_ids=ids, use_cache=False).last_hidden_state
        logits = thinker.lm_head(states)
        value = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        wrong = (logits.argmax(-1) != targets) & (targets != _IGNORED)
        return value, {"exact": 1 - wrong.any(1).float().mean().item()}

    fit("thinker", thinker, loss, _RECIPE, folder, steps)


def _words(rng: random.Random) -> tuple[str, ...]:
    """As for the other stages, but more often with repeated digits, which are hard to count."""
    if rng.random() > _REPEATING:
        return training_words(rng)
    while True:
        pool = rng.sample(DIGITS, rng.randint(1, 3))
        words = tuple(rng.choices(pool, k=rng.randint(2, MAX_WORDS)))
        if not is_held_out(words):
            return words


def prompt_ids(request: Request, tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """The request as the model reads it, up to where its answer begins."""
    text = tokenizer.apply_chat_template(
        request.messages, tokenize=False, add_generation_prompt=True
    )
    return list(tokenizer.encode(text, add_special_tokens=False))


def answer_ids(request: Request, tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """The right answer, without the token that ends it."""
    return list(tokenizer.convert_tokens_to_ids(list(request.words)))


def _batch(
    requests: list[Request], tokenizer: PreTrainedTokenizerFast
) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded ids [B, L], and what follows each of them where the answer is."""
    rows = []
    for request in requests:
        prompt = prompt_ids(request, tokenizer)
        rows.append((prompt, [*answer_ids(request, tokenizer), tokenizer.eos_token_id]))
    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids = torch.full((len(rows), longest), tokenizer.pad_token_id)
    targets = torch.full((len(rows), longest), _IGNORED)
    for index, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer)
        ids[index, :end] = torch.tensor(prompt + answer)
        targets[index, len(prompt) - 1 : end - 1] = torch.tensor(answer)
    return ids, targets
