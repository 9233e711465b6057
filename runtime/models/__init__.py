"""Model families: one module each, with its stages, its parameters and its defaults.

Importing a family is cheap: torch, diffusers and transformers are imported by the functions
that load and run a model, so that the server can describe and check requests without them.
"""

from .torchvision_ops import make_torchvision_importable

# Here, because any of these libraries may import it, and whoever imports them imports this first.
make_torchvision_importable()
