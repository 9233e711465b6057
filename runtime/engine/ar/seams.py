"""Every place where we touch vLLM's inside, and the check that it is still as we know it."""

from __future__ import annotations

import inspect
from typing import Any

from ...protocol.errors import ModelLoadFailed

_ATTRIBUTES = {
    "max_num_running_reqs": "self.max_num_running_reqs",
    "max_num_active_reqs": "self.max_num_active_reqs",
}
_RUNNER = ("load_model", "sample_tokens", "_preprocess", "_init_mrope_positions")
_STATE_FIELDS = ("scheduler_output", "hidden_states", "aux_hidden_states")


def check_seams() -> None:
    """Make sure that each hook exists in the installed vLLM.

    Raises:
        ModelLoadFailed: names the hooks that are missing.
    """
    from vllm import __version__

    missing = missing_hooks()
    if missing:
        raise ModelLoadFailed(
            f"vLLM {__version__} lacks what OmniStage hooks into: {', '.join(missing)}. "
            "Install the version that the project's lock names.",
            field="vllm",
            value=__version__,
        )


def missing_hooks() -> list[str]:
    """The hooks that the installed vLLM lacks, as dotted names."""
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.worker.gpu_model_runner import ExecuteModelState

    from .worker import BaseRunner, BaseWorker

    hooks: list[tuple[Any, str]] = [
        (BaseWorker, "init_device"),
        *((BaseRunner, name) for name in _RUNNER),
        *((Scheduler, name) for name in ("schedule", "_preempt_request")),
        *((ExecuteModelState, name) for name in _STATE_FIELDS),
    ]
    missing = [f"{owner.__name__}.{name}" for owner, name in hooks if not hasattr(owner, name)]
    made = inspect.getsource(Scheduler.__init__)
    missing += [f"Scheduler.{name}" for name, text in _ATTRIBUTES.items() if text not in made]
    return missing
