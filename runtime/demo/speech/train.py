"""Trains the demo voice from nothing: ``python -m omnistage.runtime.demo.speech.train --out DIR``.

Owns the order of the stages and what is kept between runs. A run that was cut short goes on
where it was. Stages may run at the same time in processes of their own (``--stage``): the
talker needs the thinker's weights, every stage the data of ``--stage data``.
``--stage checkpoint`` puts together what there is, as ``DIR/checkpoint``.
"""

from __future__ import annotations

import argparse
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch

from .checkpoint import build, round_to_bf16, save
from .data import load_utterances, make_lines
from .fit import load_weights
from .recogniser import Recogniser
from .speakers import speakers
from .tokenizer import build_tokenizer
from .train_dit import train_dit
from .train_recogniser import train_recogniser
from .train_talker import load_talker, train_talker
from .train_thinker import train_thinker
from .train_vocoder import train_vocoder

_SEED: Final = 7


class Training:
    """A working directory and the model in it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        torch.manual_seed(_SEED)
        self._tokenizer = build_tokenizer()
        self._model = build(self._tokenizer)
        self._dit = self._model.token2wav.code2wav_dit_model
        self._vocoder = self._model.token2wav.code2wav_bigvgan_model

    def data(self, _steps: int) -> None:
        """Codes, sound and the codebook; made once."""
        if not (self._folder / "codebook.pt").exists():
            make_lines(self._folder, random.Random(_SEED))

    def recogniser(self, steps: int) -> None:
        """Who judges; independent of all else."""
        train_recogniser(Recogniser(), self._folder, steps)

    def thinker(self, steps: int) -> None:
        """What to say."""
        train_thinker(self._model.thinker, self._tokenizer, self._folder, steps)

    def vocoder(self, steps: int) -> None:
        """Spectrograms to sound."""
        train_vocoder(self._vocoder, self._folder, steps)

    def dit(self, steps: int) -> None:
        """Codes to spectrograms."""
        train_dit(self._dit, self._folder, steps)

    def talker(self, steps: int) -> None:
        """Thoughts to codes; the thinker is what will be saved, and stays as it is."""
        load_weights(self._model.thinker, self._folder / "thinker.safetensors")
        round_to_bf16(self._model.thinker)
        train_talker(self._model, self._tokenizer, self._folder, steps)

    def checkpoint(self, _steps: int) -> None:
        """The result, from the newest weights of every stage."""
        load_weights(self._model.thinker, self._folder / "thinker.safetensors")
        load_weights(self._vocoder, self._folder / "vocoder.safetensors")
        load_weights(self._dit, self._folder / "dit.safetensors")
        load_talker(self._model.talker, self._folder)
        voices = speakers(load_utterances(self._folder), self._tokenizer)
        done = self._folder / "checkpoint"
        shutil.rmtree(done, ignore_errors=True)
        save(self._model, self._tokenizer, voices, done)
        print(f"checkpoint: {done}")


_Stage = Callable[[Training, int], None]

STAGES: Final[dict[str, tuple[_Stage, int]]] = {
    "data": (Training.data, 0),
    "recogniser": (Training.recogniser, 1400),
    "thinker": (Training.thinker, 1250),
    "vocoder": (Training.vocoder, 3000),
    "dit": (Training.dit, 1600),
    "talker": (Training.talker, 1400),
    "checkpoint": (Training.checkpoint, 0),
}
"""The stages in order, and the steps that each takes."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="working directory")
    parser.add_argument("--stage", choices=tuple(STAGES), action="append", help="only this one")
    parser.add_argument("--steps", type=int, help="of each stage, instead of its own")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in arguments.stage or STAGES:
        run, steps = STAGES[name]
        run(Training(arguments.out), arguments.steps or steps)


if __name__ == "__main__":
    main()
