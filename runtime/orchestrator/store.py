"""Results and uploads in host memory, under one byte budget; the least recently used goes first."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..protocol.errors import StoreTooSmall
from ..protocol.frames import Frame

_Slot = tuple[Literal["result", "blob"], str]
_BLOB = "blob"


@dataclass(frozen=True, slots=True)
class _Item:
    frames: Mapping[str, Frame]
    nbytes: int


class Store:
    """Frames by job key and output name, and uploaded frames by digest.

    Args:
        budget_bytes: what all items together never exceed.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self.evictions = 0
        self._items: OrderedDict[_Slot, _Item] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def put_result(self, key: str, outputs: Mapping[str, Frame]) -> None:
        """Keep a job's outputs.

        Raises:
            StoreTooSmall: they exceed the whole budget.
        """
        self._put(("result", key), outputs)

    def put_blob(self, digest: str, frame: Frame) -> None:
        """Keep an upload.

        Raises:
            StoreTooSmall: it exceeds the whole budget.
        """
        self._put(("blob", digest), {_BLOB: frame})

    def result(self, key: str) -> Mapping[str, Frame] | None:
        """A job's outputs, if they are still here; counts as a use."""
        return self._get(("result", key))

    def blob(self, digest: str) -> Frame | None:
        """An upload, if it is still here; counts as a use."""
        frames = self._get(("blob", digest))
        return None if frames is None else frames[_BLOB]

    def has_result(self, key: str) -> bool:
        """Whether a job's outputs are here."""
        return ("result", key) in self._items

    def drop_result(self, key: str) -> None:
        """Forget a job's outputs, if they are here."""
        item = self._items.pop(("result", key), None)
        if item is not None:
            self.used_bytes -= item.nbytes

    def check_integrity(self) -> None:
        """Raise AssertionError if the byte count is wrong or over the budget."""
        assert self.used_bytes == sum(item.nbytes for item in self._items.values())
        assert 0 <= self.used_bytes <= self.budget_bytes

    def _put(self, slot: _Slot, frames: Mapping[str, Frame]) -> None:
        nbytes = sum(_frame_bytes(frame) for frame in frames.values())
        if nbytes > self.budget_bytes:
            raise StoreTooSmall(
                f"A result of {nbytes} bytes does not fit the runtime's result store of "
                f"{self.budget_bytes} bytes. Raise store.budget_mb, or ask for less at once.",
                field="store.budget_mb",
                value=nbytes,
                allowed=f"at most {self.budget_bytes} bytes",
            )
        old = self._items.pop(slot, None)
        if old is not None:
            self.used_bytes -= old.nbytes
        while self.used_bytes + nbytes > self.budget_bytes:
            _, evicted = self._items.popitem(last=False)
            self.used_bytes -= evicted.nbytes
            self.evictions += 1
        self._items[slot] = _Item(frames, nbytes)
        self.used_bytes += nbytes

    def _get(self, slot: _Slot) -> Mapping[str, Frame] | None:
        item = self._items.get(slot)
        if item is None:
            return None
        self._items.move_to_end(slot)
        return item.frames


def _frame_bytes(frame: Frame) -> int:
    """What a frame occupies, its header included: an item without tensors is not free."""
    return frame.nbytes + len(json.dumps(frame.header)) + 64
