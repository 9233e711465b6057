"""Which codes are decoded together, and when: chunks of speech, each with what surrounds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """Codes `start` to `end` are decoded, and the sound of `begin` to `end` is kept."""

    start: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Chunking:
    """How a row of codes is cut. The cuts depend on nothing but these numbers and its length.

    A model that looks at codes in blocks is given the blocks it would see in the whole: chunks
    begin and end where blocks do, but for the first, which is wanted soon, and the last.

    Attributes:
        first: codes of the first chunk.
        chunk: codes of each later chunk; fewer to end with a block, but one block at least.
        left: earlier codes that a chunk sees, in whole blocks.
        block: codes in a block.
    """

    first: int
    chunk: int
    left: int
    block: int = 1

    def windows(self, arrivals: Iterable[int]) -> Iterator[Window]:
        """The windows, each as soon as its codes are there; the rest when there is no more.

        Args:
            arrivals: how many codes there are by now, again and again; grows.
        """
        window, there = Window(0, 0, self.first), 0
        for there in arrivals:
            while window.end <= there:
                yield window
                window = self._after(window.end)
        if window.begin < there:
            yield Window(window.start, window.begin, there)

    def _after(self, begin: int) -> Window:
        block = self.block
        start = max(0, begin // block - self.left // block)
        end = max((begin + self.chunk) // block, begin // block + 1)
        return Window(start * block, begin, end * block)
