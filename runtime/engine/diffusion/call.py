"""A suspended module call, and the pending tensor that stands for its result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from ...models.call_spec import CallSpec, Method
from ...models.lora_rows import Loras, same_for_all
from .hooks import Install, hooked

if TYPE_CHECKING:
    from .request import Request


@dataclass(frozen=True, slots=True)
class CacheContext:
    """The `cache_context` a model's code makes a call in: `cond`, `uncond` ...

    Attributes:
        info: where in the schedule it is, if the model says so: `step_index`, `sigma`.
    """

    name: str
    info: Mapping[str, Any]


@dataclass(eq=False, slots=True)
class ModuleCall:
    """One call of one method of a module, waiting to be run.

    Attributes:
        method: the module's name in its model, and the method's name.
        arguments: bound to the forward's own parameter names.
        key: what must match to share a forward; None means it runs alone.
        rows, tokens: size of the work; tokens counts all rows.
        context: `cache_context` the model made the call in, if any.
        loras: adapters its request wants on this module.
        install: puts hooks on the module; they are there while the call runs, alone.
    """

    request: Request
    module: torch.nn.Module
    method: Method
    arguments: Mapping[str, Any]
    spec: CallSpec | None
    key: Hashable | None = None
    rows: int = 1
    tokens: int = 1
    context: CacheContext | None = None
    loras: Loras = ()
    install: Install | None = None
    done: bool = False
    result: Any = field(default=None, repr=False)
    error: Exception | None = None

    def run_alone(self) -> Any:
        """Run the module for this call only, exactly as its caller wrote it."""
        name = self.method[1]
        function = self.module if name == "__call__" else getattr(self.module, name)
        with ExitStack() as around:
            if self.loras:
                around.enter_context(same_for_all(self.module, self.method[0], self.loras))
            if self.install is not None:
                around.enter_context(hooked(self.module, self.install))
            return function(**self.arguments)

    def outcome(self) -> Any:
        """The result, or the error the module raised for this call."""
        if self.error is not None:
            raise self.error
        return self.result


def bind(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """All arguments of a call by the parameter names of the function.

    Raises:
        TypeError: the arguments do not fit, or cannot be given by name.
    """
    signature = _signature(getattr(function, "__func__", function))
    if not args:
        return kwargs
    # an unbound method's first parameter is self
    unbound = args if not inspect.ismethod(function) else (function.__self__, *args)
    bound = signature.bind(*unbound, **kwargs)
    named: dict[str, Any] = {}
    for name, value in list(bound.arguments.items())[len(unbound) - len(args) :]:
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            raise TypeError(f"{name} cannot be given by name")
        else:
            named[name] = value
    return named


@lru_cache(maxsize=1024)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


class PendingTensor(torch.Tensor):
    """The result of a call that has not run yet.

    The first operation that uses it suspends the request until all its pending calls ran. So
    calls that do not depend on each other, like the two halves of classifier-free guidance,
    reach the engine together although the model's code makes them one after the other.
    """

    call: ModuleCall

    @staticmethod
    def of(call: ModuleCall) -> PendingTensor:
        """A stand-in for the first element of `call`'s result."""
        tensor = torch.Tensor._make_subclass(PendingTensor, torch.empty(0))
        tensor.call = call
        return tensor

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Replace pending tensors by their values, then do what was asked."""
        return func(*_resolve(args), **_resolve(kwargs or {}))


def _resolve(item: Any) -> Any:
    """`item` with every pending tensor in it, however nested, replaced by its value."""
    if isinstance(item, PendingTensor):
        if not item.call.done:
            item.call.request.wait()
        return item.call.outcome()[0]
    if isinstance(item, (list, tuple)):
        return type(item)(_resolve(x) for x in item)
    if isinstance(item, dict):
        return {k: _resolve(v) for k, v in item.items()}
    return item
