"""Picking calls that share a forward, running them, and telling each its own outcome."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .adapters import applied, try_mixing
from .call import ModuleCall
from .collate import run_merged

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """Calls of equal key that run as one forward pass."""

    calls: Sequence[ModuleCall]

    @property
    def rows(self) -> int:
        """Rows of all calls."""
        return sum(call.rows for call in self.calls)

    @property
    def tokens(self) -> int:
        """Tokens of all calls."""
        return sum(call.tokens for call in self.calls)

    @property
    def requests(self) -> int:
        """How many requests share the forward."""
        return len({id(call.request) for call in self.calls})

    @property
    def padding(self) -> int:
        """Tokens of padding that a grouped forward adds to ragged text."""
        spec, key = self.calls[0].spec, self.calls[0].key
        if spec is None or not isinstance(key, tuple) or "grouped" not in key:
            return 0
        padding = 0
        for name in spec.pad:
            lengths = [call.arguments[name].shape[1] for call in self.calls]
            missing = [max(lengths) - length for length in lengths]
            padding += sum(n * c.rows for n, c in zip(missing, self.calls, strict=True))
        return padding

    def run(self) -> int:
        """Run the forward; every call has its result or its own error afterwards.

        A failure of the merged run is nobody's in particular: each call is then tried alone,
        so that one bad request cannot fail its batch mates.

        Returns:
            Forward passes made.
        """
        try_mixing(self.calls[0])
        try:
            if len(self.calls) == 1:
                results = [self.calls[0].run_alone()]
            else:
                with applied(self.calls):
                    results = run_merged(self.calls)
        except Exception as error:  # noqa: BLE001 - the border to the model's code
            if len(self.calls) == 1:
                _fail(self.calls[0], error)
                return 1
            log.warning("merged forward failed (%s); trying %d calls alone", error, len(self.calls))
            for call in self.calls:
                Batch([call]).run()
            return 1 + len(self.calls)
        for call, result in zip(self.calls, results, strict=True):
            call.result, call.done = result, True
        return 1


def pick(ordered: Iterable[ModuleCall], *, max_rows: int, full_tokens: int | None) -> Batch:
    """The first call and those behind it that can share its forward, until the batch is full.

    Args:
        ordered: waiting calls, most urgent first; at least one.
        max_rows: rows in the batch, at most (the first call is always taken).
        full_tokens: stop adding once this many tokens are in; None means no such limit.
    """
    waiting = iter(ordered)
    calls = [next(waiting)]
    rows, tokens = calls[0].rows, calls[0].tokens
    for call in _mates(calls[0], waiting):
        if full_tokens is not None and tokens >= full_tokens:
            break
        if rows + call.rows <= max_rows:
            calls.append(call)
            rows, tokens = rows + call.rows, tokens + call.tokens
    return Batch(calls)


def _mates(first: ModuleCall, waiting: Iterator[ModuleCall]) -> Iterator[ModuleCall]:
    if first.key is not None:
        yield from (call for call in waiting if call.key == first.key)


def _fail(call: ModuleCall, error: Exception) -> None:
    call.error, call.done = error, True
