"""Prompts ask for what they are said to ask for."""

import random
import re

from omnistage.runtime.demo.speech.prompts import ask, greeting, held_out_request, other
from omnistage.runtime.demo.speech.vocabulary import (
    DIGITS,
    MAX_WORDS,
    WORDS,
    is_held_out,
    random_words,
)


def spoken(text):
    """The words of the voice in a text, figures as words, plurals as singulars."""
    found = []
    for word in re.findall(r"\d|[a-z]+", text.lower()):
        found.append(DIGITS[int(word)] if word.isdigit() else word)
    return [word for word in found if word in WORDS]


def test_prompts_name_their_words_in_order_or_count():
    rng = random.Random(1)
    for _ in range(500):
        words = random_words(rng)
        text = ask(words, rng).lower()
        if len(words) == 1 or not set(words) <= set(DIGITS):
            continue
        if spoken(text) != list(words):
            ends = [words[-1]] if "count to" in text else [words[0], words[-1]]
            assert spoken(text) == ends
            assert "count" in text or "from" in text


def test_small_talk_holds_no_digit_and_no_colour():
    rng = random.Random(2)
    for _ in range(300):
        for text in (greeting(rng), other(rng)):
            assert set(spoken(text)) <= {"hello", "sorry", "on"}


def test_held_out_words_are_never_drawn_for_training():
    rng = random.Random(3)
    requests = [held_out_request(rng) for _ in range(50)]
    assert all(is_held_out(request.words) for request in requests)
    assert all(3 <= len(request.words) <= MAX_WORDS for request in requests)
    share = sum(is_held_out(random_words(rng)) for _ in range(2000)) / 2000
    assert 0.03 < share < 0.15
