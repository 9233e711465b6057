"""What ComfyUI asks the pack for when it starts."""

from __future__ import annotations

import logging

from comfy_api.latest import ComfyExtension, io

from ..runtime.protocol.errors import OmniStageError
from . import host
from .middleware import make_middleware
from .nodes import NODES
from .pack import Pack, pack, settings
from .queue_ahead import QueueAhead
from .runtimes import Runtimes

log = logging.getLogger(__name__)


class OmniStageExtension(ComfyExtension):
    """The nodes."""

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        """See `ComfyExtension`."""
        return list(NODES)


async def comfy_entrypoint() -> OmniStageExtension:
    """Connect the pack to ComfyUI, and look for the runtime once."""
    try:
        _connect(pack())
        pack().io.start(_start_runtime(pack().runtimes))
        await pack().io.call(pack().catalogue.refresh())
    except Exception:
        log.exception("OmniStage: the node pack could not be loaded")  # ComfyUI drops the traceback
        raise
    return OmniStageExtension()


async def _start_runtime(runtimes: Runtimes) -> None:
    """Start a local runtime now, if the settings want one, rather than with the first prompt."""
    try:
        await runtimes.ready()
    except OmniStageError as error:
        log.warning("OmniStage: %s", error.message)


def _connect(services: Pack) -> None:
    watcher = QueueAhead(
        host.queue,
        host.read_image,
        host.read_audio,
        settings,
        services.runtimes.client,
        services.leases,
    )
    services.io.start(watcher.watch())
    services.io.start(watcher.keep_alive())

    def wake() -> None:
        services.io.loop.call_soon_threadsafe(watcher.wake)
        services.bell.ring()

    host.add_middleware(make_middleware(services, wake))
    host.on_prompt(wake)
