"""Trains the demo checkpoint from nothing: ``python -m omnistage.runtime.demo.train --out DIR``.

Owns the order of the stages and what is kept between runs. A run that was cut short goes on
where it was: finished stages are read back from ``DIR``, the transformer from its snapshot.
``DIR/checkpoint`` always holds the newest complete model in diffusers layout.

Seeds are fixed, but stages end by the clock, so weights differ a little between machines.
"""

from __future__ import annotations

import argparse
import copy
import random
from pathlib import Path
from typing import Final

import torch
from diffusers import AutoencoderKLQwenImage, QwenImagePipeline
from transformers import Qwen2_5_VLForConditionalGeneration

from .budget import Budget
from .checkpoint import build_pipeline, save_bf16
from .train_decoder import train_decoder
from .train_text import train_text_encoder
from .train_transformer import TransformerTrainer
from .train_vae import finish_vae, train_vae

_SEED: Final = 7
_SHARES: Final = {"vae": 0.28, "text": 0.09, "transformer": 0.54, "decoder": 0.09}


def train(out: Path, minutes: float) -> Path:
    """Runs every stage that is not done yet; returns the checkpoint's directory."""
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(_SEED)
    pipeline = build_pipeline()
    _vae_stage(pipeline, out / "vae", minutes * _SHARES["vae"])
    _text_stage(pipeline, out / "text_encoder", minutes * _SHARES["text"])
    checkpoint = out / "checkpoint"
    if not checkpoint.exists():
        save_bf16(copy.deepcopy(pipeline), checkpoint)
    _as_served(pipeline)
    trainer = TransformerTrainer(pipeline, out, random.Random(_SEED + 2))
    trainer.train(Budget(minutes * _SHARES["transformer"], trainer.resume()), checkpoint)
    train_decoder(pipeline, Budget(minutes * _SHARES["decoder"]), random.Random(_SEED + 3))
    pipeline.vae.to(torch.bfloat16).save_pretrained(checkpoint / "vae")
    return checkpoint


def _vae_stage(pipeline: QwenImagePipeline, done: Path, minutes: float) -> None:
    if done.exists():
        pipeline.vae = AutoencoderKLQwenImage.from_pretrained(done).eval()
        return
    rng = random.Random(_SEED)
    train_vae(pipeline.vae, Budget(minutes), rng)
    finish_vae(pipeline.vae, rng)
    pipeline.vae.save_pretrained(done)


def _text_stage(pipeline: QwenImagePipeline, done: Path, minutes: float) -> None:
    if done.exists():
        pipeline.text_encoder = Qwen2_5_VLForConditionalGeneration.from_pretrained(done).eval()
        return
    train_text_encoder(pipeline, Budget(minutes), random.Random(_SEED + 1))
    pipeline.text_encoder.save_pretrained(done)


def _as_served(pipeline: QwenImagePipeline) -> None:
    """Rounds the frozen parts to bfloat16, as they will be saved, and computes in float32."""
    for part in (pipeline.vae, pipeline.text_encoder):
        with torch.no_grad():
            for parameter in part.parameters():
                parameter.copy_(parameter.to(torch.bfloat16).float())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="working directory")
    parser.add_argument("--minutes", type=float, default=150.0, help="time for all stages together")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"checkpoint: {train(arguments.out, arguments.minutes)}")


if __name__ == "__main__":
    main()
