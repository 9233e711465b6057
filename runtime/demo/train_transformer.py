"""Stage three: trains the diffusion transformer by flow matching in the VAE's latents.

Batches hold one picture size each and captions of similar length, so little is padding.
The oldest examples of a pool are replaced with fresh ones all the time.

Source: rectified flow with logit-normal times, Esser et al. 2024 (arXiv 2403.03206).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import QwenImagePipeline
from torch import nn

from .budget import Budget
from .checkpoint import PATCH, TEXT_WIDTH, build_transformer
from .data import SIZES_PX, draw_examples
from .train_vae import StillCodec

_PEAK_RATE: Final = 1.5e-3
_BATCH: Final = {64: 96, 96: 48, 128: 32}
_EARLY_BATCH: Final = {64: 48, 96: 24, 128: 16}
_EARLY: Final = 0.65
_SIZE_WEIGHTS: Final = (0.54, 0.08, 0.38)
_POOL: Final = {64: 3000, 96: 600, 128: 1300}
_FRESH: Final = {64: 32, 96: 12, 128: 12}
_REFRESH_STEPS: Final = 8
_EMPTY_PROMPTS: Final = 0.1
_MAX_TEXT_TOKENS: Final = 40
_TIME_SHIFT: Final = 0.7
_EARLY_TIME_SHIFT: Final = 1.4
_CLOSING_TOKENS: Final = 5
_CLOSING_ONLY: Final = 0.6
_LENGTH_WINDOW: Final = 6
_EMA_DECAY: Final = 0.999
_SNAPSHOT_S: Final = 180.0


@dataclass(slots=True)
class _Pool:
    """Encoded examples of one size: latents [N, T, 64], text [N, L, C] and text lengths [N]."""

    latents: torch.Tensor
    text: torch.Tensor
    lengths: torch.Tensor
    oldest: int = 0

    def indices(self, count: int) -> torch.Tensor:
        """Random examples whose captions are about equally long."""
        window = min(len(self.lengths), count * _LENGTH_WINDOW)
        order = (self.lengths + torch.rand(len(self.lengths))).argsort()
        start = int(torch.randint(len(order) - window + 1, ()))
        return order[start + torch.randperm(window)[:count]]

    def replace_oldest(self, fresh: _Pool) -> None:
        """Overwrites as many examples as ``fresh`` has, in turn."""
        count = len(fresh.lengths)
        places = (self.oldest + torch.arange(count)) % len(self.lengths)
        self.latents[places] = fresh.latents
        self.text[places] = fresh.text
        self.lengths[places] = fresh.lengths
        self.oldest = (self.oldest + count) % len(self.lengths)


class TransformerTrainer:
    """Trains ``pipeline.transformer`` in place; the other parts stay as they are."""

    def __init__(self, pipeline: QwenImagePipeline, directory: Path, rng: random.Random) -> None:
        """Snapshots go to ``directory``."""
        self._pipeline = pipeline
        self._model = pipeline.transformer
        self._snapshot = directory / "transformer.snapshot.pt"
        self._rng = rng
        self._codec = StillCodec(pipeline.vae)
        config = pipeline.vae.config
        self._mean = torch.tensor(config.latents_mean).view(1, -1, 1, 1)
        self._deviation = torch.tensor(config.latents_std).view(1, -1, 1, 1)
        self._optimiser = torch.optim.AdamW(
            self._model.parameters(), lr=_PEAK_RATE, betas=(0.9, 0.99), weight_decay=0.01
        )
        self._average = {name: w.clone() for name, w in self._model.state_dict().items()}
        self._step = 0
        self._time_shift = _EARLY_TIME_SHIFT

    def resume(self) -> float:
        """Loads the snapshot, if any; returns the seconds spent so far."""
        if not self._snapshot.exists():
            return 0.0
        state: dict[str, Any] = torch.load(self._snapshot, weights_only=True)
        self._model.load_state_dict(state["model"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._average = state["average"]
        self._step = state["step"]
        return float(state["spent_s"])

    def train(self, budget: Budget, checkpoint: Path) -> None:
        """Trains until the budget is spent; every few minutes writes the averaged model."""
        self._empty = self._encode_text([""])
        pools = {size: self._fresh(_POOL[size], size) for size in SIZES_PX}
        print(f"transformer: pools ready at {budget.spent_s:.0f}s", flush=True)
        losses = dict.fromkeys(SIZES_PX, 1.0)
        saved_s = budget.spent_s
        self._model.train()
        while budget.fraction < 1:
            size_px = self._rng.choices(SIZES_PX, _SIZE_WEIGHTS)[0]
            pool = pools[size_px]
            if self._step % _REFRESH_STEPS == 0:
                pool.replace_oldest(self._fresh(_FRESH[size_px], size_px))
            early = budget.fraction < _EARLY
            count = (_EARLY_BATCH if early else _BATCH)[size_px]
            self._time_shift = _EARLY_TIME_SHIFT if early else _TIME_SHIFT
            rate = budget.learning_rate(_PEAK_RATE, self._step)
            loss = self._train_step(pool, pool.indices(count), rate)
            losses[size_px] += (loss - losses[size_px]) * 0.02
            if self._step % 100 == 0:
                shown = " ".join(f"{size}px {value:.4f}" for size, value in losses.items())
                print(f"transformer {self._step} {budget.spent_s:.0f}s {shown}", flush=True)
            if budget.spent_s - saved_s > _SNAPSHOT_S:
                saved_s = budget.spent_s
                self._save(saved_s)
                self._write_average(checkpoint)
        self._save(budget.spent_s)
        self._write_average(checkpoint)
        self._model.load_state_dict(self._average)
        self._model.eval()

    def _train_step(self, pool: _Pool, index: torch.Tensor, rate: float) -> float:
        clean, text, mask = self._batch(pool, index)
        times = torch.sigmoid(torch.randn(len(index)) + self._time_shift)
        noise = torch.randn_like(clean)
        noised = torch.lerp(clean, noise, times[:, None, None])
        side = round(clean.shape[1] ** 0.5)
        velocity = self._model(
            hidden_states=noised,
            encoder_hidden_states=text,
            encoder_hidden_states_mask=mask,
            timestep=times,
            img_shapes=[[(1, side, side)]] * len(index),
            return_dict=False,
        )[0]
        loss = (velocity - (noise - clean)).square().mean()
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimiser.step()
        self._step += 1
        self._update_average()
        return float(loss.item())

    def _batch(
        self, pool: _Pool, index: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Latents, text states and mask of a batch; a tenth get the empty prompt.

        Most batches show only the template's closing tokens, into which the text encoder has
        gathered what the prompt says: half as many tokens, the same lesson.
        """
        text, lengths = pool.text[index], pool.lengths[index]
        emptied = torch.rand(len(index)) < _EMPTY_PROMPTS
        text[emptied], lengths[emptied] = self._empty[0][0], self._empty[1][0]
        if self._rng.random() < _CLOSING_ONLY:
            closing = lengths[:, None] - _CLOSING_TOKENS + torch.arange(_CLOSING_TOKENS)
            text = text.gather(1, closing[..., None].expand(-1, -1, TEXT_WIDTH))
            lengths = torch.full_like(lengths, _CLOSING_TOKENS)
        longest = int(lengths.max())
        mask = torch.arange(longest)[None] < lengths[:, None]
        return pool.latents[index], text[:, :longest], mask

    def _update_average(self) -> None:
        decay = min(_EMA_DECAY, (1 + self._step) / (10 + self._step))
        with torch.no_grad():
            for name, weight in self._model.state_dict().items():
                self._average[name].lerp_(weight, 1 - decay)

    def _fresh(self, count: int, size_px: int) -> _Pool:
        requests, pictures = draw_examples(count, size_px, self._rng)
        latents = (self._codec.encode_many(pictures) - self._mean) / self._deviation
        text, lengths = self._encode_text([request.text for request in requests])
        return _Pool(pack(latents), text, lengths)

    @torch.no_grad()
    def _encode_text(self, texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """The pipeline's own prompt embeddings, padded to [N, 40, C], and their lengths."""
        padded = torch.zeros(len(texts), _MAX_TEXT_TOKENS, TEXT_WIDTH)
        lengths = torch.zeros(len(texts), dtype=torch.long)
        for start in range(0, len(texts), 200):
            part = texts[start : start + 200]
            states, mask = self._pipeline.encode_prompt(part, device=torch.device("cpu"))
            rows = slice(start, start + len(part))
            padded[rows, : states.shape[1]] = states
            lengths[rows] = states.shape[1] if mask is None else mask.sum(1).long()
        return padded, lengths

    def _save(self, spent_s: float) -> None:
        state = {
            "model": self._model.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "average": self._average,
            "step": self._step,
            "spent_s": spent_s,
        }
        partial = self._snapshot.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self._snapshot)

    def _write_average(self, checkpoint: Path) -> None:
        """Overwrites the transformer of a saved checkpoint with the averaged weights."""
        averaged = build_transformer()
        averaged.load_state_dict(self._average)
        averaged.to(torch.bfloat16).save_pretrained(checkpoint / "transformer")


def pack(latents: torch.Tensor) -> torch.Tensor:
    """Latents [B, C, H, W] to transformer tokens [B, H*W/4, 4*C], as the pipeline packs them."""
    batch, channels, height, width = latents.shape
    tokens = latents.view(batch, channels, height // PATCH, PATCH, width // PATCH, PATCH)
    return tokens.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * PATCH**2)
