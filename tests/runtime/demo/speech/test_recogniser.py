"""The recogniser's arithmetic; that it hears words is tested on the checkpoint's speech."""

import torch

from omnistage.runtime.demo.speech.pitch import pitch_hz
from omnistage.runtime.demo.speech.recogniser import hear, load_recogniser, mistakes


def test_silence_says_nothing():
    assert hear(load_recogniser(), torch.zeros(24_000)) == ()


def test_mistakes_count_missing_wrong_and_extra_words():
    wanted = ("one", "two", "three")
    assert mistakes(wanted, wanted) == 0
    assert mistakes(("one", "three"), wanted) == 1
    assert mistakes(("one", "four", "three"), wanted) == 1
    assert mistakes((*wanted, "six"), wanted) == 1
    assert mistakes((), wanted) == 3


def test_pitch_of_a_tone_and_of_silence():
    times = torch.arange(24_000) / 24_000
    tone = sum(torch.sin(2 * torch.pi * 120 * k * times) / k for k in range(1, 6)) / 3
    assert abs(pitch_hz(tone) - 120) < 2
    assert pitch_hz(torch.zeros(24_000)) == 0
