"""The autoregressive engine core: tasks become sequences of vLLM, sequences become results.

vLLM owns scheduling, batching, the paged KV cache and sampling. Here is only what a task is to
us: one sequence or a few, text that streams, hidden states that are kept, and one end.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm import PoolingParams, SamplingParams
from vllm.exceptions import VLLMClientError
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine.llm_engine import LLMEngine

from ...models.ar_stage import ARRequest, ARResult, ARStage
from ...protocol.errors import InvalidRequest, JobFailed, OmniStageError
from ..core import EngineEvent, StageTask
from .rows import KEY, hidden_rows

log = logging.getLogger(__name__)

_TEXT_INTERVAL_S = 0.03
"""The text of a job goes out at most so often; its first at once."""
_ALL_TEXT_INTERVAL_S = 0.005
"""That of all jobs together: what listens to many streams must not slow down the model."""
_HELD_PAUSE_S = 0.001
_MARKS = {"schema": "json_schema", "grammar": "json_schema", "at most": "media"}
"""Words by which to tell what a refusal of vLLM is about; else it is the prompt."""


@dataclass(slots=True)
class _Sequence:
    """One sequence of a task, while vLLM has it."""

    name: str
    job: _Job
    index: int
    request: ARRequest
    text: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Job:
    """A task that has been admitted."""

    task: StageTask
    open: dict[str, _Sequence] = field(default_factory=dict)
    results: dict[int, ARResult] = field(default_factory=dict)
    unsent: list[str] = field(default_factory=list)
    text_due_s: float = 0.0


class AREngine:
    """Runs one stage of one model for many requests, one vLLM step a step.

    Args:
        llm: made with `RowWorker` and `GatedScheduler`, in this process.
    """

    def __init__(
        self,
        llm: LLMEngine,
        program: ARStage,
        *,
        stage: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._llm = llm
        self._program = program
        self._stage = stage
        self._clock = clock
        self._arrivals: dict[str, StageTask] = {}
        self._jobs: dict[str, _Job] = {}
        self._sequences: dict[str, _Sequence] = {}
        self._cancels: set[str] = set()
        self._events: list[EngineEvent] = []
        self._counts: Counter[str] = Counter()

    # EngineCore

    def submit(self, task: StageTask) -> None:
        """See `EngineCore.submit`."""
        self._arrivals[task.id] = task

    def cancel(self, task: str) -> None:
        """See `EngineCore.cancel`."""
        if task in self._arrivals or task in self._jobs:
            self._cancels.add(task)

    @property
    def busy(self) -> bool:
        """See `EngineCore.busy`."""
        return bool(self._arrivals or self._jobs or self._cancels)

    def step(self) -> list[EngineEvent]:
        """See `EngineCore.step`: admit what has arrived, and one step of vLLM."""
        self._apply_cancels()
        self._admit()
        if self._sequences:
            self._run()
        events, self._events = self._events, []
        return events

    def stats(self) -> dict[str, Any]:
        """See `EngineCore.stats`."""
        scheduler = self._scheduler
        return {
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting) + len(self._arrivals),
            "kv_usage": scheduler.kv_cache_manager.usage,
            "preemptions": scheduler.preemptions,
            "steps": self._counts["steps"],
            "prompt_tokens": self._counts["prompt_tokens"],
            "prefix_hit_tokens": self._counts["prefix_hit_tokens"],
            "generated_tokens": self._counts["generated_tokens"],
        }

    def check_integrity(self) -> None:
        """See `EngineCore.check_integrity`."""
        assert not self._jobs.keys() & self._arrivals.keys()
        for name, job in self._jobs.items():
            assert job.task.id == name
            assert job.open, f"{name} waits for nothing"
        owned = {name for job in self._jobs.values() for name in job.open}
        assert owned == self._sequences.keys()
        assert len(self._sequences) == self._llm.get_num_unfinished_requests()
        if not owned:
            assert self._scheduler.kv_cache_manager.usage == 0, "KV blocks leak"
            assert not len(hidden_rows), "hidden states leak"

    @property
    def _scheduler(self) -> Any:
        return self._llm.engine_core.engine_core.scheduler

    # admitting

    def _admit(self) -> None:
        arrivals, self._arrivals = self._arrivals, {}
        for task in arrivals.values():
            try:
                self._start(task)
            except OmniStageError as error:
                self._fail(task, error)
            except Exception as error:
                log.exception("stage %s could not start", self._stage)
                words = f"Stage {self._stage} failed: {type(error).__name__}: {error}"
                self._fail(task, JobFailed(words, stage=self._stage))

    def _start(self, task: StageTask) -> None:
        """Hand a task's sequences to vLLM, all or none."""
        job = _Job(task)
        requests = self._program.prepare(task.params, task.inputs)
        try:
            for index, request in enumerate(requests):
                sequence = _Sequence(f"{task.id}/{index}", job, index, request)
                self._add(sequence)
                job.open[sequence.name] = sequence
        except BaseException:
            self._llm.abort_request(list(job.open))
            raise
        self._sequences |= job.open
        self._jobs[task.id] = job
        self._events.append(EngineEvent(task.id, "started"))

    def _add(self, sequence: _Sequence) -> None:
        request = sequence.request
        try:
            self._llm.add_request(
                sequence.name,
                dict(request.prompt),
                _params(sequence),
                priority=-sequence.job.task.priority,
            )
        except (ValueError, VLLMClientError) as error:  # its words for input it refuses
            raise _refusal(error) from error

    def _apply_cancels(self) -> None:
        cancels, self._cancels = self._cancels, set()
        for name in cancels:
            task, job = self._arrivals.pop(name, None), self._jobs.pop(name, None)
            if job is not None:
                self._forget(job)
            if task is not None or job is not None:
                self._events.append(EngineEvent(name, "cancelled"))

    def _forget(self, job: _Job) -> None:
        """Take what is left of a job from vLLM."""
        self._llm.abort_request(list(job.open))
        for name in job.open:
            del self._sequences[name]
            hidden_rows.drop(name)

    # running

    def _run(self) -> None:
        if self._scheduler.all_held():
            time.sleep(_HELD_PAUSE_S)  # vLLM would spin: every request waits for rows
            return
        self._counts["steps"] += 1
        for output in self._llm.step():
            sequence = self._sequences.get(output.request_id)
            if sequence is not None:
                self._take(sequence, output)
        self._send_text()

    def _take(self, sequence: _Sequence, output: Any) -> None:
        """Take a step's output of one sequence."""
        reason = None
        if sequence.request.sampling is not None:
            (piece,) = output.outputs
            sequence.tokens += piece.token_ids
            sequence.text.append(piece.text)
            self._counts["generated_tokens"] += len(piece.token_ids)
            reason = piece.finish_reason
            if sequence.request.streamed and piece.text:
                sequence.job.unsent.append(piece.text)
        if output.finished:
            self._end_sequence(sequence, output, reason)

    def _end_sequence(self, sequence: _Sequence, output: Any, reason: str | None) -> None:
        job = sequence.job
        del self._sequences[sequence.name], job.open[sequence.name]
        cached = output.num_cached_tokens or 0
        self._counts["prompt_tokens"] += len(output.prompt_token_ids)
        self._counts["prefix_hit_tokens"] += cached
        try:
            if reason not in (None, "stop", "length"):
                raise JobFailed(f"vLLM ended the request: {reason}.", stage=self._stage)
            job.results[sequence.index] = self._result(sequence, output, reason, cached)
            if not job.open:
                self._finish(job)
        except OmniStageError as error:
            self._break(job, error)
        except Exception as error:
            log.exception("stage %s failed", self._stage)
            words = f"Stage {self._stage} failed: {type(error).__name__}: {error}"
            self._break(job, JobFailed(words, stage=self._stage))

    def _result(
        self, sequence: _Sequence, output: Any, reason: str | None, cached: int
    ) -> ARResult:
        prompt = list(output.prompt_token_ids)
        hidden: dict[int, torch.Tensor] = {}
        if sequence.request.hidden_layers:
            rows = hidden_rows.take(sequence.name, len(prompt) + len(sequence.tokens) - 1)
            hidden = {layer: rows[layer] for layer in sequence.request.hidden_layers}
        pooled = None if sequence.request.sampling is not None else output.outputs.data
        return ARResult(
            text="".join(sequence.text),
            token_ids=tuple(sequence.tokens),
            prompt_ids=prompt,
            finish_reason=reason,
            cached_tokens=cached,
            pooled=pooled,
            hidden=hidden,
        )

    def _finish(self, job: _Job) -> None:
        task = job.task
        results = [job.results[index] for index in sorted(job.results)]
        outputs = self._program.outputs(task.params, task.inputs, results)
        self._send(job)
        del self._jobs[task.id]
        self._events.append(EngineEvent(task.id, "done", outputs=outputs))

    def _break(self, job: _Job, error: OmniStageError) -> None:
        """One sequence failed: so does its job."""
        self._forget(job)
        del self._jobs[job.task.id]
        self._fail(job.task, error)

    def _fail(self, task: StageTask, error: OmniStageError) -> None:
        self._events.append(EngineEvent(task.id, "failed", error=error))

    # streaming

    def _send_text(self) -> None:
        now_s = self._clock()
        interval_s = max(_TEXT_INTERVAL_S, len(self._jobs) * _ALL_TEXT_INTERVAL_S)
        for job in self._jobs.values():
            if job.unsent and now_s >= job.text_due_s:
                job.text_due_s = now_s + interval_s
                self._send(job)

    def _send(self, job: _Job) -> None:
        """Send what was written and not sent yet."""
        if not job.unsent:
            return
        text, job.unsent = "".join(job.unsent), []
        sequence = next(iter(job.open.values()), None)
        written = len(sequence.tokens) if sequence else 0
        event = EngineEvent(
            job.task.id,
            "text",
            text=text,
            step=written,
            total=int(job.task.params.get("max_tokens", 0)) if written else 0,
            batch=len(self._scheduler.running),
        )
        self._events.append(event)


def _params(sequence: _Sequence) -> SamplingParams | PoolingParams:
    request = sequence.request
    if request.sampling is None:
        return PoolingParams(task="token_embed", use_activation=False)
    sampling: dict[str, Any] = dict(request.sampling)
    schema = sampling.pop("json_schema", "")
    if schema:
        sampling["structured_outputs"] = StructuredOutputsParams(json=schema)
    if request.hidden_layers:
        # A hit in the prefix cache would leave the rows of its tokens uncomputed.
        sampling |= {"extra_args": {KEY: sequence.name}, "skip_reading_prefix_cache": True}
    return SamplingParams(output_kind=RequestOutputKind.DELTA, **sampling)


def _refusal(error: Exception) -> InvalidRequest:
    """VLLM's refusal in our form; which input it means is in its words only."""
    words = str(error)
    name = next((name for mark, name in _MARKS.items() if mark in words.lower()), "prompt")
    return InvalidRequest(f"{name} is refused: {words}", field=name)
