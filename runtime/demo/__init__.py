"""The embedded demo checkpoint: a tiny text-to-image model that draws simple shapes.

Owns the data (captions, drawings), the recogniser, the training and the evaluation of
``checkpoints/qwen-image-shapes``. Knows nothing of the engine that serves it.
"""

# Importing it makes the model libraries importable beside the torchvision there is.
from .. import models  # noqa: F401
