"""Checkpoints of modular pipelines, as diffusers lays them out: `modular_model_index.json`."""

import diffusers


def save_modular(folder, blocks, components, **configs):
    """Write components for diffusers' blocks of that name, and values of their configs."""
    pipeline = getattr(diffusers, blocks)().init_pipeline()
    pipeline.update_components(**components, **configs)
    pipeline.save_pretrained(str(folder), overwrite_modular_index=True)
