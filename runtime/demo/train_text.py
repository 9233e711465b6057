"""Stage two: teaches the text encoder to parse requests, then leaves it frozen.

Linear heads read every attribute of the scene from each of the template's closing tokens,
which see the whole prompt; the heads are thrown away afterwards. So the transformer finds
the same plain facts at the same place, whatever the word order.
"""

from __future__ import annotations

import random
from typing import Final

import torch
from diffusers import QwenImagePipeline
from torch import nn
from torch.nn import functional

from .budget import Budget
from .captions import COLOURS, MAX_COUNT, POSITIONS, SHAPES, SIZES, Request, training_request
from .checkpoint import TEXT_WIDTH

_PEAK_RATE: Final = 2e-3
_BATCH: Final = 96
_SUFFIX_TOKENS: Final = 5
_IGNORED: Final = -100
_EMPTY_PROMPTS: Final = 0.02
_CLASSES: Final = {
    "shape": SHAPES,
    "colour": (*COLOURS, ""),
    "background": (*COLOURS, ""),
    "count": tuple(range(1, MAX_COUNT + 1)),
    "size": SIZES,
    "position": POSITIONS,
}


def train_text_encoder(pipeline: QwenImagePipeline, budget: Budget, rng: random.Random) -> None:
    """Trains ``pipeline.text_encoder`` in place until the budget is spent."""
    encoder = pipeline.text_encoder.train()
    heads = nn.ModuleDict({name: nn.Linear(TEXT_WIDTH, len(c)) for name, c in _CLASSES.items()})
    parameters = [*encoder.model.language_model.parameters(), *heads.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=_PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    step, accuracy = 0, 0.0
    while budget.fraction < 1:
        for group in optimiser.param_groups:
            group["lr"] = budget.learning_rate(_PEAK_RATE, step)
        requests = [training_request(rng) for _ in range(_BATCH)]
        texts = ["" if rng.random() < _EMPTY_PROMPTS else request.text for request in requests]
        states = _closing_states(pipeline, texts)
        loss, right = _score(heads, states, requests, texts)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        accuracy += (right - accuracy) * 0.02
        step += 1
        if step % 50 == 0:
            print(
                f"text {step} {budget.spent_s:.0f}s loss {loss.item():.4f} right {accuracy:.4f}",
                flush=True,
            )
    encoder.eval().requires_grad_(False)


def _closing_states(pipeline: QwenImagePipeline, texts: list[str]) -> torch.Tensor:
    """States of the closing tokens [B, 5, C] of the real prompt template."""
    prompts = [pipeline.prompt_template_encode.format(text) for text in texts]
    batch = pipeline.tokenizer(prompts, padding=True, return_tensors="pt")
    states = pipeline.text_encoder.model(
        input_ids=batch.input_ids, attention_mask=batch.attention_mask
    ).last_hidden_state
    ends = batch.attention_mask.sum(1, keepdim=True)
    places = ends - torch.arange(_SUFFIX_TOKENS, 0, -1)
    return states[torch.arange(len(texts))[:, None], places]


def _score(
    heads: nn.ModuleDict, states: torch.Tensor, requests: list[Request], texts: list[str]
) -> tuple[torch.Tensor, float]:
    """The summed cross-entropy, and the share of prompts whose last token has all right."""
    loss = torch.zeros(())
    right = torch.ones(len(requests), dtype=torch.bool)
    for name, classes in _CLASSES.items():
        answers = [_answer(name, *pair) for pair in zip(requests, texts, strict=True)]
        target = torch.tensor(
            [_IGNORED if answer is None else classes.index(answer) for answer in answers]
        )
        logits = heads[name](states)
        loss = loss + functional.cross_entropy(
            logits.flatten(0, 1), target.repeat_interleave(_SUFFIX_TOKENS), ignore_index=_IGNORED
        )
        right &= (logits[:, -1].argmax(-1) == target) | (target == _IGNORED)
    return loss, right.float().mean().item()


def _answer(name: str, request: Request, text: str) -> str | int | None:
    """The true value of an attribute; empty if the words leave it open, None if unscored."""
    open_to_choice = name in ("colour", "background")
    if not text:
        return "" if open_to_choice else None
    value: str | int = getattr(request.scene, name)
    return "" if open_to_choice and name in request.unsaid else value
