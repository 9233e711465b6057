"""State dicts of diffusers' modules in the names their models were published with."""

from __future__ import annotations

import re

import torch


def _renamed(tensors, rules):
    out = {}
    for name, tensor in tensors.items():
        for pattern, new in rules:
            name = re.sub(pattern, new, name)  # noqa: PLW2901
        out[name] = tensor
    return out


def _joined(tensors, target, sources):
    """Several layers as one: weights and biases one above the other."""
    for kind in ("weight", "bias"):
        parts = [tensors.pop(f"{source}.{kind}", None) for source in sources]
        if parts[0] is not None:
            tensors[f"{target}.{kind}"] = torch.cat(parts)


def z_image(tensors):
    out = _renamed(
        tensors,
        [
            (r"all_final_layer\.2-1\.", "final_layer."),
            (r"all_x_embedder\.2-1\.", "x_embedder."),
            (r"attention\.to_out\.0", "attention.out"),
            (r"attention\.norm_([qk])", r"attention.\1_norm"),
        ],
    )
    for name in [name for name in out if name.endswith("attention.to_q.weight")]:
        block = name.removesuffix("to_q.weight")
        _joined(out, f"{block}qkv", [f"{block}to_{x}" for x in "qkv"])
    return out


def wan(tensors):
    return _renamed(
        tensors,
        [
            (r"^condition_embedder\.time_embedder\.linear_1", "time_embedding.0"),
            (r"^condition_embedder\.time_embedder\.linear_2", "time_embedding.2"),
            (r"^condition_embedder\.text_embedder\.linear_1", "text_embedding.0"),
            (r"^condition_embedder\.text_embedder\.linear_2", "text_embedding.2"),
            (r"^condition_embedder\.time_proj", "time_projection.1"),
            (r"ffn\.net\.0\.proj", "ffn.0"),
            (r"ffn\.net\.2", "ffn.2"),
            (r"\.to_out\.0\.", ".o."),
            (r"\.to_([qkv])\.", r".\1."),
            (r"attn1", "self_attn"),
            (r"attn2", "cross_attn"),
            (r"\.norm2\.", ".norm_between."),
            (r"\.norm3\.", ".norm2."),
            (r"\.norm_between\.", ".norm3."),
            (r"^scale_shift_table$", "head.modulation"),
            (r"scale_shift_table$", "modulation"),
            (r"^proj_out", "head.head"),
        ],
    )


def sd3(tensors):
    out = _renamed(
        tensors,
        [
            (r"^pos_embed\.pos_embed$", "pos_embed"),
            (r"^pos_embed\.proj", "x_embedder.proj"),
            (r"^time_text_embed\.timestep_embedder\.linear_1", "t_embedder.mlp.0"),
            (r"^time_text_embed\.timestep_embedder\.linear_2", "t_embedder.mlp.2"),
            (r"^time_text_embed\.text_embedder\.linear_1", "y_embedder.mlp.0"),
            (r"^time_text_embed\.text_embedder\.linear_2", "y_embedder.mlp.2"),
            (r"^proj_out", "final_layer.linear"),
            (r"^norm_out\.linear", "final_layer.adaLN_modulation.1"),
            (r"^transformer_blocks\.", "joint_blocks."),
            (r"\.norm1\.linear", ".x_block.adaLN_modulation.1"),
            (r"\.norm1_context\.linear", ".context_block.adaLN_modulation.1"),
            (r"\.ff\.net\.0\.proj", ".x_block.mlp.fc1"),
            (r"\.ff\.net\.2", ".x_block.mlp.fc2"),
            (r"\.ff_context\.net\.0\.proj", ".context_block.mlp.fc1"),
            (r"\.ff_context\.net\.2", ".context_block.mlp.fc2"),
            (r"\.(attn2?)\.to_out\.0", r".x_block.\1.proj"),
            (r"\.(attn2?)\.norm_([qk])\.", r".x_block.\1.ln_\2."),
            (r"\.attn\.norm_added_([qk])\.", r".context_block.attn.ln_\1."),
            (r"\.attn\.to_add_out", ".context_block.attn.proj"),
        ],
    )
    blocks = {name.split(".")[1] for name in out if name.startswith("joint_blocks.")}
    for block in blocks:
        base = f"joint_blocks.{block}"
        for own in ("attn", "attn2"):
            _joined(out, f"{base}.x_block.{own}.qkv", [f"{base}.{own}.to_{x}" for x in "qkv"])
        context = [f"{base}.attn.add_{x}_proj" for x in "qkv"]
        _joined(out, f"{base}.context_block.attn.qkv", context)
    last = f"joint_blocks.{max(map(int, blocks))}.context_block.adaLN_modulation.1"
    for layer in (last, "final_layer.adaLN_modulation.1"):
        for kind in ("weight", "bias"):
            scale, shift = out[f"{layer}.{kind}"].chunk(2)
            out[f"{layer}.{kind}"] = torch.cat([shift, scale])
    return out


def flux(tensors):
    out = _renamed(
        tensors,
        [
            (r"^x_embedder", "img_in"),
            (r"^context_embedder", "txt_in"),
            (r"^time_text_embed\.timestep_embedder\.linear_1", "time_in.in_layer"),
            (r"^time_text_embed\.timestep_embedder\.linear_2", "time_in.out_layer"),
            (r"^time_text_embed\.text_embedder\.linear_1", "vector_in.in_layer"),
            (r"^time_text_embed\.text_embedder\.linear_2", "vector_in.out_layer"),
            (r"^time_text_embed\.guidance_embedder\.linear_1", "guidance_in.in_layer"),
            (r"^time_text_embed\.guidance_embedder\.linear_2", "guidance_in.out_layer"),
            (r"^norm_out\.linear", "final_layer.adaLN_modulation.1"),
            (r"^proj_out", "final_layer.linear"),
            (r"^transformer_blocks\.", "double_blocks."),
            (r"^single_transformer_blocks\.", "single_blocks."),
            (r"norm1\.linear", "img_mod.lin"),
            (r"norm1_context\.linear", "txt_mod.lin"),
            (r"attn\.to_out\.0", "img_attn.proj"),
            (r"attn\.to_add_out", "txt_attn.proj"),
            (r"\.ff\.net\.0\.proj", ".img_mlp.0"),
            (r"\.ff\.net\.2", ".img_mlp.2"),
            (r"\.ff_context\.net\.0\.proj", ".txt_mlp.0"),
            (r"\.ff_context\.net\.2", ".txt_mlp.2"),
            (r"(double_blocks\.\d+)\.attn\.norm_q\.weight", r"\1.img_attn.norm.query_norm.scale"),
            (r"(double_blocks\.\d+)\.attn\.norm_k\.weight", r"\1.img_attn.norm.key_norm.scale"),
            (r"attn\.norm_added_q\.weight", "txt_attn.norm.query_norm.scale"),
            (r"attn\.norm_added_k\.weight", "txt_attn.norm.key_norm.scale"),
            (r"(single_blocks\.\d+)\.attn\.norm_q\.weight", r"\1.norm.query_norm.scale"),
            (r"(single_blocks\.\d+)\.attn\.norm_k\.weight", r"\1.norm.key_norm.scale"),
            (r"(single_blocks\.\d+)\.norm\.linear", r"\1.modulation.lin"),
            (r"(single_blocks\.\d+)\.proj_out", r"\1.linear2"),
        ],
    )
    for name in [name for name in out if name.endswith("attn.to_q.weight")]:
        block = name.removesuffix(".attn.to_q.weight")
        own = [f"{block}.attn.to_{x}" for x in "qkv"]
        if block.startswith("single"):
            _joined(out, f"{block}.linear1", [*own, f"{block}.proj_mlp"])
        else:
            _joined(out, f"{block}.img_attn.qkv", own)
            _joined(out, f"{block}.txt_attn.qkv", [f"{block}.attn.add_{x}_proj" for x in "qkv"])
    return out


def kl_vae(tensors, blocks=4):
    """Stable Diffusion's VAE; attention's linear layers are convolutions there."""
    rules = [
        (r"downsamplers\.0\.conv", "downsample.conv"),
        (r"upsamplers\.0\.conv", "upsample.conv"),
        (r"down_blocks\.(\d+)\.resnets\.", r"down.\1.block."),
        (r"down_blocks\.(\d+)\.", r"down.\1."),
        (r"mid_block\.resnets\.0", "mid.block_1"),
        (r"mid_block\.resnets\.1", "mid.block_2"),
        (r"mid_block\.attentions\.0\.group_norm", "mid.attn_1.norm"),
        (r"mid_block\.attentions\.0\.to_([qkv])", r"mid.attn_1.\1"),
        (r"mid_block\.attentions\.0\.to_out\.0", "mid.attn_1.proj_out"),
        (r"conv_norm_out", "norm_out"),
        (r"conv_shortcut", "nin_shortcut"),
    ]
    for i in range(blocks):
        rules += [
            (rf"up_blocks\.{i}\.resnets\.", f"up.{blocks - 1 - i}.block."),
            (rf"up_blocks\.{i}\.", f"up.{blocks - 1 - i}."),
        ]
    out = _renamed(tensors, rules)
    return {
        name: tensor[:, :, None, None] if "attn_1" in name and tensor.ndim == 2 else tensor
        for name, tensor in out.items()
    }


def controlnet_xl(tensors, layers_per_block=1):
    """A ControlNet in the names of the first ones."""

    def down(match):
        block, kind, layer = int(match[1]), match[2], match[3]
        first = 1 + block * (layers_per_block + 1)
        if kind == "downsamplers":
            return f"input_blocks.{first + layers_per_block}.0.op."
        return f"input_blocks.{first + int(layer)}.{int(kind == 'attentions')}."

    resnet = [
        (r"norm1", "in_layers.0"),
        (r"conv1", "in_layers.2"),
        (r"norm2", "out_layers.0"),
        (r"conv2", "out_layers.3"),
        (r"time_emb_proj", "emb_layers.1"),
        (r"conv_shortcut", "skip_connection"),
    ]
    renamed = _renamed(
        tensors,
        [
            (r"^controlnet_cond_embedding\.conv_in", "input_hint_block.0"),
            (r"^controlnet_cond_embedding\.conv_out", "input_hint_block.14"),
            (
                r"^controlnet_cond_embedding\.blocks\.(\d)",
                lambda match: f"input_hint_block.{2 * int(match[1]) + 2}",
            ),
            (r"^controlnet_down_blocks\.(\d+)", r"zero_convs.\1.0"),
            (r"^controlnet_mid_block", "middle_block_out.0"),
            (r"^time_embedding\.linear_1", "time_embed.0"),
            (r"^time_embedding\.linear_2", "time_embed.2"),
            (r"^add_embedding\.linear_1", "label_emb.0.0"),
            (r"^add_embedding\.linear_2", "label_emb.0.2"),
            (r"^conv_in", "input_blocks.0.0"),
            (r"^down_blocks\.(\d)\.(downsamplers)\.(0)\.conv\.", down),
            (r"^down_blocks\.(\d)\.(resnets|attentions)\.(\d)\.", down),
            (r"^mid_block\.resnets\.0", "middle_block.0"),
            (r"^mid_block\.attentions\.0", "middle_block.1"),
            (r"^mid_block\.resnets\.1", "middle_block.2"),
        ],
    )
    attentive = re.compile(r"(input_blocks\.\d+|middle_block)\.1\.")
    return {
        new: tensor
        for name, tensor in renamed.items()
        for new in _renamed({name: tensor}, [] if attentive.match(name) else resnet)
    }


def flux2_vae(tensors, blocks=4):
    return _renamed(
        kl_vae(tensors, blocks),
        [(r"^quant_conv", "encoder.quant_conv"), (r"^post_quant_conv", "decoder.post_quant_conv")],
    )


def wan_vae(tensors):
    """The VAE of Wan 2.1 and Qwen-Image."""

    def up(match):
        return f"decoder.upsamples.{4 * int(match[1]) + int(match[2])}."

    return _renamed(
        tensors,
        [
            (r"^quant_conv", "conv1"),
            (r"^post_quant_conv", "conv2"),
            (r"coder\.conv_in", "coder.conv1"),
            (r"norm_out", "head.0"),
            (r"coder\.conv_out", "coder.head.2"),
            (r"mid_block\.resnets\.0", "middle.0"),
            (r"mid_block\.attentions\.0", "middle.1"),
            (r"mid_block\.resnets\.1", "middle.2"),
            (r"decoder\.up_blocks\.(\d)\.resnets\.(\d)\.", up),
            (
                r"decoder\.up_blocks\.(\d)\.upsamplers\.0\.",
                lambda match: f"decoder.upsamples.{4 * int(match[1]) + 3}.",
            ),
            (r"encoder\.down_blocks\.", "encoder.downsamples."),
            (r"\.norm1\.", ".residual.0."),
            (r"(samples\.\d+|middle\.\d)\.conv1\.", r"\1.residual.2."),
            (r"\.norm2\.", ".residual.3."),
            (r"(samples\.\d+|middle\.\d)\.conv2\.", r"\1.residual.6."),
            (r"conv_shortcut", "shortcut"),
        ],
    )
