"""The grammar of the demo model: scenes, and the many ways to say them.

Owns what can be drawn (:class:`Scene`), how people may ask for it (:func:`describe`) and
which requests training never sees (:func:`is_held_out`). Knows nothing of pixels or models.

The held-out split is a pure function of the request, so training and evaluation agree on it
without sharing a file:

* about one in twelve (shape, colour, background) combinations is never drawn nor named in
  training, in any wording (:func:`is_held_out_combination`);
* of the remaining requests, about one in ten sentences is never used
  (:func:`is_held_out_sentence`).
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from dataclasses import dataclass
from typing import Final

COLOURS: Final[dict[str, tuple[int, int, int]]] = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (40, 70, 220),
    "yellow": (245, 220, 50),
    "orange": (245, 140, 30),
    "purple": (140, 50, 180),
    "pink": (250, 150, 190),
    "cyan": (60, 210, 220),
    "white": (245, 245, 245),
    "black": (20, 20, 20),
}
SHAPES: Final = ("circle", "square", "triangle", "diamond", "star", "ring")
SIZES: Final = ("small", "normal", "large")
POSITIONS: Final = ("centre", "left", "right", "top", "bottom")
MAX_COUNT: Final = 2

_SIZE_WORDS: Final = {
    "small": ("small", "small", "tiny", "little"),
    "normal": ("medium", "normal"),
    "large": ("large", "large", "big", "huge"),
}
_SHAPE_WORDS: Final = {
    "circle": ("circle", "circle", "circle", "disc", "dot"),
    "square": ("square", "square", "square", "box"),
    "triangle": ("triangle",),
    "diamond": ("diamond",),
    "star": ("star",),
    "ring": ("ring", "ring", "ring", "hoop"),
}
_PLURALS: Final = {"box": "boxes"}
_CENTRE_PHRASES: Final = ("in the center", "in the centre", "in the middle", "centered")
_SIDE_PHRASES: Final = ("on the {0}", "at the {0}", "{0}", "on the {0} side", "to the {0}")
_BACKGROUND_PHRASES: Final = (
    "on a {0} background",
    "on a {0} background",
    "on {0}",
    "{0} background",
    "against a {0} background",
    "with a {0} background",
    "on {0} background",
    "over {0}",
    "the background is {0}",
)
_OPENINGS: Final = (
    "a picture of",
    "an image of",
    "a photo of",
    "a drawing of",
    "draw",
    "please draw",
    "show me",
    "there is",
)
_FILLERS: Final = ("nice", "very", "cute", "beautiful", "simple", "cat", "flat", "bright")
_HELD_OUT_COMBINATIONS: Final = 12
_HELD_OUT_SENTENCES: Final = 10


@dataclass(frozen=True, slots=True)
class Scene:
    """One or two equal objects on a plain background."""

    shape: str
    colour: str
    background: str
    count: int = 1
    size: str = "normal"
    position: str = "centre"


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt, the scene it asks for, and which of ``colour``, ``background`` it leaves open."""

    text: str
    scene: Scene
    unsaid: frozenset[str] = frozenset()


def vocabulary() -> list[str]:
    """Every lower-case word the grammar can produce, fillers excluded, in a fixed order."""
    phrases = itertools.chain(
        COLOURS,
        POSITIONS,
        *_SIZE_WORDS.values(),
        _CENTRE_PHRASES,
        (phrase.replace("{0}", "") for phrase in _SIDE_PHRASES + _BACKGROUND_PHRASES),
        _OPENINGS,
        ("a an the one two 1 2 pair of and with that is are in its side",),
    )
    shapes = [word for words in _SHAPE_WORDS.values() for word in words]
    words = [word for phrase in phrases for word in phrase.split()]
    return list(dict.fromkeys(words + shapes + [_plural(word) for word in shapes]))


def is_held_out_combination(scene: Scene) -> bool:
    """Whether training never draws this shape in this colour on this background."""
    key = f"{scene.shape}|{scene.colour}|{scene.background}"
    return _bucket(key, _HELD_OUT_COMBINATIONS) == 0


def is_held_out_sentence(text: str) -> bool:
    """Whether training never uses this sentence (case and punctuation aside)."""
    return _bucket(" ".join(re.findall(r"\w+", text.lower())), _HELD_OUT_SENTENCES) == 0


def is_held_out(request: Request) -> bool:
    """Whether the request belongs to the evaluation side of the split."""
    return is_held_out_combination(request.scene) or is_held_out_sentence(request.text)


def training_request(rng: random.Random) -> Request:
    """A random request from the training side; a few leave a colour or the background open."""
    while True:
        unsaid = frozenset(name for name in ("colour", "background") if rng.random() < 0.04)
        request = _random_request(rng, unsaid)
        if not is_held_out(request):
            return request


def held_out_request(rng: random.Random) -> Request:
    """A random, fully specified request that training never sees.

    Half have a combination never seen, half a sentence never seen.
    """
    want_combination = rng.random() < 0.5
    while True:
        request = _random_request(rng, frozenset())
        if is_held_out_combination(request.scene) == want_combination and is_held_out(request):
            return request


def random_scene(rng: random.Random) -> Scene:
    """A random scene: mostly one object of normal size in the centre."""
    colour, background = rng.sample(list(COLOURS), 2)
    return Scene(
        shape=rng.choice(SHAPES),
        colour=colour,
        background=background,
        count=1 if rng.random() < 0.7 else 2,
        size=rng.choices(SIZES, (1, 3, 1))[0],
        position="centre" if rng.random() < 0.5 else rng.choice(POSITIONS[1:]),
    )


def describe(scene: Scene, rng: random.Random, unsaid: frozenset[str] = frozenset()) -> str:
    """Says ``scene`` in one of many ways; word order, articles and punctuation vary."""
    if not unsaid and rng.random() < 0.03:
        return f"{_object(scene, rng, unsaid)} {scene.background}".removeprefix("a ")
    parts = [_object(scene, rng, unsaid)]
    position = _position(scene, rng)
    background = "" if "background" in unsaid else _background(scene, rng)
    if position and background and rng.random() < 0.3:
        parts = [*parts, background, position]
    else:
        parts = [*parts, position, background]
    parts = [part for part in parts if part]
    if rng.random() < 0.3:
        rng.shuffle(parts)
        text = _join_shuffled(parts, rng)
    else:
        text = rng.choice((" ", " ", ", ")).join(parts)
    if rng.random() < 0.15:
        text = f"{rng.choice(_OPENINGS)} {text}"
    return _dirty(text, rng)


def _bucket(key: str, buckets: int) -> int:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % buckets


def _plural(word: str) -> str:
    return _PLURALS.get(word, word + "s")


def _random_request(rng: random.Random, unsaid: frozenset[str]) -> Request:
    scene = random_scene(rng)
    return Request(describe(scene, rng, unsaid), scene, unsaid)


def _object(scene: Scene, rng: random.Random, unsaid: frozenset[str]) -> str:
    noun = rng.choice(_SHAPE_WORDS[scene.shape])
    size = "" if scene.size == "normal" and rng.random() < 0.9 else _size(scene, rng)
    colour = "" if "colour" in unsaid else scene.colour
    if scene.count > 1:
        noun = _plural(noun) if rng.random() < 0.95 else noun
    adjectives = [word for word in (size, colour) if word]
    if rng.random() < 0.1:
        adjectives.reverse()
    if colour and rng.random() < 0.06:
        verb = rng.choice(("in", "that is"))
        phrase = f"{size} {noun} {verb} {colour}".strip()
    else:
        phrase = " ".join([*adjectives, noun])
    return f"{_determiner(scene, phrase, rng)} {phrase}".strip()


def _size(scene: Scene, rng: random.Random) -> str:
    return rng.choice(_SIZE_WORDS[scene.size])


def _determiner(scene: Scene, phrase: str, rng: random.Random) -> str:
    if scene.count > 1:
        return rng.choice(("two", "two", "two", "2", "a pair of"))
    article = "an" if phrase[0] in "aeiou" else "a"
    return rng.choice((article, article, article, "", "", "the", "one"))


def _position(scene: Scene, rng: random.Random) -> str:
    if scene.position == "centre":
        return rng.choice(_CENTRE_PHRASES) if rng.random() < 0.25 else ""
    return rng.choice(_SIDE_PHRASES).format(scene.position)


def _background(scene: Scene, rng: random.Random) -> str:
    text = rng.choice(_BACKGROUND_PHRASES).format(scene.background)
    if scene.background[0] in "aeiou" and rng.random() < 0.8:
        text = text.replace(" a ", " an ")
    return text


def _join_shuffled(parts: list[str], rng: random.Random) -> str:
    """Joins parts in any order; a leading background reads "blue background with ..."."""
    if parts[0].endswith("background") and rng.random() < 0.6:
        parts[0] = re.sub(r"^(on|against|with) ", "", parts[0])
        return parts[0] + rng.choice((" with ", ", ", " and ")) + " ".join(parts[1:])
    return rng.choice((", ", " ")).join(parts)


def _dirty(text: str, rng: random.Random) -> str:
    """What people do to prompts: dropped articles, stray words, capitals, a full stop."""
    words = text.split(" ")
    if rng.random() < 0.12:
        words = [word for word in words if word not in ("a", "an", "the")] or words
    if rng.random() < 0.08:
        words.insert(rng.randrange(len(words)), rng.choice(_FILLERS))
    text = " ".join(words)
    if rng.random() < 0.15:
        text += rng.choice((".", "!", " ."))
    return text.capitalize() if rng.random() < 0.2 else text
