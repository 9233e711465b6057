"""The diffusion core: admit requests, pick calls, run them, resume their requests."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from ...models.program import LoadedModel
from ...models.wire import to_bundle, to_frame
from ...protocol.errors import JobFailed, ModelLoadFailed, OmniStageError
from ...protocol.frames import Frame
from ..core import EngineEvent, StageTask
from .batch import Batch, pick
from .call import ModuleCall
from .cost import CostCurve, CostModel
from .policy import RequestFacts, order, policy_key
from .previews import Previews
from .profile import profile
from .request import Request
from .residency import HOST, Key, Residency
from .served_time import ServedTime
from .settings import EngineSettings

log = logging.getLogger(__name__)

Clock = Callable[[], float]


class DiffusionEngine:
    """Runs stages of diffusion models for many requests, one forward pass a step.

    All requests run in the thread that calls `step`, under one `inference_mode`, so that the
    grad-mode contexts of interleaved requests cannot leak into each other.

    Args:
        load: by model, what makes it ready; its modules' weights are loaded when they are needed.
        settings: policy, merging and previews.
        device: where forwards run.
        residency: what may be in memory; without one, there is no limit.
        offload: models whose weights come to the device layer by layer.
        clock: tells when requests arrive and what forwards take.
    """

    def __init__(
        self,
        load: Mapping[str, Callable[[], LoadedModel]],
        settings: EngineSettings,
        *,
        device: torch.device | None = None,
        residency: Residency | None = None,
        offload: Collection[str] = (),
        clock: Clock = time.monotonic,
    ) -> None:
        self._load = load
        self._settings = settings
        self._device = device or HOST
        self._residency = residency or Residency(self._device)
        self._offload = frozenset(offload)
        self._clock = clock
        self._key = policy_key(settings.policy, settings)
        self._models: dict[str, LoadedModel] = {}
        self._arrivals: dict[str, tuple[StageTask, float]] = {}
        self._requests: dict[str, Request] = {}
        self._ready: dict[str, Request] = {}
        self._parts: dict[str, list[tuple[str, Frame | None]]] = {}
        self._cancels: set[str] = set()
        self._events: list[EngineEvent] = []
        self._costs = CostModel()
        self._served = ServedTime()
        self._previews = Previews(settings, self._residency)
        self._counts: Counter[str] = Counter()
        self._largest_batch = 0
        self._loaded_for: ModuleCall | None = None

    # EngineCore

    def submit(self, task: StageTask) -> None:
        """See `EngineCore.submit`."""
        self._arrivals[task.id] = (task, self._clock())

    def feed(self, task: str, name: str, part: Frame | None) -> None:
        """See `EngineCore.feed`."""
        if task in self._arrivals or task in self._requests:
            self._parts.setdefault(task, []).append((name, part))

    def cancel(self, task: str) -> None:
        """See `EngineCore.cancel`."""
        if task in self._arrivals or task in self._requests:
            self._cancels.add(task)

    @property
    def busy(self) -> bool:
        """See `EngineCore.busy`."""
        if self._arrivals or self._cancels or self._parts:
            return True
        return not all(request.idle for request in self._requests.values())

    def step(self) -> list[EngineEvent]:
        """See `EngineCore.step`: one forward pass, or one model load."""
        with torch.inference_mode():
            self._apply_cancels()
            self._admit()
            self._hand_over_parts()
            self._run_ready()
            if not self._load_next():
                self._forward()
            self._run_ready()
        events, self._events = self._events, []
        return events

    def stats(self) -> dict[str, Any]:
        """See `EngineCore.stats`."""
        forwards = self._counts["forwards"]
        return {
            "waiting": len(self._arrivals),
            "running": len(self._requests),
            "forwards": forwards,
            "rows": self._counts["rows"],
            "denoise_forwards": self._counts["denoise_forwards"],
            "denoise_requests": self._counts["denoise_requests"],
            "denoise_padding": self._counts["denoise_padding"],
            "mean_batch": self._counts["requests"] / forwards if forwards else 0.0,
            "peak_batch": self._largest_batch,
            **self._residency.stats(),
        }

    def check_integrity(self) -> None:
        """See `EngineCore.check_integrity`."""
        assert not self._requests.keys() & self._arrivals.keys()
        for name, request in self._requests.items():
            assert request.task.id == name
            assert not request.finished, f"{name} has ended but is still in the table"
            waits = request.pending or request.hungry or request.wanted
            assert waits, f"{name} waits for nothing"
            assert all(call.request is request for call in request.pending)
        self._residency.check_integrity()

    # admitting

    def _admit(self) -> None:
        """Start the arrivals whose models are open."""
        arrivals, self._arrivals = self._arrivals, {}
        for name, (task, arrived_s) in arrivals.items():
            if task.model not in self._models:
                self._arrivals[name] = (task, arrived_s)
                continue
            request = Request(
                task,
                self._models[task.model],
                partial(self._residency.module, task.model),
                mode=self._settings.mode,
                strict=self._settings.strict or bool(task.params.get("strict")),
                arrived_s=arrived_s,
            )
            self._events.append(EngineEvent(task.id, "started"))
            inputs = {n: to_bundle(frame, self._device) for n, frame in task.inputs.items()}
            request.give(inputs)
            self._requests[task.id] = self._ready[task.id] = request

    def _hand_over_parts(self) -> None:
        """Give parts to their requests, and resume those that waited for them."""
        parts, self._parts = self._parts, {}
        for name, fed in parts.items():
            request = self._requests.get(name)
            if request is None:
                if name in self._arrivals:
                    self._parts[name] = fed
                continue
            for input_name, part in fed:
                bundle = None if part is None else to_bundle(part, self._device)
                request.feed(input_name, bundle)
            if request.idle:
                self._ready[name] = request

    def _apply_cancels(self) -> None:
        cancels, self._cancels = self._cancels, set()
        for name in cancels:
            arrival = self._arrivals.pop(name, None)
            if arrival is not None:
                self._finish(arrival[0], "cancelled")
            elif name in self._requests:
                self._ready[name] = request = self._requests[name]
                request.cancelled = True

    # loading

    def _load_next(self) -> bool:
        """Load the next thing that something waits for; whether this step was spent on it."""
        if self._loaded_for is not None or self._forwards_are_owed():
            return False
        opened = self._open_model() or self._build_module()
        return opened or self._previews.fit_next(self._needed)

    def _forwards_are_owed(self) -> bool:
        return self._residency.owed_s > 0 and any(map(self._can_run, self._waiting_calls()))

    def _open_model(self) -> bool:
        """Open the first model an arrival waits for."""
        missing = [task for task, _ in self._arrivals.values() if task.model not in self._models]
        if not missing:
            return False
        name = missing[0].model
        try:
            model = self._load[name]()
            self._residency.adopt(name, model, offload=name in self._offload)
            self._models[name] = model
        except Exception as error:  # noqa: BLE001 - the border to the model's code
            self._refuse(name, _load_failure(name, error))
        return True

    def _refuse(self, model: str, error: OmniStageError) -> None:
        """Fail every arrival that waits for a model."""
        for task, _ in list(self._arrivals.values()):
            if task.model == model:
                del self._arrivals[task.id]
                self._finish(task, "failed", error=error)

    def _build_module(self) -> bool:
        """Build the module that the most urgent request without one waits for."""
        if not any(request.wanted for request in self._requests.values()):
            return False
        wanting = [request for request in self._by_urgency() if request.wanted]
        model, module = wanting[0].task.model, wanting[0].wanted or ""
        try:
            self._residency.build(model, module, self._needed())
        except Exception as error:  # noqa: BLE001 - the border to the model's code
            failure = _load_failure(model, error)
            for request in wanting:
                if (request.task.model, request.wanted) == (model, module):
                    request.load_error = failure
        for request in wanting:
            if (request.task.model, request.wanted) == (model, module):
                request.wanted = None
                self._go_on(request)
        return True

    def _load_weights(self, call: ModuleCall) -> None:
        """Load what a call needs; its forward is next, before anything can be evicted."""
        model, module = _home(call)
        try:
            self._residency.load(model, module, self._needed())
            self._loaded_for = call
        except Exception as error:  # noqa: BLE001 - the border to the model's code
            failure = _load_failure(model, error)
            failed = [c for c in self._waiting_calls() if _home(c) == (model, module)]
            for waiting in failed:
                waiting.error, waiting.done = failure, True
            for request in {id(c.request): c.request for c in failed}.values():
                self._go_on(request)

    def _needed(self) -> set[Key]:
        """Modules that calls wait for."""
        return {_home(call) for call in self._waiting_calls()}

    def _can_run(self, call: ModuleCall) -> bool:
        return self._residency.ready(*_home(call))

    # running

    def _forward(self) -> None:
        """Run the forward that goes first, and resume whoever it completes.

        If its weights are not in memory, they are loaded instead, and it runs in the next step.
        """
        calls = self._in_order(list(self._waiting_calls()))
        if not calls:
            return
        if not self._can_run(calls[0]):
            self._load_weights(calls[0])
            return
        curve = self._curve(calls[0])
        if self._settings.profile and not curve.profiled and calls[0].key is not None:
            profile(calls[0], curve, self._timed)
        batch = pick(
            calls,
            max_rows=self._settings.max_rows,
            full_tokens=curve.full_tokens(self._settings.full_at),
        )
        seconds = self._timed(lambda: self._count(batch, batch.run()))
        curve.observe(batch.tokens, seconds)
        self._residency.use(*_home(calls[0]))
        self._residency.owed_s -= seconds
        for request in {id(c.request): c.request for c in batch.calls}.values():
            self._deliver(request, batch, seconds)

    def _in_order(self, calls: list[ModuleCall]) -> list[ModuleCall]:
        """Calls by urgency, but first the one that weights were loaded for.

        While forwards are owed, those go first that need no load.
        """
        first, self._loaded_for = self._loaded_for, None
        if first not in calls and self._residency.owed_s > 0:
            first = next(filter(self._can_run, calls), None)
        if first not in calls:
            return calls
        return [first, *(call for call in calls if call is not first)]

    def _by_urgency(self) -> list[Request]:
        """All requests, the most urgent first."""
        now_s = self._clock()
        facts = [self._facts(request, now_s) for request in self._requests.values()]
        return [self._requests[name] for name in order(self._key, facts, now_s)]

    def _waiting_calls(self) -> Iterator[ModuleCall]:
        """Pending calls of all requests, most urgent first."""
        for request in self._by_urgency():
            yield from (call for call in request.pending if not call.done)

    def _facts(self, request: Request, now_s: float) -> RequestFacts:
        step_s = sum(self._curve(call).estimate_s(call.tokens) for call in request.pending)
        steps = max(request.total - request.step, 1)
        return RequestFacts(
            request=request.task.id,
            arrived_s=request.arrived_s,
            in_loop=request.total > 0,
            remaining_s=step_s * steps,
            client_served_s=self._served.of(request.task.client, now_s),
            priority=request.task.priority,
        )

    def _curve(self, call: ModuleCall) -> CostCurve:
        merge = call.key[2] if isinstance(call.key, tuple) else None
        return self._costs.curve((call.request.task.model, call.method, merge))

    def _deliver(self, request: Request, batch: Batch, seconds: float) -> None:
        own = [call for call in batch.calls if call.request is request]
        share = seconds * sum(call.tokens for call in own) / max(batch.tokens, 1)
        request.batch = batch.requests
        now_s = self._clock()
        self._served.add(request.task.client, share, now_s)
        preview = self._previews.of(request, own[0], now_s)
        if preview is not None:
            self._events.append(preview)
        self._go_on(request)

    def _go_on(self, request: Request) -> None:
        """Resume a request if nothing that it waits for is missing."""
        if not request.wanted and all(call.done for call in request.pending):
            self._ready[request.task.id] = request

    def _run_ready(self) -> None:
        """Let each request that can go on run until it suspends or ends; see `Request.run`."""
        while self._ready:
            request = self._ready.pop(next(iter(self._ready)))
            try:
                request.run()
            except Exception as error:  # noqa: BLE001 - the border to the model's code
                self._fail(request, error)
            else:
                self._events += request.events
                request.events = []
                if request.cancelled:
                    self._end(request, "cancelled")
                elif request.finished:
                    outputs = {n: to_frame(b) for n, b in (request.outputs or {}).items()}
                    self._end(request, "done", outputs=outputs)

    def _fail(self, request: Request, error: Exception) -> None:
        task = request.task
        if request.cancelled:  # it failed at ending
            self._end(request, "cancelled")
        elif isinstance(error, OmniStageError):
            self._end(request, "failed", error=error)
        else:
            log.error("stage %s of model %s failed", task.stage, task.model, exc_info=error)
            words = f"Stage {task.stage} of model {task.model} failed: {_in_words(error)}"
            self._end(request, "failed", error=JobFailed(words, stage=task.stage))

    def _end(self, request: Request, kind: Any, **facts: Any) -> None:
        del self._requests[request.task.id]
        self._finish(request.task, kind, **facts)

    def _finish(self, task: StageTask, kind: Any, **facts: Any) -> None:
        self._events.append(EngineEvent(task.id, kind, **facts))

    def _count(self, batch: Batch, forwards: int) -> None:
        self._counts.update(forwards=forwards, rows=batch.rows, requests=batch.requests)
        if batch.calls[0].method == batch.calls[0].request.model.denoiser:
            self._counts.update(
                denoise_forwards=forwards,
                denoise_requests=batch.requests,
                denoise_padding=batch.padding,
            )
            self._largest_batch = max(self._largest_batch, batch.requests)

    def _timed(self, work: Callable[[], object]) -> float:
        """Run `work` and return the seconds it took on the device."""
        start_s = self._clock()
        work()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return self._clock() - start_s


def _home(call: ModuleCall) -> Key:
    """The module that a call is of, for the engine's residency."""
    return call.request.task.model, call.method[0]


def _load_failure(model: str, error: Exception) -> OmniStageError:
    """Why a model cannot be loaded; logs what nobody foresaw."""
    if isinstance(error, OmniStageError):
        return error
    log.error("loading model %s failed", model, exc_info=error)
    words = f"Model {model} could not be loaded: {_in_words(error)}"
    return ModelLoadFailed(words, field="model", value=model)


def _in_words(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "the device is out of memory; a smaller size or count may fit."
    return f"{type(error).__name__}: {error}"
