"""Everything the pack asks of ComfyUI's own modules, besides the node API.

Facts about ComfyUI are kept here and nowhere else. Nothing in it knows a runtime.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import comfy.model_management
import comfy.utils
import folder_paths
import nodes
import torch
from comfy.cli_args import args
from comfy_execution.utils import get_executing_context
from PIL import Image
from server import PromptServer

from .planner import QueuedPrompt

if TYPE_CHECKING:
    from aiohttp.typedefs import Middleware

log = logging.getLogger(__name__)


def queue() -> list[QueuedPrompt]:
    """The running prompt, then the waiting ones in the order they will run."""
    running, waiting = PromptServer.instance.prompt_queue.get_current_queue_volatile()
    # An item is (number, id, prompt, extra data, outputs to execute, ...); it grew over time.
    return [
        QueuedPrompt(item[1], item[2], tuple(item[4]), bool(item[3].get("client_id")))
        for item in [*running, *sorted(waiting, key=lambda item: item[:2])]
    ]


def output_nodes(graph: Mapping[str, Any]) -> tuple[str, ...]:
    """Ids of the nodes for whose sake a graph is executed."""
    kinds = nodes.NODE_CLASS_MAPPINGS
    return tuple(
        node_id
        for node_id, node in graph.items()
        if getattr(kinds.get(node["class_type"]), "OUTPUT_NODE", False)
    )


def current_prompt() -> str:
    """Id of the prompt whose node is executing."""
    return str(get_executing_context().prompt_id)


def current_node() -> str:
    """Id of the executing node."""
    return str(get_executing_context().node_id)


def watched() -> bool:
    """Whether a page is connected that shows the executing prompt."""
    return PromptServer.instance.client_id is not None


def stop_if_interrupted() -> None:
    """Raise ComfyUI's own exception if the user pressed Stop."""
    comfy.model_management.throw_exception_if_processing_interrupted()


def show_progress(node: str, value: int, total: int, preview: Image.Image | None = None) -> None:
    """Move a node's progress bar, and show a picture on the node."""
    shown = None if preview is None else ("JPEG", preview, args.preview_size)
    comfy.utils.ProgressBar(total, node_id=node).update_absolute(value, total, shown)


def show_text(node: str, text: str) -> None:
    """Show a text on a node, if a page is connected."""
    if watched():
        PromptServer.instance.send_progress_text(text, node, PromptServer.instance.client_id)


def tell_page(event: str, data: dict[str, Any]) -> None:
    """Send an event of the pack's own to the page that queued the executing prompt, if any."""
    if watched():
        PromptServer.instance.send_sync(event, data, PromptServer.instance.client_id)


def saved_settings() -> dict[str, Any]:
    """What the user set in ComfyUI's settings dialog.

    With several users it is the first one's: a runtime is the server's, not a user's.
    """
    path = Path(folder_paths.get_user_directory()) / "default" / "comfy.settings.json"
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("OmniStage: ComfyUI's settings file cannot be read: %s", error)
        return {}
    return saved if isinstance(saved, dict) else {}


def read_image(name: str) -> tuple[torch.Tensor, torch.Tensor] | None:
    """A picture and its mask as the node `LoadImage` will give them; None if it cannot be read.

    `[B, H, W, C]` and `[B, H, W]`.
    """
    try:
        image, mask = nodes.LoadImage().load_image(name)[:2]
    except (OSError, ValueError) as error:
        log.debug("OmniStage: %s cannot be read ahead: %s", name, error)
        return None
    return image, mask


def read_audio(name: str) -> dict[str, Any] | None:
    """A sound as the node `LoadAudio` will give it; None if it cannot be read."""
    loader = nodes.NODE_CLASS_MAPPINGS["LoadAudio"]
    try:
        found = getattr(loader(), loader.FUNCTION)(audio=name)
    except Exception:  # a border: whatever the decoder raises, the node will say it when it runs
        log.debug("OmniStage: %s cannot be read ahead", name, exc_info=True)
        return None
    # A tuple of outputs, or a `NodeOutput` around one in later versions of ComfyUI.
    sound: dict[str, Any] = getattr(found, "result", found)[0]
    return sound


def add_middleware(middleware: Middleware) -> None:
    """See every HTTP request to ComfyUI."""
    PromptServer.instance.app.middlewares.append(middleware)


def on_prompt(callback: Callable[[], None]) -> None:
    """Call back whenever a prompt is posted, shortly before it is queued."""

    def handler(body: Any) -> Any:
        callback()
        return body

    PromptServer.instance.add_on_prompt_handler(handler)
