"""Which processes a process has started, and the memory of each, as Linux tells it in `/proc`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A running process.

    Attributes:
        command: its arguments, joined by spaces; a fork has those of its parent.
        started: clock ticks from the start of the machine.
    """

    pid: int
    parent: int
    command: str
    started: int


def children_of(pid: int) -> list[ProcessInfo]:
    """The processes whose parent is `pid`, the oldest first."""
    found = (process for process in _processes() if process.parent == pid)
    return sorted(found, key=lambda process: process.started)


def memory_mb(pid: int) -> float:
    """Memory of a process in MB; what it shares with others counts in equal parts (PSS)."""
    for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        name, *value = line.split()
        if name == "Pss:":
            return int(value[0]) / 1024
    raise ValueError(f"the kernel does not say how much memory process {pid} has")


def _processes() -> Iterator[ProcessInfo]:
    for folder in _PROC.glob("[0-9]*"):
        try:
            # the name comes second, in parentheses, and may hold anything
            facts = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_text().replace("\0", " ").strip()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        yield ProcessInfo(int(folder.name), int(facts[1]), command, int(facts[19]))
