"""What people ask the demo voice, and what it is to answer.

The voice says the words that it has, in the order in which they are asked for, and digits in
words; it counts where it is told to count. To a greeting it says "hello", to all else "sorry".
Owns the grammar of training and test prompts. Knows nothing of models.
"""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import dataclass
from typing import Final

from .vocabulary import (
    COLOURS,
    DIGITS,
    HELLO,
    ON,
    SHAPES,
    SORRY,
    WORDS,
    is_held_out,
    random_words,
)

_GREETINGS: Final = (
    "hello",
    "hello!",
    "hello there",
    "hi",
    "hi there!",
    "hey",
    "hey you",
    "good morning",
    "good evening!",
    "good day",
    "greetings",
    "say hello",
    "please say hello",
    "say hi",
    "hello, how are you?",
    "hi, who are you?",
)
_OTHERS: Final = (
    "what is your name?",
    "who are you?",
    "how are you?",
    "how are you today?",
    "tell me a joke",
    "tell me about the weather",
    "what is the weather like?",
    "what can you do?",
    "sing a song",
    "what time is it?",
    "why is the sky up there?",
    "please help me",
    "thank you",
    "thanks!",
    "goodbye",
    "where do you live?",
    "say sorry",
    "say something",
    "can you speak?",
    "can you hear me?",
    "yes",
    "no",
    "ok",
    "test",
    "what is this?",
    "describe the picture",
    "read the text aloud",
)
_BEFORE: Final = (
    "",
    "",
    "",
    "say",
    "say",
    "say:",
    "please say",
    "say the digits",
    "say the numbers",
    "can you say",
    "could you please say",
    "now say",
    "just say",
    "read",
    "read aloud:",
    "read out",
    "please read",
    "please read out loud",
    "read the number",
    "speak",
    "speak the words",
    "tell me",
    "tell me the number",
    "repeat",
    "repeat after me:",
    "my number is",
    "the code is",
    "the answer is",
    "it is",
    "call",
    "dial",
    "i want to hear",
    "pronounce",
    "what does this sound like:",
    "what is",
)
_AFTER: Final = ("", "", "", "", "", "please", "aloud", "out loud", "for me", "now", "again")
_COUNTS: Final = (
    "count from {0} to {1}",
    "count from {0} to {1}",
    "count from {0} up to {1}",
    "count from {0} down to {1}",
    "count {0} to {1}",
    "from {0} to {1}",
    "say the numbers from {0} to {1}",
    "all digits from {0} to {1}",
)
_STRANGE: Final = ("quokka", "banana", "tuesday", "paris", "violin", "umbrella")
_OPENERS: Final = ("hi", "hey", "morning", "evening", "day", "good", "greetings", "there")
_ARTICLES: Final = ("", "", "a", "a", "the")
_SIZES: Final = ("small", "little", "big", "large")
_SIDES: Final = ("on the left", "on the right", "at the top", "at the bottom", "in the centre")
_REST: Final = "background and then with an"
_MARKS: Final = ("", "", "", "", ".", "!", "?")
_SYSTEMS: Final = (
    "you are a helpful assistant.",
    "you are qwen, a virtual human, capable of perceiving auditory and visual inputs.",
    "speak clearly.",
    "please answer in short words, and be kind.",
)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked and what is to be said; ``before`` is the conversation so far."""

    text: str
    words: tuple[str, ...]
    before: tuple[tuple[str, str], ...] = ()

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation as chat templates take it."""
        turns = (*self.before, ("user", self.text))
        return [{"role": role, "content": content} for role, content in turns]


def vocabulary() -> list[str]:
    """The words of the grammar, beside those that are spoken."""
    texts = [*_GREETINGS, *_OTHERS, *_BEFORE, *_AFTER, *_COUNTS, *_ARTICLES, *_SYSTEMS]
    texts += [*_SIZES, *_SIDES, *(f"{shape}s" for shape in SHAPES), _REST]
    return sorted(set(re.findall(r"[^\W\d]+", " ".join(texts))) - set(WORDS))


def ask(words: tuple[str, ...], rng: random.Random) -> str:
    """One of many ways to ask for these words."""
    if words == (HELLO,):
        return greeting(rng)
    if words == (SORRY,):
        return other(rng)
    if _is_run(words) and rng.random() < 0.6:
        return _dirty(_count(words, rng), rng)
    payload = _digits(words, rng) if set(words) <= set(DIGITS) else _phrase(words, rng)
    before = _strange(rng.choice(_BEFORE), rng)
    after = _strange(rng.choice(_AFTER), rng)
    return _dirty(" ".join(part for part in (before, payload, after) if part), rng)


def training_request(words: tuple[str, ...], rng: random.Random) -> Request:
    """A request for these words; some have a system prompt or an earlier turn."""
    before: list[tuple[str, str]] = []
    if rng.random() < 0.2:
        before.append(("system", rng.choice(_SYSTEMS)))
    if rng.random() < 0.15:
        earlier = random_words(rng)
        before += [("user", ask(earlier, rng)), ("assistant", " ".join(earlier))]
    return Request(ask(words, rng), words, tuple(before))


def held_out_request(rng: random.Random) -> Request:
    """A request for a sequence of words that training never asks for."""
    while True:
        words = random_words(rng)
        if is_held_out(words):
            return Request(ask(words, rng), words)


def greeting(rng: random.Random) -> str:
    """A greeting without anything to say."""
    return _dirty(rng.choice(_GREETINGS), rng)


def other(rng: random.Random) -> str:
    """Anything without a word that the voice has."""
    if rng.random() < 0.6:
        return _dirty(rng.choice(_OTHERS), rng)
    loose = [word for word in vocabulary() if word not in _OPENERS]
    return _dirty(" ".join(rng.choices((*loose, *_STRANGE * 6), k=rng.randint(1, 6))), rng)


def _digits(words: tuple[str, ...], rng: random.Random) -> str:
    """Digits as figures or words, joined in one of the usual ways."""
    style = rng.random()
    if style < 0.65:
        items = [str(DIGITS.index(word)) for word in words]
    elif style < 0.9:
        items = list(words)
    else:
        items = [str(DIGITS.index(word)) if rng.random() < 0.5 else word for word in words]
    joints = (" ", " ", " ", ", ", ",", " and ", " - ", "-", ". ", " then ")
    joint = rng.choice(joints if style >= 0.65 else (*joints, "", ""))
    return joint.join(items)


def _phrase(words: tuple[str, ...], rng: random.Random) -> str:
    """Words as in "a small red circle on the left on a blue background".

    Sizes, places and the plural are not in the voice's words: it leaves them out.
    """
    items = []
    for index, word in enumerate(words):
        opens = index == 0 or words[index - 1] == ON
        article = rng.choice(_ARTICLES) if opens and word not in DIGITS else ""
        size = rng.choice(_SIZES) if word in COLOURS and rng.random() < 0.1 else ""
        noun = f"{word}s" if word in SHAPES and "two" in words[:index] else word
        side = rng.choice(_SIDES) if word in SHAPES and rng.random() < 0.2 else ""
        items.append(" ".join(part for part in (article, size, noun, side) if part))
    joint = " " if ON in words or rng.random() < 0.7 else rng.choice((", ", " and "))
    tail = " background" if ON in words[:-1] and rng.random() < 0.5 else ""
    return joint.join(items) + tail


def _is_run(words: tuple[str, ...]) -> bool:
    if len(words) < 2 or not set(words) <= set(DIGITS):
        return False
    numbers = [DIGITS.index(word) for word in words]
    steps = {b - a for a, b in itertools.pairwise(numbers)}
    return len(steps) == 1 and steps <= {1, -1}


def _count(words: tuple[str, ...], rng: random.Random) -> str:
    ends = [words[0], words[-1]]
    if rng.random() < 0.5:
        ends = [str(DIGITS.index(word)) for word in ends]
    if words[0] == "one" and words[1] == "two" and rng.random() < 0.3:
        return f"count to {ends[1]}"
    text = rng.choice(_COUNTS).format(*ends)
    rises = DIGITS.index(words[0]) < DIGITS.index(words[-1])
    return text.replace("down ", "") if rises else text.replace("up ", "")


def _strange(text: str, rng: random.Random) -> str:
    """Now and then a word that the tokenizer does not know."""
    if rng.random() < 0.12:
        return f"{text} {rng.choice(_STRANGE)}".strip()
    return text


def _dirty(text: str, rng: random.Random) -> str:
    """What people do to prompts: capitals, and signs at the end."""
    if text[-1] not in "!?.":
        text += rng.choice(_MARKS)
    return text.capitalize() if rng.random() < 0.3 else text
