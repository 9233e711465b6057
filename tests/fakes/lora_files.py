"""Adapter files made in code, for whichever modules a test has."""

import torch
from safetensors.torch import save_file

QWEN_LAYERS = (
    "img_in",
    "txt_in",
    "time_text_embed.timestep_embedder.linear_1",
    "norm_out.linear",
    "proj_out",
    *(
        f"transformer_blocks.{block}.{layer}"
        for block in (0, 1)
        for layer in (
            "attn.to_q",
            "attn.to_k",
            "attn.to_v",
            "attn.to_out.0",
            "attn.add_q_proj",
            "attn.add_k_proj",
            "attn.add_v_proj",
            "attn.to_add_out",
            "img_mod.1",
            "txt_mod.1",
            "img_mlp.net.2",
            "txt_mlp.net.0.proj",
        )
    ),
)
"""Every kind of layer: on tokens of pictures, tokens of texts, and rows."""


def lora_weights(module, layers=QWEN_LAYERS, *, rank=4, seed=0, size=0.05, prefix="transformer."):
    """An adapter's weights by key, as diffusers writes them."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name in layers:
        out, inside, *kernel = module.get_submodule(name).weight.shape
        down, up = (rank, inside, *kernel), (out, rank, *(1 for _ in kernel))
        for half, shape in (("A", down), ("B", up)):
            values = torch.randn(shape, generator=generator) * size
            weights[f"{prefix}{name}.lora_{half}.weight"] = values
    return weights


def kohya(weights, alpha, prefix="transformer."):
    """The same adapter with Kohya's keys and an alpha."""
    renamed = {}
    for key, value in weights.items():
        name, _, half = key.removeprefix(prefix).partition(".lora_")
        stem = "lora_unet_" + name.replace(".", "_")
        renamed[f"{stem}.lora_{'down' if half[0] == 'A' else 'up'}.weight"] = value
        renamed[f"{stem}.alpha"] = torch.tensor(float(alpha))
    return renamed


def save(folder, name, weights):
    """Write a file."""
    path = folder / f"{name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({key: value.contiguous() for key, value in weights.items()}, path)
    return path
