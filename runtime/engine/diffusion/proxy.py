"""The stand-in for a module inside a request: calls suspend, everything else reads through.

A guider that changes the module with hooks would change it for every other request. So it does
not get the module: it says what to put on (`hook_calls`), and that is there only while a call of
this request runs, alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from .call import CacheContext
from .hooks import Install, adds_hooks

if TYPE_CHECKING:
    from .request import Request

SUSPENDING = frozenset({"encode", "decode"})
"""Methods that compute, besides the call itself."""

_REFUSED = frozenset({"to", "cuda", "cpu", "half", "float", "train", "requires_grad_"})
"""Methods that would change the module for every other request too."""


class ModuleProxy:
    """Looks like the module to the model's code; its calls go to the engine.

    The module is asked for when it is first looked at, which suspends until it is loaded.
    """

    def __init__(self, request: Request, name: str, module: torch.nn.Module | None = None) -> None:
        self.__dict__.update(_request=request, _name=name, _context=None, _install=None)
        if module is not None:
            self.__dict__["_module"] = module

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The module's class: diffusers asks with isinstance."""
        return type(self._module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Suspend the request until the module's forward ran."""
        return self._request.call(self, "__call__", args, kwargs)

    def __getattr__(self, name: str) -> Any:
        """The module's own attribute; methods that compute suspend."""
        if name == "_module":
            return self.__dict__.setdefault(name, self._request.loaded(self._name))
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
        """Step caches are per request: calls made in a context carry its name and facts."""
        outer, self.__dict__["_context"] = self._context, CacheContext(name, info)
        try:
            yield
        finally:
            self.__dict__["_context"] = outer

    def hook_calls(self, install: Install) -> None:
        """Make the calls from now on with what `install` puts on the module.

        It is put on and taken off around the forward of each such call, which then shares it with
        no other call. Where `install` puts nothing on, calls are as ever.
        """
        self.__dict__["_install"] = install if adds_hooks(self._module, install) else None

    def unhook_calls(self) -> None:
        """Make the calls from now on without hooks."""
        self.__dict__["_install"] = None

    def _suspending(self, method: str) -> Callable[..., Any]:
        def suspend(*args: Any, **kwargs: Any) -> Any:
            return self._request.call(self, method, args, kwargs)

        return suspend


def parts(
    proxy: ModuleProxy,
) -> tuple[str, torch.nn.Module, CacheContext | None, Install | None]:
    """A proxy's module name, its module, the cache context it is in, and what to put on it."""
    state = proxy.__dict__
    return state["_name"], proxy._module, state["_context"], state["_install"]
