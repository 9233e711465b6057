"""The models that example workflows name, tiny and of random weights, and what else they load."""

from diffusers import QwenImageTransformer2DModel
from PIL import Image

from omnistage.runtime.config import Config

from .lora_files import lora_weights, save
from .tiny_diffusion import CHECKPOINTS
from .tiny_text import TEXT_CHECKPOINTS

FAMILIES = {
    "wan": "wan",
    "wan-image": "wan_i2v",
    "flux2-klein": "flux2_klein",
    "qwen-image": "qwen_image_controlnet",
}
"""By a model's name in the workflows, the checkpoint that stands for it."""

TEXT_FAMILIES = {"llada2": "llada2"}
"""The same, of models whose text is denoised."""

ADAPTED = "qwen-image"
LORAS = ("style", "subject")
CONTROLNET = "union"

PICTURE = {"width": 96, "height": 64, "steps": 4}
FILM = {**PICTURE, "frames": 9}
SMALL = {
    "text_to_video": FILM,
    "image_to_video": FILM,
    "reference_edit": PICTURE,
    "lora": PICTURE,
    "control": PICTURE,
    "text_diffusion": {},
}
"""By the name of a workflow of these models, what to ask of its nodes on a CPU."""

EXAMPLE = "example.png"
"""The picture in every ComfyUI's folder of inputs."""


def settings(folder):
    """Write all checkpoints and adapters below a folder; returns `--set`'s words for them."""
    for name, family in FAMILIES.items():
        CHECKPOINTS[family](folder / name)
    for name, family in TEXT_FAMILIES.items():
        TEXT_CHECKPOINTS[family](folder / name)
    transformer = QwenImageTransformer2DModel.from_pretrained(folder / ADAPTED / "transformer")
    for seed, name in enumerate(LORAS):
        save(folder / ADAPTED / "loras", name, lora_weights(transformer, seed=seed, size=0.3))
    names = (*FAMILIES, *TEXT_FAMILIES)
    controlnet = folder / ADAPTED / "controlnet"
    return [
        *(f"models.{name}.source={folder / name}" for name in names),
        f"models.{ADAPTED}.controlnets.{CONTROLNET}={controlnet}",
    ]


def settings_of_own_models():
    """`--set`'s words for the models that come along: those that are set replace them."""
    return list(_words(Config().model_dump(include={"models"})["models"], "models."))


def _words(tree, prefix):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _words(value, f"{prefix}{name}.")
        elif value not in (None, []):
            yield f"{prefix}{name}={value}"


def save_picture(folder, name=EXAMPLE, colour="orange", ground="steelblue"):
    """Put a picture of two colours into ComfyUI's folder of inputs."""
    picture = Image.new("RGB", (96, 64), ground)
    picture.paste(colour, (24, 16, 72, 48))
    picture.save(folder / name)
