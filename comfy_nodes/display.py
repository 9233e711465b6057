"""What a node shows of its job: how far it is, a preview, the text so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..runtime.protocol.messages import JobEvent

News = JobEvent | str
"""An event of the job, or words to show as they are."""

WAITING = "waiting for its turn, or for its engine to start"
MAX_SHOWN = 8000
"""Characters of a text that is still being written: it is sent whole, several times a second."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What changes on the node; what is empty stays as it is."""

    text: str = ""
    progress: JobEvent | None = None
    image: bytes | None = None


class Display:
    """Follows one job of one node."""

    def __init__(self) -> None:
        self._written = ""
        self._text = ""

    def after(self, news: Iterable[News]) -> Shown:
        """What to show after the latest news."""
        text, progress, image = self._text, None, None
        for item in news:
            if isinstance(item, str):
                text = item or text
            elif item.kind in ("queued", "running"):
                self._written = ""  # another attempt writes it again
                text = _state(item, text)
            elif item.kind == "text":
                self._written += item.text
                text = self._written[-MAX_SHOWN:]
            elif item.total:
                progress, image = item, item.image or image
                if not self._written:
                    text = f"step {item.step}/{item.total}, batch {item.batch}"
        changed, self._text = text != self._text, text
        return Shown(text if changed else "", progress, image)


def _state(event: JobEvent, text: str) -> str:
    """What to show of a job that waits, or no longer does."""
    if event.kind == "queued":
        return WAITING
    return "" if text == WAITING else text
