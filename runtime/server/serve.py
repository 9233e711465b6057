"""Run the server until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace

from aiohttp import web

from ..config import Config
from ..models.location import SMOLLM2
from ..models.smollm2 import make_smollm2_in_background
from ..protocol.errors import OmniStageError
from .app import build_app, build_services

log = logging.getLogger(__name__)

_SHUTDOWN_TIMEOUT_S = 5.0


class CannotListen(OmniStageError):
    """The address is taken, or not one of this machine."""

    code = "cannot_listen"


async def serve(config: Config, *, tied: bool = False, boot_id: str | None = None) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        config: the whole configuration.
        tied: stop when standard input ends, too: whoever started this has gone.
        boot_id: what whoever started this knows it by; None makes one up.

    Raises:
        CannotListen: says why.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    listener = listen(config.server.host, config.server.port)
    if any(model.source == SMOLLM2 for model in config.models.values()):
        make_smollm2_in_background()  # or whoever asks for the models first would wait for it
    services = build_services(config)
    app = build_app(services if boot_id is None else replace(services, boot_id=boot_id))
    runner = web.AppRunner(
        app, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_TIMEOUT_S, access_log=None
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        host, port = listener.getsockname()[:2]
        log.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)
        if tied:
            await _on_end_of_input(stop.set)
        await stop.wait()
        log.info("shutting down")
    finally:
        await runner.cleanup()


def listen(host: str, port: int) -> socket.socket:
    """Take the port before anything is started: a taken port must not cost an engine start.

    Raises:
        CannotListen: says why.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # or another, too, could bind to it
    except OSError as error:
        raise CannotListen(
            f"Cannot listen on {host}:{port}: {error.strerror or error}. Choose another with "
            "--port, or stop what uses it.",
            field="server.port",
            value=port,
        ) from error
    listener.setblocking(False)
    return listener


async def _on_end_of_input(then: Callable[[], None]) -> None:
    """Call `then` when standard input, a pipe, is closed."""

    class Watch(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            then()

    await asyncio.get_running_loop().connect_read_pipe(Watch, sys.stdin)
