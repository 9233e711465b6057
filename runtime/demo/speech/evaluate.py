"""Scores a checkpoint: ``python -m omnistage.runtime.demo.speech.evaluate [--checkpoint DIR]``.

Asks for sequences of words that training never saw and lets the recogniser, which knows other
people only, hear the answers, whose sound the runtime's own engine makes. As a control it also
hears the same codes in random order. Exits with status 1 if a score is below its target.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import torch

from .checkpoint import CHECKPOINT
from .pitch import pitch_hz
from .prompts import Request, greeting, held_out_request, other
from .recogniser import hear, load_recogniser, mistakes
from .serving import ServedCodec
from .speaking import Speaker
from .vocabulary import DIGITS, HELLO, SORRY
from .voices import PITCH_BORDER_HZ, VOICES

DIGITS_TARGET: Final = 0.97
VOICES_TARGET: Final = 0.97
CONTROL_LIMIT: Final = 0.4
_SEED: Final = 2024
_SMALL_TALK: Final = 5


@dataclass(frozen=True, slots=True)
class Trial:
    """One answer: what was asked for, written and heard, and what is heard of shuffled codes."""

    voice: str
    prompt: str
    wanted: tuple[str, ...]
    written: str
    heard: tuple[str, ...]
    shuffled: tuple[str, ...]
    pitch_hz: float

    @property
    def of_digits(self) -> bool:
        """Whether digits alone were asked for."""
        return set(self.wanted) <= set(DIGITS)

    @property
    def right_voice(self) -> bool:
        """Whether the pitch is on the voice's side of the border."""
        return (self.pitch_hz > PITCH_BORDER_HZ) == (VOICES[self.voice].pitch_hz > PITCH_BORDER_HZ)


@dataclass(frozen=True, slots=True)
class Score:
    """Shares, 0..1, over the trials of one voice or of all."""

    trials: int
    digits: int
    digits_right: float
    words_right: float
    answers_right: float
    texts_right: float
    voice_right: float
    control_right: float
    pitch_hz: float

    @property
    def good(self) -> bool:
        """Whether all targets are reached."""
        return (
            self.digits_right >= DIGITS_TARGET
            and self.voice_right >= VOICES_TARGET
            and self.control_right <= CONTROL_LIMIT
        )


def requests_for(count: int, seed: int) -> list[Request]:
    """``count`` unseen sequences, then greetings and small talk."""
    rng = random.Random(seed)
    requests = [held_out_request(rng) for _ in range(count)]
    requests += [Request(greeting(rng), (HELLO,)) for _ in range(min(count, _SMALL_TALK))]
    return requests + [Request(other(rng), (SORRY,)) for _ in range(min(count, _SMALL_TALK))]


class Examiner:
    """Asks a checkpoint, and hears what it answers."""

    def __init__(self, folder: Path) -> None:
        self.speaker = Speaker(folder)
        self._codec = ServedCodec(folder)
        self._recogniser = load_recogniser()

    def attempt(self, request: Request, voice: str, seed: int) -> Trial:
        """One answer, heard."""
        answer = self.speaker.answer(request.messages, voice, seed)
        order = torch.randperm(len(answer.codes), generator=torch.Generator().manual_seed(seed))
        wave = self._codec.sound(answer.codes, voice, seed)
        noise = self._codec.sound(answer.codes[order], voice, seed)
        return Trial(
            voice,
            request.text,
            request.words,
            answer.text,
            hear(self._recogniser, wave),
            hear(self._recogniser, noise),
            pitch_hz(wave),
        )


def score(trials: Sequence[Trial]) -> Score:
    """The shares of what is right; a word too many counts as a mistake, too."""
    digits = [trial for trial in trials if trial.of_digits]
    pitches = sorted(trial.pitch_hz for trial in trials)
    return Score(
        trials=len(trials),
        digits=sum(len(trial.wanted) for trial in digits),
        digits_right=_right([(trial.heard, trial.wanted) for trial in digits]),
        words_right=_right([(trial.heard, trial.wanted) for trial in trials]),
        answers_right=_mean([trial.heard == trial.wanted for trial in trials]),
        texts_right=_mean([tuple(trial.written.split()) == trial.wanted for trial in trials]),
        voice_right=_mean([trial.right_voice for trial in trials]),
        control_right=_right([(trial.shuffled, trial.wanted) for trial in digits]),
        pitch_hz=pitches[len(pitches) // 2],
    )


def _right(pairs: Sequence[tuple[tuple[str, ...], tuple[str, ...]]]) -> float:
    wrong = sum(mistakes(heard, wanted) for heard, wanted in pairs)
    return 1 - wrong / max(1, sum(len(wanted) for _, wanted in pairs))


def _mean(facts: Sequence[bool]) -> float:
    return sum(facts) / len(facts)


def _report(scores: dict[str, Score]) -> None:
    print("voice     answers  digits  right    words  answers    texts    voice  control  pitch")
    for name, s in scores.items():
        shares = (
            s.digits_right,
            s.words_right,
            s.answers_right,
            s.texts_right,
            s.voice_right,
            s.control_right,
        )
        columns = "".join(f"{share:8.1%} " for share in shares)
        print(f"{name:8s} {s.trials:8d} {s.digits:7d} {columns}{s.pitch_hz:5.0f}")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--prompts", type=int, default=60, help="unseen prompts per voice")
    parser.add_argument("--seed", type=int, default=_SEED)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the scores here")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    examiner = Examiner(arguments.checkpoint)
    scores, trials = {}, []
    for number, voice in enumerate(examiner.speaker.voices):
        seed = arguments.seed + number
        requests = requests_for(arguments.prompts, seed)
        own = [
            examiner.attempt(request, voice, seed + index) for index, request in enumerate(requests)
        ]
        scores[voice] = score(own)
        trials += own
    scores["all"] = score(trials)
    for trial in trials:
        if trial.heard != trial.wanted:
            print(f"{trial.voice}: {trial.prompt!r}: {trial.written!r}, heard {trial.heard}")
    _report(scores)
    if arguments.json:
        facts = {name: asdict(result) for name, result in scores.items()}
        arguments.json.write_text(json.dumps(facts, indent=1) + "\n")
    return 0 if scores["all"].good else 1


if __name__ == "__main__":
    sys.exit(main())
