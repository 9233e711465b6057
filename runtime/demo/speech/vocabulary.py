"""The words that the demo voice can say.

Owns the words and how random, sayable sequences of them are drawn. Knows nothing of prompts.
"""

from __future__ import annotations

import hashlib
import random
from typing import Final

DIGITS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
COLOURS: Final = (
    "red",
    "green",
    "blue",
    "yellow",
    "orange",
    "purple",
    "pink",
    "cyan",
    "white",
    "black",
)
SHAPES: Final = ("circle", "square", "triangle", "diamond", "star", "ring")
ON: Final = "on"
HELLO: Final = "hello"
SORRY: Final = "sorry"
WORDS: Final = (*DIGITS, *COLOURS, *SHAPES, ON, HELLO, SORRY)
"""Every word, in the order of the recogniser's classes."""

MAX_WORDS: Final = 10
_HELD_OUT_OF: Final = 10
_ALWAYS_TRAINED: Final = 2


def is_held_out(words: tuple[str, ...]) -> bool:
    """Whether training leaves this sequence out: a tenth of those of three words and more."""
    if len(words) <= _ALWAYS_TRAINED:
        return False
    digest = hashlib.sha256(" ".join(words).encode()).digest()
    return digest[0] % _HELD_OUT_OF == 0


def random_digits(rng: random.Random) -> tuple[str, ...]:
    """One to ten digits, every length equally often."""
    return tuple(rng.choices(DIGITS, k=rng.randint(1, MAX_WORDS)))


def random_run(rng: random.Random) -> tuple[str, ...]:
    """Two or more digits in counting order, up or down."""
    first, last = sorted(rng.sample(range(len(DIGITS)), 2))
    run = DIGITS[first : last + 1]
    return run if rng.random() < 0.7 else run[::-1]


def random_scene(rng: random.Random) -> tuple[str, ...]:
    """What a demo picture may show, for example "red circle on blue"."""
    colour, background = rng.sample(COLOURS, 2)
    words = [colour, rng.choice(SHAPES)]
    if rng.random() < 0.3:
        words.insert(0, rng.choice(("one", "two")))
    if rng.random() < 0.6:
        words += [ON, background]
    return tuple(words)


def random_words(rng: random.Random) -> tuple[str, ...]:
    """A random sequence to say; mostly digits."""
    kind = rng.random()
    if kind < 0.60:
        return random_digits(rng)
    if kind < 0.70:
        return random_run(rng)
    if kind < 0.88:
        return random_scene(rng)
    if kind < 0.94:
        return tuple(rng.choices(WORDS[:-2], k=rng.randint(1, 5)))
    return (HELLO,) if kind < 0.97 else (SORRY,)
