"""The parts of the pack that live as long as ComfyUI does."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

from . import host
from .bell import Bell
from .catalogue import Catalogue
from .io_loop import IOLoop
from .leases import Leases
from .runtimes import Runtimes
from .settings import Settings


@dataclass(frozen=True, slots=True)
class Pack:
    """The connection to runtimes, shared by all nodes."""

    io: IOLoop
    runtimes: Runtimes
    catalogue: Catalogue
    leases: Leases
    bell: Bell
    """Rings when the user may have pressed Stop."""


def settings() -> Settings:
    """The settings in force now."""
    return Settings.of(os.environ, host.saved_settings())


@cache
def pack() -> Pack:
    """The one pack of this process, made on first use."""
    runtimes = Runtimes(settings)
    return Pack(IOLoop(), runtimes, Catalogue(runtimes), Leases(), Bell())
