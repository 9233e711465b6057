"""What every test needs before it imports a model library."""

from omnistage.runtime.models.torchvision_ops import make_torchvision_importable

make_torchvision_importable()
