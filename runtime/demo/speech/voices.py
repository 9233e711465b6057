"""Who speaks: the demo's two voices, the voice behind the codes, and the recogniser's teachers.

Owns names and settings. Knows nothing of models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice of espeak-ng; ``pitch`` and ``pitch_range`` are 0..100, ``speed`` words a minute.

    ``pitch_hz`` is what that comes to, where it matters.
    """

    variant: str
    pitch: int = 50
    pitch_range: int = 50
    speed: int = 150
    pitch_hz: float = 0.0


VOICES: Final = {
    "Chelsie": Voice("en-us+f3", pitch=61, pitch_range=0, pitch_hz=200.0),
    "Ethan": Voice("en-us", pitch=60, pitch_range=0, pitch_hz=100.0),
}
"""The demo's voices by the name that requests use. They keep the same time, word by word.

Each speaks on one note, a multiple of the 100 spectrograms a second: a small vocoder without an
adversary only learns pitches that repeat with the frames; all others come out as a buzz.
"""

PITCH_BORDER_HZ: Final = 141.0
"""Between the two voices, as far from the one as from the other in semitones."""

CODED: Final = Voice("en-us", pitch=50, pitch_range=0)
"""Whose sound the codes stand for. On one note, so that codes tell words and nothing else;
the codec's conditioning gives a voice and its melody back."""

_VARIANTS: Final = (
    "f1 f2 f4 f5 m1 m2 m3 m4 m5 m6 m7 m8 Alex Annie linda steph iven edward Alicia Mike Andy Lee"
)
TEACHERS: Final = (
    *(f"en-us+{name}" for name in _VARIANTS.split()),
    "en+f1",
    "en+m4",
    "en-gb-x-rp",
    "en-gb-x-rp+f4",
    "en-gb-scotland",
    "en-029",
)
"""Other people, from whom the recogniser learns to listen."""
