"""Python code that a checkpoint brings along: run only where its user has allowed that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..protocol.errors import ModelLoadFailed

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

_AUTO_MAP: Final = "auto_map"
"""Where transformers keeps the names of a checkpoint's own classes."""


class RemoteModel:
    """Loads a language model by the class that its own folder defines."""

    @staticmethod
    def from_pretrained(folder: Path, **options: Any) -> Any:
        """The model, as transformers' classes give it; runs the folder's code."""
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, **options)


def model_class(checkpoint: Checkpoint, config: Mapping[str, Any]) -> Any:
    """What loads a model of this `config.json`: its class in transformers, or its own code.

    Raises:
        ModelLoadFailed: transformers does not know it, and it brings no code, or such that
            nobody has allowed to run.
    """
    import transformers

    name = str(next(iter(config.get("architectures") or []), "model without a class"))
    cls = getattr(transformers, name, None)
    if isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel):
        return cls
    if _AUTO_MAP not in config:
        raise ModelLoadFailed(
            f"The model in {checkpoint.folder} is a {name}, which is not in the transformers "
            "installed here.",
            field="architectures",
            value=name,
        )
    if not checkpoint.trust_remote_code:
        code = ", ".join(_files(config))
        raise ModelLoadFailed(
            f"The model in {checkpoint.folder} is a {name}, which is not in transformers: loading "
            f"it runs Python code that comes with it ({code}), with all that the runtime may do "
            "on this machine. If you trust that code, set trust_remote_code = true for this model.",
            field="trust_remote_code",
            value=False,
            allowed="true, for code that you trust",
        )
    return RemoteModel


def brings_code(config: Mapping[str, Any]) -> bool:
    """Whether a `config.json` names classes of the checkpoint's own."""
    return _AUTO_MAP in config


def _files(config: Mapping[str, Any]) -> list[str]:
    """The files that are imported, as `repository--file` where they are not in the folder."""
    named = config[_AUTO_MAP].values() if isinstance(config[_AUTO_MAP], dict) else ()
    return sorted({f"{str(name).rpartition('.')[0]}.py" for name in named})
