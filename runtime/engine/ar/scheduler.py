"""Seam 2: vLLM's scheduler, in which a conditioned request waits for its rows.

Hooks: `schedule`, `running`, `max_num_running_reqs`, `max_num_active_reqs`, `_preempt_request`.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

from .rows import conditioning_rows, key_of

_CAPS = ("max_num_running_reqs", "max_num_active_reqs")


class GatedScheduler(Scheduler):
    """A running request whose next row is not there yet sits the step out, with its blocks."""

    preemptions = 0
    stuck = False
    """Whether the last step had nothing to run."""
    running: list[Any]

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Schedule all but those that wait; they keep their slots meanwhile."""
        held = [request for request in self.running if not _may_run(request)]
        self.running = [request for request in self.running if request not in held]
        for cap in _CAPS:
            setattr(self, cap, getattr(self, cap) - len(held))
        try:
            scheduled = super().schedule(*args, **kwargs)
        finally:
            for cap in _CAPS:
                setattr(self, cap, getattr(self, cap) + len(held))
            self.running.extend(held)
        self.stuck = bool(held) and not scheduled.total_num_scheduled_tokens
        return scheduled

    def all_held(self) -> bool:
        """Whether a step would do nothing: all that could run waits for rows."""
        return bool(self.running) and not self.waiting and not any(map(_may_run, self.running))

    def _preempt_request(self, *args: Any, **kwargs: Any) -> Any:
        """Count, for the statistics."""
        self.preemptions += 1
        return super()._preempt_request(*args, **kwargs)


def _may_run(request: Any) -> bool:
    params = request.sampling_params
    key = None if params is None else key_of(params.extra_args)
    conditioning = None if key is None else conditioning_rows.get(key)
    if conditioning is None:
        return True
    next_position = max(request.num_computed_tokens, request.num_prompt_tokens - 1)
    return conditioning.ready(next_position)
