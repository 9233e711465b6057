"""Write all tiny checkpoints into a folder: `python -m omnistage.tests.fakes.checkpoints DIR`."""

import sys
from pathlib import Path

from omnistage.runtime.models.torchvision_ops import make_torchvision_importable


def main(folder: Path) -> None:
    """Write those that are not there yet."""
    make_torchvision_importable()
    from .tiny_diffusion import CHECKPOINTS

    for name, write in CHECKPOINTS.items():
        if not any((folder / name).glob("*model_index.json")):
            write(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
