"""What a node shows of its jobs: how far they are, a preview, the text so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..runtime.protocol.frames import Frame
from ..runtime.protocol.messages import JobEvent

News = JobEvent | Frame | str
"""An event of a job, its result, or words to show as they are."""

WAITING = "waiting for its turn, or for its engine to start"
MAX_SHOWN = 8000
"""Characters of a text that is still being written: it is sent whole, several times a second."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What changes on the node; what is empty stays as it is."""

    text: str = ""
    progress: JobEvent | None = None
    image: bytes | None = None


@dataclass(slots=True)
class _Attempt:
    """One job's latest attempt."""

    waits: bool = False
    written: str = ""
    steps: str = ""
    sound_s: float = 0.0

    def take(self, event: JobEvent) -> None:
        """Note what is to be shown of an event."""
        if event.kind == "text":
            self.written += event.text
        elif event.kind == "part":
            self.sound_s += sum(map(_seconds, event.parts))
        elif event.total:
            self.steps = f"step {event.step}/{event.total}, batch {event.batch}"

    @property
    def words(self) -> str:
        """The text, or how far it is."""
        sound = f"{self.sound_s:.1f} s of sound" if self.sound_s else ""
        return self.written[-MAX_SHOWN:] or ", ".join(filter(None, [sound, self.steps]))


class Display:
    """Follows the jobs of one node."""

    def __init__(self) -> None:
        self._attempts: dict[str, _Attempt] = {}
        self._text = ""

    def after(self, news: Iterable[News]) -> Shown:
        """What to show after the latest news."""
        text, progress, image = self._text, None, None
        for item in news:
            if isinstance(item, str):
                text = item or text
            elif isinstance(item, JobEvent):
                self._take(item)
                text = self._words() or ("" if text == WAITING else text)
                if item.total:
                    progress, image = item, item.image or image
        changed, self._text = text != self._text, text
        return Shown(text if changed else "", progress, image)

    def _take(self, event: JobEvent) -> None:
        if event.kind in ("queued", "running"):  # another attempt writes it again
            self._attempts[event.key] = _Attempt(waits=event.kind == "queued")
        else:
            self._attempts.setdefault(event.key, _Attempt()).take(event)

    def _words(self) -> str:
        """What there is to show of all jobs, texts first; that one waits, if there is nothing."""
        attempts = sorted(self._attempts.values(), key=lambda attempt: not attempt.written)
        said = "\n\n".join(attempt.words for attempt in attempts if attempt.words)
        return said or (WAITING if any(attempt.waits for attempt in attempts) else "")


def _seconds(part: Frame) -> float:
    """How long a part of a sound is; 0 for anything else."""
    if part.header["kind"] != "audio":
        return 0.0
    return float(part.tensors["waveform"].array.shape[-1] / part.header["rate"])
