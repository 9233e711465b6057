"""Bring the table in this folder's README up to date."""

from ..torchvision_ops import make_torchvision_importable

if __name__ == "__main__":
    make_torchvision_importable()
    from .table import write

    write()
