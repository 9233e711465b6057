"""Where a configured model's files are: here, in a package, a local folder, or the hub cache."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from ..protocol.errors import ModelLoadFailed
from .smollm2 import smollm2_folder

DEMO = "demo"
SMOLLM2 = "smollm2"
VOICE = "voice"
_DEMOS = Path(__file__).parent.parent / "demo"
_EMBEDDED = {
    DEMO: _DEMOS / "checkpoints" / "qwen-image-shapes",
    VOICE: _DEMOS / "speech" / "checkpoints" / "qwen-omni-digits",
}
_WEIGHTS = ("safetensors", "bin", "msgpack", "onnx", "gguf")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def model_folder(source: str, without: Collection[str] = ()) -> Path:
    """The local folder of a model, downloaded from the hub if it is an id and not here yet.

    Args:
        source: `demo`, `voice`, `smollm2`, a folder, or a hub id (`owner/name`) that is not an
            existing folder.
        without: components whose weights are not needed, so not downloaded.

    Raises:
        ModelLoadFailed: the hub cannot be reached and the cache does not hold the id, or see
            `smollm2_folder`.
    """
    if source in _EMBEDDED:
        return _EMBEDDED[source]
    if source == SMOLLM2:
        return smollm2_folder()
    folder = Path(source).expanduser()
    if folder.exists() or not _HUB_ID.fullmatch(source):
        return folder
    return _from_hub(source, without)


def _from_hub(hub_id: str, without: Collection[str]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    unwanted = [f"{component}/*.{kind}" for component in without for kind in _WEIGHTS]
    try:
        return Path(snapshot_download(hub_id, ignore_patterns=unwanted))
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError, OSError) as error:
        raise ModelLoadFailed(
            f"Model {hub_id!r} is not in the local hub cache and could not be downloaded "
            f"({type(error).__name__}). Download it where there is a network, or give the path "
            "of a local folder in diffusers layout.",
            field="path",
            value=hub_id,
        ) from error
