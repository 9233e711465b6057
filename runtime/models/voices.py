"""The voices a speaking model has, read without loading the model."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..protocol.errors import ModelLoadFailed

SPEAKERS: Final = "spk_dict.pt"
"""Qwen2.5-Omni's voices, as transformers saves them."""

_USUAL: Final = "chelsie"
_MAX_BYTES: Final = 1 << 22
_OF_PICKLE: Final = (pickle.UnpicklingError, AttributeError, EOFError, IndexError, KeyError)
"""What reading a broken pickle may raise; one such file must not hide the other models."""


def voices_of(config: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """Names of the voices in lower case, the usual one first; none: it cannot speak.

    Args:
        config: the checkpoint's `config.json`.
        folder: the checkpoint's.

    Raises:
        ModelLoadFailed: the list of voices is corrupt.
    """
    own = config.get("talker_config", {}).get("speaker_id") or _speakers(folder / SPEAKERS)
    names = sorted({str(name).lower() for name in own})
    return tuple(sorted(names, key=lambda name: name != _USUAL))


def _speakers(path: Path) -> list[str]:
    """The keys of a file that `torch.save` wrote; no tensor is made and no code of it runs."""
    if not path.exists():
        return []
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = (n for n in archive.namelist() if n.endswith("/data.pkl"))
            if archive.getinfo(name).file_size > _MAX_BYTES:
                raise ValueError("it is too long")
            return list(_Keys(io.BytesIO(archive.read(name))).load())
    except (*_OF_PICKLE, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise ModelLoadFailed(f"The file {path} is corrupt: {error}", field=path.name) from error


class _Inert:
    """Stands in for whatever a pickle wants to make."""

    def __init__(self, *args: object) -> None:
        pass


class _Keys(pickle.Unpickler):
    """Reads the plain values of a pickle; everything else becomes inert."""

    def find_class(self, module: str, name: str) -> Any:
        """No class is looked up."""
        return _Inert

    def persistent_load(self, pid: Any) -> Any:
        """No storage is read."""
        return _Inert()
