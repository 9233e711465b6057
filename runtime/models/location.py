"""Where a configured model's files are: here, in a package, a local folder, or the hub cache."""

from __future__ import annotations

import re
from pathlib import Path

from ..protocol.errors import ModelLoadFailed
from .smollm2 import smollm2_folder

DEMO = "demo"
SMOLLM2 = "smollm2"
_DEMO_FOLDER = Path(__file__).parent.parent / "demo" / "checkpoints" / "qwen-image-shapes"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def model_folder(source: str) -> Path:
    """The local folder of a model, downloaded from the hub if it is an id and not here yet.

    Args:
        source: `demo`, `smollm2`, a folder, or a hub id (`owner/name`) that is not an existing
            folder.

    Raises:
        ModelLoadFailed: the hub cannot be reached and the cache does not hold the id, or see
            `smollm2_folder`.
    """
    if source == DEMO:
        return _DEMO_FOLDER
    if source == SMOLLM2:
        return smollm2_folder()
    folder = Path(source).expanduser()
    if folder.exists() or not _HUB_ID.fullmatch(source):
        return folder
    return _from_hub(source)


def _from_hub(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return Path(snapshot_download(hub_id))
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError, OSError) as error:
        raise ModelLoadFailed(
            f"Model {hub_id!r} is not in the local hub cache and could not be downloaded "
            f"({type(error).__name__}). Download it where there is a network, or give the path "
            "of a local folder in diffusers layout.",
            field="path",
            value=hub_id,
        ) from error
