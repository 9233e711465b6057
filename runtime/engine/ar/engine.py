"""The autoregressive engine core: tasks become sequences of vLLM, sequences become results.

vLLM owns scheduling, batching, the paged KV cache and sampling. Here is only what a task is to
us: one sequence or a few, an input that comes in parts, outputs that go out in parts, and one end.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vllm.exceptions import VLLMClientError
from vllm.v1.engine.llm_engine import LLMEngine

from ...models.ar_stage import ARStage
from ...protocol.errors import InvalidRequest, JobFailed, OmniStageError
from ...protocol.frames import Frame
from ..core import EngineEvent, StageTask
from .jobs import Job, Sequence
from .rows import conditioning_rows, hidden_rows

log = logging.getLogger(__name__)

_INTERVAL_S = 0.03
"""Text and parts of a job go out at most so often; its first at once."""
_ALL_INTERVAL_S = 0.005
"""Those of all jobs together: what listens to many streams must not slow down the model."""
_MARKS = {"schema": "json_schema", "grammar": "json_schema", "at most": "media"}
"""Words by which to tell what a refusal of vLLM is about; else it is the prompt."""


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
        self._followers: dict[str, StageTask] = {}
        self._parts: dict[str, list[Frame | None]] = {}
        self._jobs: dict[str, Job] = {}
        self._sequences: dict[str, Sequence] = {}
        self._cancels: set[str] = set()
        self._stuck = False
        self._events: list[EngineEvent] = []
        self._counts: Counter[str] = Counter()

    # EngineCore

    def submit(self, task: StageTask) -> None:
        """See `EngineCore.submit`; one that follows an input costs nothing until that begins."""
        (self._followers if task.followed else self._arrivals)[task.id] = task

    def feed(self, task: str, name: str, part: Frame | None) -> None:
        """See `EngineCore.feed`; a stage here follows one input, so its name says nothing."""
        if task in self._followers:
            self._arrivals[task] = self._followers.pop(task)
        if task in self._arrivals or task in self._jobs:
            self._parts.setdefault(task, []).append(part)

    def cancel(self, task: str) -> None:
        """See `EngineCore.cancel`."""
        if any(task in tasks for tasks in (self._arrivals, self._followers, self._jobs)):
            self._cancels.add(task)

    @property
    def busy(self) -> bool:
        """See `EngineCore.busy`; where all wait for rows, only `feed` gives it something to do."""
        return self._changed or self._can_run

    def step(self) -> list[EngineEvent]:
        """See `EngineCore.step`: admit what has arrived, and one step of vLLM."""
        self._stuck = self._stuck and not self._changed
        self._apply_cancels()
        self._admit()
        self._feed_jobs()
        if self._can_run:
            self._run()
        events, self._events = self._events, []
        return events

    def stats(self) -> dict[str, Any]:
        """See `EngineCore.stats`."""
        scheduler = self._scheduler
        waiting = len(scheduler.waiting) + len(self._arrivals) + len(self._followers)
        return {
            "running": len(scheduler.running),
            "waiting": waiting,
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
        assert not self._followers.keys() & (self._jobs.keys() | self._arrivals.keys())
        assert self._parts.keys() <= self._jobs.keys() | self._arrivals.keys()
        for name, job in self._jobs.items():
            assert job.task.id == name
            assert job.open, f"{name} waits for nothing"
        admitted = {name for job in self._jobs.values() for name in job.admitted}
        assert admitted == self._sequences.keys()
        assert len(admitted) == self._llm.get_num_unfinished_requests()
        if not admitted:
            assert self._scheduler.kv_cache_manager.usage == 0, "KV blocks leak"
            assert not len(hidden_rows), "hidden states leak"
        if not self._jobs:
            assert not len(conditioning_rows), "conditioning rows leak"

    @property
    def _changed(self) -> bool:
        """Whether something was asked for since the last step."""
        return bool(self._arrivals or self._parts or self._cancels)

    @property
    def _can_run(self) -> bool:
        """Whether a step of vLLM would do something.

        Not if all wait for rows, nor if what does not has no room until one of those has ended.
        """
        return bool(self._sequences) and not self._stuck and not self._scheduler.all_held()

    @property
    def _scheduler(self) -> Any:
        return self._llm.engine_core.engine_core.scheduler

    # admitting

    def _admit(self) -> None:
        arrivals, self._arrivals = self._arrivals, {}
        for task in arrivals.values():
            with self._failing(task):
                self._start(task)

    def _feed_jobs(self) -> None:
        fed, self._parts = self._parts, {}
        for name, parts in fed.items():
            job = self._jobs[name]
            with self._failing(job.task):
                self._grow(job, parts)

    def _start(self, task: StageTask) -> None:
        """Begin a task: all of its sequences, or none."""
        requests = self._program.prepare(task.params, {**task.inputs, **self._first_part(task)})
        job = self._jobs[task.id] = Job(task)
        for index, request in enumerate(requests):
            sequence = Sequence.of(job, index, request)
            job.open[sequence.name] = sequence
            if request.rows is not None and not task.followed:  # what it follows came whole
                self._parts[task.id] = [task.inputs[request.follows], None]
        self._add_ready(job)
        self._events.append(EngineEvent(task.id, "started"))

    def _first_part(self, task: StageTask) -> dict[str, Frame]:
        if not task.followed:
            return {}
        (name,), part = task.followed, self._parts[task.id][0]
        if part is None:
            raise JobFailed(f"Input {name} ended before it began.", stage=self._stage)
        return {name: part}

    def _grow(self, job: Job, parts: list[Frame | None]) -> None:
        """Give a job the next parts of the input that it follows."""
        for sequence in job.open.values():
            if sequence.conditioning is not None:
                for part in parts:
                    sequence.feed(part)
        self._add_ready(job)

    def _add_ready(self, job: Job) -> None:
        """Hand to vLLM those sequences of a job that can begin."""
        for sequence in job.open.values():
            if not sequence.admitted and sequence.ready:
                self._add(sequence)
                sequence.admitted = True
                self._sequences[sequence.name] = sequence

    def _add(self, sequence: Sequence) -> None:
        try:
            self._llm.add_request(
                sequence.name,
                dict(sequence.request.prompt),
                sequence.params(),
                priority=-sequence.job.task.priority,
            )
        except (ValueError, VLLMClientError) as error:  # its words for input it refuses
            raise _refusal(error) from error

    def _apply_cancels(self) -> None:
        cancels, self._cancels = self._cancels, set()
        for name in cancels:
            if any(name in tasks for tasks in (self._arrivals, self._followers, self._jobs)):
                self._forget(name)
                self._events.append(EngineEvent(name, "cancelled"))

    # ending early

    @contextmanager
    def _failing(self, task: StageTask) -> Iterator[None]:
        """A task fails if the block does."""
        try:
            yield
        except OmniStageError as error:
            self._fail(task, error)
        except Exception as error:
            log.exception("stage %s failed", self._stage)
            words = f"Stage {self._stage} failed: {type(error).__name__}: {error}"
            self._fail(task, JobFailed(words, stage=self._stage))

    def _fail(self, task: StageTask, error: OmniStageError) -> None:
        self._forget(task.id)
        self._events.append(EngineEvent(task.id, "failed", error=error))

    def _forget(self, name: str) -> None:
        """Free all that there is of a task, in vLLM too."""
        for tasks in (self._arrivals, self._followers, self._parts):
            tasks.pop(name, None)
        job = self._jobs.pop(name, None)
        if job is None:
            return
        self._llm.abort_request(job.admitted)
        for sequence in job.admitted:
            del self._sequences[sequence]
        job.close()

    # running

    def _run(self) -> None:
        self._counts["steps"] += 1
        for output in self._llm.step():
            sequence = self._sequences.get(output.request_id)
            if sequence is not None:
                with self._failing(sequence.job.task):
                    self._take(sequence, output)
        self._stuck = self._scheduler.stuck
        self._stream()

    def _take(self, sequence: Sequence, output: Any) -> None:
        """Take a step's output of one sequence."""
        sequence.prompt = sequence.prompt or tuple(output.prompt_token_ids)
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
            self._end(sequence, output, reason)

    def _end(self, sequence: Sequence, output: Any, reason: str | None) -> None:
        """VLLM is done with a sequence; with its last one, a job is done."""
        job = sequence.job
        del self._sequences[sequence.name]
        sequence.admitted = False
        if reason not in (None, "stop", "length"):
            raise JobFailed(f"vLLM ended the request: {reason}.", stage=self._stage)
        result = sequence.result(output, reason)
        self._counts["prompt_tokens"] += len(result.prompt_ids)
        self._counts["prefix_hit_tokens"] += result.cached_tokens
        self._send_parts(sequence, last=True)
        job.results[sequence.index] = result
        del job.open[sequence.name]
        sequence.close()
        if not job.open:
            self._finish(job)

    def _finish(self, job: Job) -> None:
        task = job.task
        results = [job.results[index] for index in sorted(job.results)]
        outputs = self._program.outputs(task.params, task.inputs, results)
        self._send_text(job)
        self._forget(task.id)
        self._events.append(EngineEvent(task.id, "done", outputs=outputs))

    # streaming

    def _stream(self) -> None:
        """Send what has come since the last time, of the jobs whose time it is.

        It is that of all if now they wait: nothing more comes until they are fed.
        """
        now_s, waits = self._clock(), not self._can_run
        interval_s = max(_INTERVAL_S, len(self._jobs) * _ALL_INTERVAL_S)
        for job in list(self._jobs.values()):
            if waits or now_s >= job.due_s:
                with self._failing(job.task):
                    sent = len(self._events)
                    self._send_text(job)
                    for sequence in job.open.values():
                        self._send_parts(sequence, last=False)
                    if len(self._events) > sent:
                        job.due_s = now_s + interval_s

    def _send_text(self, job: Job) -> None:
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

    def _send_parts(self, sequence: Sequence, *, last: bool) -> None:
        """Send the next parts of what a sequence's stage streams."""
        make = sequence.request.part
        if make is None or not sequence.tokens:
            return
        for news in sequence.news(last=last):
            outputs = make(news)
            if outputs:
                step = len(sequence.tokens)
                self._events.append(
                    EngineEvent(sequence.job.task.id, "part", step=step, outputs=outputs)
                )


def _refusal(error: Exception) -> InvalidRequest:
    """VLLM's refusal in our form; which input it means is in its words only."""
    words = str(error)
    name = next((name for mark, name in _MARKS.items() if mark in words.lower()), "prompt")
    return InvalidRequest(f"{name} is refused: {words}", field=name)
