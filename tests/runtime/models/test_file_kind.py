"""Files that are no model, whole checkpoints, and quantisations, told from headers."""

from __future__ import annotations

import pytest

from omnistage.runtime.models.file_kind import kind_of, unknown
from omnistage.runtime.models.tensor_file import TensorFile, TensorInfo
from omnistage.runtime.protocol.errors import ModelLoadFailed

QWEN = ("transformer_blocks.0.img_mod.1.weight", "txt_norm.weight")


def file_of(tmp_path, names, dtype="BF16", kind="safetensors"):
    tensors = {name: TensorInfo(dtype, (8, 8)) for name in names}
    return TensorFile(tmp_path / "x.safetensors", kind, tensors, {})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("transformer_blocks.0.attn.to_q.lora_A.weight", "a LoRA"),
        ("lora_unet_double_blocks_0_img_attn_proj.lora_down.weight", "a LoRA"),
        ("lora_te_x.hada_w1_a", "a LoRA"),
        ("control_model.input_blocks.0.0.weight", "a ControlNet"),
        ("controlnet_x_embedder.weight", "a ControlNet"),
        ("emb_params", "an embedding"),
        ("model.1.sub.0.rdb1.conv1.weight", "an upscaler"),
        ("vision_model.encoder.layers.0.mlp.fc1.weight", "a CLIP vision model"),
        ("blk.0.attn_k.weight", "names of llama.cpp"),
        ("distilled_guidance_layer.norms.0.scale", "Chroma"),
    ],
)
def test_what_is_no_model_is_called_by_its_name(tmp_path, name, words):
    with pytest.raises(ModelLoadFailed, match=words) as caught:
        kind_of(file_of(tmp_path, [name, "b"]))
    assert caught.value.field == "x.safetensors"
    assert "x.safetensors" in caught.value.message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.weight_scale_2", "NVFP4"),
        ("a.weight.quant_state.bitsandbytes__nf4", "bitsandbytes"),
        ("a.qweight", "SVDQuant"),
    ],
)
def test_quantisations_without_a_loader(tmp_path, name, words):
    with pytest.raises(ModelLoadFailed, match=words):
        kind_of(file_of(tmp_path, [*QWEN, name]))


@pytest.mark.parametrize(
    ("more", "dtype", "kind", "expected"),
    [
        ([], "BF16", "safetensors", "none"),
        ([], "F8_E4M3", "safetensors", "fp8"),
        (["a.scale_weight", "scaled_fp8"], "F8_E4M3", "safetensors", "fp8 scaled"),
        (["a.weight_scale", "a.comfy_quant"], "F8_E4M3", "safetensors", "fp8 scaled"),
        ([], "Q4_K", "gguf", "Q4_K"),
        ([], "F16", "gguf", "none"),
    ],
)
def test_the_quantisation(tmp_path, more, dtype, kind, expected):
    assert kind_of(file_of(tmp_path, [*QWEN, *more], dtype, kind)).quantisation == expected


def test_a_whole_checkpoint_has_parts(tmp_path):
    names = [f"model.diffusion_model.{name}" for name in QWEN]
    names += ["vae.decoder.middle.0.residual.0.gamma"]
    names += ["text_encoders.qwen25_7b.transformer.model.layers.0.self_attn.k_proj.bias"]
    names += ["text_encoders.qwen25_7b.logit_scale"]
    parts = {part.component: part.prefix for part in kind_of(file_of(tmp_path, names)).parts}
    assert parts == {
        "transformer": "model.diffusion_model.",
        "vae": "vae.",
        "text_encoder": "text_encoders.qwen25_7b.transformer.",
    }


def test_stable_diffusion_1_is_not_served(tmp_path):
    names = ["input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight", "out.2.weight"]
    file = file_of(tmp_path, [f"model.diffusion_model.{name}" for name in names])
    with pytest.raises(ModelLoadFailed, match="Stable Diffusion 1 or 2, which this runtime does"):
        kind_of(file)


def test_an_unknown_file_says_what_was_found(tmp_path):
    file = file_of(tmp_path, ["net.b", "net.a"])
    kind = kind_of(file)
    assert (kind.parts, kind.prefix) == ((), "net.")
    assert "2 tensors, such as net.a, net.b" in unknown(file).message
