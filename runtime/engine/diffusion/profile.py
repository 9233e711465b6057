"""Measuring how a forward's time grows with its rows, on the first real call of its kind."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from .call import ModuleCall
from .collate import run_merged
from .cost import CostCurve

log = logging.getLogger(__name__)

_LARGEST = 16
_ENOUGH_S = 0.25
_GAIN = 1.1
"""Doubling goes on while it raises throughput by this factor; so a large picture, where
nothing is gained, costs three extra rows, and a small one a few milliseconds. It also ends
with a forward that takes long: what is learned there comes from the real batches soon enough."""


def profile(
    call: ModuleCall, curve: CostCurve, timed: Callable[[Callable[[], object]], float]
) -> None:
    """Run copies of a call together, 1, 2, 4 ... of them, and record the times.

    Args:
        call: a real call; it is run, but its result is left for the batch that wants it.
        curve: where the times go.
        timed: runs a function and returns the seconds it took on the device.
    """
    curve.profiled = True
    best, copies = 0.0, 1
    try:
        timed(call.run_alone)  # the first forward of a process pays for allocations
        while copies * call.rows <= _LARGEST:
            calls = [call] * copies
            seconds = timed(partial(run_merged, calls))
            curve.observe(copies * call.tokens, seconds)
            throughput = copies / max(seconds, 1e-9)
            if throughput < best * _GAIN or seconds > _ENOUGH_S:
                return
            best, copies = throughput, copies * 2
    except Exception as error:  # noqa: BLE001 - whoever made the call will be told when it runs
        log.info("profile of %s stops at %d copies: %s", call.method, copies, error)
