"""The stand-in for a module inside a request: calls suspend, everything else reads through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .request import Request

SUSPENDING = frozenset({"encode", "decode"})
"""Methods that compute, besides the call itself."""

_REFUSED = frozenset({"to", "cuda", "cpu", "half", "float", "train", "requires_grad_"})
"""Methods that would change the module for every other request too."""


class ModuleProxy:
    """Looks like the module to the model's code; its calls go to the engine."""

    def __init__(self, request: Request, name: str, module: torch.nn.Module) -> None:
        self.__dict__.update(_request=request, _name=name, _module=module, _context=None)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The module's class: diffusers asks with isinstance."""
        return type(self._module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Suspend the request until the module's forward ran."""
        return self._request.call(self, "__call__", args, kwargs)

    def __getattr__(self, name: str) -> Any:
        """The module's own attribute; methods that compute suspend."""
        if name in _REFUSED:
            raise AttributeError(
                f"{name}() would change module {self._name!r} for every other request"
            )
        if name in SUSPENDING:
            return self._suspending(name)
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refused: modules are shared between requests and hold no request state."""
        raise AttributeError(f"module {self._name!r} is shared; {name!r} cannot be set on it")

    @contextmanager
    def cache_context(self, name: str, **info: Any) -> Iterator[None]:
        """Step caches are per request: remember the context's name on the calls made in it."""
        outer, self.__dict__["_context"] = self._context, name
        try:
            yield
        finally:
            self.__dict__["_context"] = outer

    def _suspending(self, method: str) -> Callable[..., Any]:
        def suspend(*args: Any, **kwargs: Any) -> Any:
            return self._request.call(self, method, args, kwargs)

        return suspend


def parts(proxy: ModuleProxy) -> tuple[str, torch.nn.Module, str | None]:
    """A proxy's module name, its module, and the cache context it is in."""
    state = proxy.__dict__
    return state["_name"], state["_module"], state["_context"]
