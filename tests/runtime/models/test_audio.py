import numpy as np
import pytest

from omnistage.runtime.models.audio import resample


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_a_tone_keeps_its_pitch_and_length(rate):
    tone = np.sin(2 * np.pi * 440 * np.arange(rate) / rate).astype(np.float32)
    heard = resample(tone, rate, 16000)
    assert abs(len(heard) - 16000) <= 16
    spectrum = np.abs(np.fft.rfft(heard))
    assert abs(spectrum.argmax() * 16000 / len(heard) - 440) < 2
    assert 0.9 < np.abs(heard[1000:-1000]).max() < 1.1


def test_nothing_is_done_at_the_same_rate():
    tone = np.ones(10, np.float32)
    assert resample(tone, 16000, 16000) is tone
