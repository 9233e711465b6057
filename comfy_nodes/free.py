"""ComfyUI's `/free`, and its buttons that ask for it, free the runtime's memory, too."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ..runtime.client import RuntimeClient
from ..runtime.protocol.errors import OmniStageError

log = logging.getLogger(__name__)

_ASKS = ("unload_models", "free_memory")


async def free_runtime(asked: Mapping[str, Any], client: Callable[[], RuntimeClient]) -> None:
    """Have the runtime unload its models, if that is what ComfyUI is asked for.

    What works goes on, and is unloaded when it is done. A runtime that does not answer is logged:
    ComfyUI frees its own memory all the same.

    Args:
        asked: the body of a `POST /free`.
        client: the client of the configured runtime.
    """
    if not any(asked.get(name) for name in _ASKS):
        return
    try:
        unloading = await client().unload_all()
    except OmniStageError as error:
        log.warning("OmniStage: the runtime's memory was not freed: %s", error.message)
    else:
        log.info("OmniStage: the runtime unloads %s", ", ".join(unloading) or "nothing")
