"""Spectrograms and codes."""

import torch

from omnistage.runtime.demo.speech.codec import CODES, encode, find_codebook
from omnistage.runtime.demo.speech.mel import HOP, MEL_BANDS, SILENCE, mel_of


def test_spectrogram_has_a_frame_for_each_hop():
    mel = mel_of(torch.zeros(2, 20 * HOP))
    assert mel.shape == (2, MEL_BANDS, 20)
    assert torch.allclose(mel, torch.tensor(SILENCE), atol=0.01)


def test_louder_sound_is_higher_in_every_frame():
    wave = torch.sin(torch.arange(40 * HOP) * 0.1)[None]
    assert (mel_of(wave).amax(1) > mel_of(wave / 10).amax(1) + 2).all()


def test_each_centre_is_its_own_code():
    pairs = torch.randn(2000, 2 * MEL_BANDS, generator=torch.Generator().manual_seed(1))
    codebook = find_codebook(pairs)
    mel = codebook.reshape(2 * CODES, MEL_BANDS).T
    assert encode(mel, codebook).tolist() == list(range(1, CODES + 1))
