"""Speech: from what a language model thinks to sound."""

from __future__ import annotations

from ..values import Codes, Hidden, Model, Sampling, Sound, Spoken, job
from .inputs import DEFAULT, Words, given
from .language import thinker


def talker(
    model: Model,
    hidden: Hidden,
    voice: str,
    *,
    max_seconds: float,
    seed: int,
    sampling: Sampling | None = None,
) -> Codes:
    """Have a voice say what a language model thinks."""
    voice = voice.lower()  # as runtimes name voices
    params = given(
        voice=voice if voice != DEFAULT else None,
        max_seconds=max_seconds or None,
        seed=seed,
    )
    if sampling is not None:
        params |= sampling.params
    return Codes(job(model, "talker", "codes", params, hidden=hidden.source), model.address)


def codec_decode(
    model: Model,
    codes: Codes,
    *,
    steps: int = 0,
    guidance: float = -1.0,
    play: bool = False,
    seed: int = 0,
) -> Sound:
    """Decode speech; it is the same job whether a page plays it or not."""
    params = given(
        steps=steps or None,
        guidance=guidance if guidance >= 0 else None,
        seed=seed,
    )
    handle = job(model, "codec_decode", "audio", params, codes=codes.source)
    return Sound(handle, model.address)


def speak(model: Model, text: Words, voice: str, *, play: bool, seed: int) -> Spoken:
    """Have a model answer aloud; every stage gets the seed."""
    answer = thinker(model, text, "", max_tokens=0, temperature=-1.0, seed=seed)
    codes = talker(model, answer.hidden, voice, max_seconds=0.0, seed=seed)
    return Spoken(codec_decode(model, codes, play=play, seed=seed), answer.text, codes)
