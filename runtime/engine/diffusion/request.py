"""One task's coroutine: its pending calls, its progress, and how it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import greenlet
import torch

from ...models.lora_rows import Loras
from ...models.program import Bundle, LoadedModel, enter_stage
from ...models.wire import to_frame
from ..core import EngineEvent, EngineEventKind, StageTask
from .adapters import keep_apart
from .call import ModuleCall, PendingTensor, bind
from .collate import collator_for
from .proxy import ModuleProxy, parts
from .settings import MergeMode


class Cancelled(BaseException):
    """Raised in a coroutine to end it; no model code should catch it."""


class Request:
    """A stage's program, run as a coroutine that suspends at module calls.

    Also the `StageContext` the program sees.

    Attributes:
        pending: calls the request waits for; empty while it runs.
        hungry: it waits for the next part of an input.
        wanted: name of a module that it waits for, because that is not loaded yet.
        load_error: why it cannot have that.
        cancelled: it is to end where it stands, the next time that it runs.
        step, total: denoising steps finished, of how many; 0 before they are known.
        arrived_s: engine clock at submission.
        batch: requests in the last forward this request had a part in.
        served_s: seconds of device time spent on it so far.
    """

    def __init__(
        self,
        task: StageTask,
        model: LoadedModel,
        find: Callable[[str], torch.nn.Module | None],
        *,
        mode: MergeMode,
        strict: bool,
        arrived_s: float,
    ) -> None:
        self.task = task
        self.model = model
        self._find = find
        self.mode: MergeMode = "single" if strict else mode
        self.strict = strict
        self.arrived_s = arrived_s
        self.pending: list[ModuleCall] = []
        self.step = 0
        self.total = 0
        self.batch = 0
        self.served_s = 0.0
        self.preview_due_s = 0.0
        self.events: list[EngineEvent] = []
        self.hungry = False
        self.wanted: str | None = None
        self.load_error: Exception | None = None
        self.cancelled = False
        self._loras: Loras = ()
        self._inputs: Mapping[str, Bundle] = {}
        self._parts: dict[str, deque[Bundle | None]] = {name: deque() for name in task.followed}
        self._proxies: dict[str, ModuleProxy] = {}
        self._coroutine = greenlet.greenlet(self._run)

    # what the program sees

    def module(self, name: str) -> ModuleProxy:
        """See `StageContext.module`."""
        if name not in self._proxies:
            self._proxies[name] = ModuleProxy(self, name, self._find(name))
        return self._proxies[name]

    def begin_steps(self, total: int) -> None:
        """See `StageContext.begin_steps`."""
        self.step, self.total = 0, total

    def end_step(self) -> None:
        """See `StageContext.end_step`."""
        self.step += 1
        self._tell("progress")

    def write(self, text: str) -> None:
        """See `StageContext.write`."""
        self._tell("text", text=text)

    def parts(self, name: str) -> Iterator[Bundle]:
        """See `StageContext.parts`."""
        if name not in self._parts:
            yield self._inputs[name]
            return
        queue = self._parts[name]
        while True:
            while not queue:
                self.hungry = True
                self.wait()
            part = queue.popleft()
            if part is None:
                return
            yield part

    def emit(self, **outputs: Bundle) -> None:
        """See `StageContext.emit`."""
        frames = {name: to_frame(bundle) for name, bundle in outputs.items()}
        self.events.append(EngineEvent(self.task.id, "part", outputs=frames))

    def _tell(self, kind: EngineEventKind, text: str = "") -> None:
        event = EngineEvent(self.task.id, kind, self.step, self.total, self.batch, text)
        self.events.append(event)

    # what the proxies do

    def loaded(self, name: str) -> torch.nn.Module:
        """A module itself; waits until it is loaded.

        Raises:
            Exception: what loading it raised.
        """
        while (module := self._find(name)) is None:
            if self.load_error is not None:
                raise self.load_error
            self.wanted = name
            self.wait()
        return module

    def call(
        self, proxy: ModuleProxy, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Queue a module call and wait for its result, or leave it pending if that is safe."""
        self._check_cancelled()
        call = self._make_call(proxy, method, args, kwargs)
        self.pending.append(call)
        if self._may_defer(call):
            return (PendingTensor.of(call),)
        self.wait()
        return call.outcome()

    def wait(self) -> None:
        """Suspend until every pending call ran (called inside the coroutine)."""
        engine = self._coroutine.parent
        assert engine is not None, "a running coroutine has whoever resumed it as its parent"
        engine.switch()
        self._check_cancelled()

    def _check_cancelled(self) -> None:
        if self.cancelled:
            raise Cancelled

    # what the engine does

    @property
    def idle(self) -> bool:
        """Whether only another part of an input can make it go on."""
        return self.hungry and not self.pending

    @property
    def finished(self) -> bool:
        """Whether the program has ended."""
        return bool(self._coroutine.dead)

    def give(self, inputs: Mapping[str, Bundle]) -> None:
        """Hand over the inputs, before it first runs."""
        self._inputs = inputs

    def feed(self, name: str, part: Bundle | None) -> None:
        """Put in the next part of an input; None: that was all."""
        self._parts[name].append(part)

    def run(self) -> None:
        """Run the program up to its next suspension, or its end.

        Always to be called from one and the same place: where torch raises an error it walks up
        the stack, and above a coroutine lies what called this when the coroutine first ran.
        """
        self.pending, self.hungry = [], False
        self._coroutine.switch()

    @property
    def outputs(self) -> Mapping[str, Bundle] | None:
        """The program's results, once finished."""
        return self._outputs

    _outputs: Mapping[str, Bundle] | None = None

    def _run(self) -> None:
        enter_stage(self)
        try:
            self._check_cancelled()
            program = self.model.programs[self.task.stage]
            with self._borrowed() as self._loras:
                self._outputs = program(self, self.task.params, self._inputs)
        except Cancelled:
            return

    def _borrowed(self) -> AbstractContextManager[Loras]:
        """The adapters that the task asks for."""
        wanted = self.task.params.get("loras") or []
        if not wanted or self.model.loras is None:
            return nullcontext(())
        return self.model.loras.lent(wanted, self.loaded)

    def _make_call(
        self, proxy: ModuleProxy, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ModuleCall:
        name, module, context, install = parts(proxy)
        function = module.forward if method == "__call__" else getattr(module, method)
        arguments = bind(function, args, kwargs)
        spec = self.model.specs.get((name, method))
        loras = tuple(lent for lent in self._loras if name in lent.adapter.changes)
        call = ModuleCall(
            self,
            module,
            (name, method),
            arguments,
            spec,
            context=context,
            loras=loras,
            install=install,
        )
        collator_for(self.mode, spec).describe(call)
        keep_apart(call)
        if install is not None:
            call.key = None
        return call

    def _may_defer(self, call: ModuleCall) -> bool:
        spec = call.spec
        return (
            spec is not None
            and spec.deferred
            and not self.strict
            and call.arguments.get("return_dict") is False
        )
