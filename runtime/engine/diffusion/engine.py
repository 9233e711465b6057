"""The diffusion core: admit requests, pick calls, run them, resume their requests."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
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
from .preview import preview_jpeg
from .profile import profile
from .request import Request
from .settings import EngineSettings

log = logging.getLogger(__name__)

Clock = Callable[[], float]

_SERVED_HALF_LIFE_S = 30.0


class DiffusionEngine:
    """Runs stages of diffusion models for many requests, one forward pass a step.

    All requests run in the thread that calls `step`, under one `inference_mode`, so that the
    grad-mode contexts of interleaved requests cannot leak into each other.
    """

    def __init__(
        self,
        load: Mapping[str, Callable[[], LoadedModel]],
        settings: EngineSettings,
        *,
        device: torch.device | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._load = load
        self._settings = settings
        self._device = device or torch.device("cpu")
        self._clock = clock
        self._key = policy_key(settings.policy, settings)
        self._models: dict[str, LoadedModel] = {}
        self._arrivals: dict[str, tuple[StageTask, float]] = {}
        self._requests: dict[str, Request] = {}
        self._parts: dict[str, list[tuple[str, Frame | None]]] = {}
        self._cancels: set[str] = set()
        self._events: list[EngineEvent] = []
        self._costs = CostModel()
        self._served = _ServedTime()
        self._counts: Counter[str] = Counter()
        self._largest_batch = 0

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
            if not self._load_missing_model():
                self._admit()
                self._hand_over_parts()
                self._forward()
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
            "models": {name: model.nbytes for name, model in self._models.items()},
        }

    def check_integrity(self) -> None:
        """See `EngineCore.check_integrity`."""
        assert not self._requests.keys() & self._arrivals.keys()
        for name, request in self._requests.items():
            assert request.task.id == name
            assert not request.finished, f"{name} has ended but is still in the table"
            assert request.pending or request.hungry, f"{name} waits for nothing"
            assert all(call.request is request for call in request.pending)

    # admitting

    def _load_missing_model(self) -> bool:
        """Load the first model an arrival waits for; whether this step was spent on it."""
        missing = [task for task, _ in self._arrivals.values() if task.model not in self._models]
        if not missing:
            return False
        model = missing[0].model
        try:
            self._models[model] = self._load[model]()
        except OmniStageError as error:
            self._refuse(model, error)
        except Exception as error:
            log.exception("loading model %s failed", model)
            words = f"Model {model} could not be loaded: {_in_words(error)}"
            self._refuse(model, ModelLoadFailed(words, field="model", value=model))
        return True

    def _refuse(self, model: str, error: OmniStageError) -> None:
        """Fail every arrival that waits for a model."""
        for task, _ in list(self._arrivals.values()):
            if task.model == model:
                del self._arrivals[task.id]
                self._finish(task, "failed", error=error)

    def _admit(self) -> None:
        arrivals, self._arrivals = self._arrivals, {}
        for task, arrived_s in arrivals.values():
            request = Request(
                task,
                self._models[task.model],
                mode=self._settings.mode,
                strict=self._settings.strict or bool(task.params.get("strict")),
                arrived_s=arrived_s,
            )
            self._events.append(EngineEvent(task.id, "started"))
            inputs = {n: to_bundle(frame, self._device) for n, frame in task.inputs.items()}
            self._requests[task.id] = request
            self._advance(request, partial(request.start, inputs))

    def _hand_over_parts(self) -> None:
        """Give parts to their requests, and resume those that waited for them."""
        parts, self._parts = self._parts, {}
        for name, fed in parts.items():
            request = self._requests.get(name)
            if request is None:
                continue
            for input_name, part in fed:
                bundle = None if part is None else to_bundle(part, self._device)
                request.feed(input_name, bundle)
            if request.idle:
                self._advance(request, request.resume)

    def _apply_cancels(self) -> None:
        cancels, self._cancels = self._cancels, set()
        for name in cancels:
            arrival = self._arrivals.pop(name, None)
            request = self._requests.pop(name, None)
            if request is not None:
                request.cancel()
            task = arrival[0] if arrival else request.task if request else None
            if task is not None:
                self._finish(task, "cancelled")

    # running

    def _forward(self) -> None:
        """Run the forward that the policy puts first, and resume whoever it completes."""
        calls = list(self._waiting_calls())
        if not calls:
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
        for request in {id(c.request): c.request for c in batch.calls}.values():
            self._deliver(request, batch, seconds)

    def _waiting_calls(self) -> Iterator[ModuleCall]:
        """Pending calls of all requests, most urgent first."""
        now_s = self._clock()
        facts = [self._facts(request, now_s) for request in self._requests.values()]
        for name in order(self._key, facts, now_s):
            yield from (call for call in self._requests[name].pending if not call.done)

    def _facts(self, request: Request, now_s: float) -> RequestFacts:
        step_s = sum(self._curve(call).estimate_s(call.tokens) for call in request.pending)
        steps = max(request.total - request.step, 1)
        return RequestFacts(
            request=request.task.id,
            arrived_s=request.arrived_s,
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
        self._served.add(request.task.client, share, self._clock())
        self._preview(request, own[0])
        if all(call.done for call in request.pending):
            self._advance(request, request.resume)

    def _advance(self, request: Request, go: Callable[[], None]) -> None:
        """Let a request run until it suspends or ends, and report how it ended."""
        task = request.task
        try:
            go()
        except OmniStageError as error:
            self._end(request, "failed", error=error)
        except Exception as error:
            log.exception("stage %s of model %s failed", task.stage, task.model)
            words = f"Stage {task.stage} of model {task.model} failed: {_in_words(error)}"
            self._end(request, "failed", error=JobFailed(words, stage=task.stage))
        else:
            self._events += request.events
            request.events = []
            if request.finished:
                outputs = {n: to_frame(b) for n, b in (request.outputs or {}).items()}
                self._end(request, "done", outputs=outputs)

    def _end(self, request: Request, kind: Any, **facts: Any) -> None:
        del self._requests[request.task.id]
        self._finish(request.task, kind, **facts)

    def _finish(self, task: StageTask, kind: Any, **facts: Any) -> None:
        self._events.append(EngineEvent(task.id, kind, **facts))

    def _preview(self, request: Request, call: ModuleCall) -> None:
        model, now_s = request.model, self._clock()
        wanted = request.task.previews and call.method == model.denoiser and call.error is None
        if not wanted or model.preview is None or model.latent_to_rgb is None:
            return
        if now_s < request.preview_due_s:
            return
        request.preview_due_s = now_s + self._settings.preview_interval_ms / 1000
        latents = model.preview(call.arguments, call.result)
        image = preview_jpeg(latents, model.latent_to_rgb, self._settings.preview_px)
        event = EngineEvent(
            request.task.id,
            "preview",
            step=request.step,
            total=request.total,
            batch=request.batch,
            image=image,
        )
        self._events.append(event)

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
        start_s = time.perf_counter()
        work()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter() - start_s


class _ServedTime:
    """Device time each client has had lately: halves every 30 s, so that history fades."""

    def __init__(self) -> None:
        self._served: dict[str, tuple[float, float]] = {}

    def of(self, client: str, now_s: float) -> float:
        """Seconds of device time, faded to `now_s`."""
        seconds, since_s = self._served.get(client, (0.0, now_s))
        return float(seconds * 0.5 ** ((now_s - since_s) / _SERVED_HALF_LIFE_S))

    def add(self, client: str, seconds: float, now_s: float) -> None:
        """Charge a client."""
        self._served[client] = (self.of(client, now_s) + seconds, now_s)
        if len(self._served) > 1000:
            least = min(self._served, key=lambda c: self.of(c, now_s))
            del self._served[least]


def _in_words(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "the device is out of memory; a smaller size or count may fit."
    return f"{type(error).__name__}: {error}"
