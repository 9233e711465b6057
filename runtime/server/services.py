"""What the routes answer from."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from ..config import ServerConfig
from ..executor.group import EngineGroup
from ..orchestrator.orchestrator import Orchestrator
from .shelf import ModelShelf


@dataclass(frozen=True)
class Services:
    """Everything behind the routes.

    Attributes:
        lease_ttl_s: how long a lease lasts without being renewed.
        metrics: the text of `/metrics`.
        boot_id: changes with every start: results of an earlier one are gone.
        sockets: open event streams, to be closed at the end.
    """

    config: ServerConfig
    orchestrator: Orchestrator
    engines: EngineGroup
    shelf: ModelShelf
    lease_ttl_s: float
    metrics: Callable[[], bytes]
    boot_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    sockets: set[web.WebSocketResponse] = field(default_factory=set)


SERVICES = web.AppKey("services", Services)
