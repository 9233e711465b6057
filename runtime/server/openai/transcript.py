"""What of a text is still to be sent, when attempts may begin it anew."""

from __future__ import annotations

from ...protocol.errors import EngineLost
from ...protocol.messages import JobEvent


class Transcript:
    """The text that was sent, which cannot be unsent, and how far the present attempt is."""

    def __init__(self) -> None:
        self._sent = ""
        self._at = 0

    def take(self, event: JobEvent) -> str:
        """What an event of the job adds to the text that was sent.

        Raises:
            EngineLost: another attempt says something else.
        """
        if event.kind in ("queued", "running"):
            self._at = 0
        return self._new_of(event.text)

    def finish(self, text: str) -> str:
        """What the whole text adds.

        Raises:
            EngineLost: it is not what was sent.
        """
        self._at = 0
        new = self._new_of(text)
        if self._at < len(self._sent):
            raise _different()
        return new

    def _new_of(self, text: str) -> str:
        known = self._sent[self._at : self._at + len(text)]
        if not text.startswith(known):
            raise _different()
        self._at += len(text)
        new = text[len(known) :]
        self._sent += new
        return new


def _different() -> EngineLost:
    return EngineLost(
        "The engine was lost in the middle of this answer, and writing it again gave another one "
        "than was sent so far. Ask again."
    )
