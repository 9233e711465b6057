"""Tiny random modules of the real classes, written as people keep files, loaded back."""

from __future__ import annotations

import logging

import diffusers
import pytest
import torch
import transformers

from omnistage.runtime.models.component_source import ComponentSource
from omnistage.runtime.models.components import load_module
from omnistage.runtime.models.single_file import file_weight_bytes
from omnistage.runtime.protocol.errors import ModelLoadFailed
from omnistage.tests.fakes import original_names as original
from omnistage.tests.fakes import weight_files as files
from omnistage.tests.fakes.tiny_models import randomise

PREFIX = "model.diffusion_model."
KL = {
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
    "block_out_channels": [8] * 4,
    "norm_num_groups": 4,
}
CAUSAL_VAE = {"base_dim": 4, "z_dim": 16, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2}
WAN = {
    "patch_size": (1, 2, 2),
    "num_attention_heads": 2,
    "attention_head_dim": 12,
    "text_dim": 16,
    "freq_dim": 32,
    "ffn_dim": 32,
    "num_layers": 2,
    "rope_max_seq_len": 32,
}


def qwen():
    return diffusers.QwenImageTransformer2DModel(
        patch_size=2,
        in_channels=64,
        out_channels=16,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=32,
        axes_dims_rope=(8, 4, 4),
    )


def z_image():
    return diffusers.ZImageTransformer2DModel(
        in_channels=4,
        dim=48,
        n_layers=1,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=32,
        axes_dims=[8, 8, 8],
        axes_lens=[256, 64, 64],
    )


def wan():
    return diffusers.WanTransformer3DModel(**WAN)


def sd3():
    return diffusers.SD3Transformer2DModel(
        sample_size=32,
        patch_size=1,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        caption_projection_dim=32,
        joint_attention_dim=32,
        pooled_projection_dim=64,
        pos_embed_max_size=96,
    )


def kl_vae():
    return diffusers.AutoencoderKL(**KL, latent_channels=4)


def flux2_vae():
    return diffusers.AutoencoderKLFlux2(**KL, latent_channels=4)


def qwen_vae():
    return diffusers.AutoencoderKLQwenImage(**CAUSAL_VAE)


def wan_vae():
    return diffusers.AutoencoderKLWan(**CAUSAL_VAE)


@pytest.fixture
def made(tmp_path):
    """Makes a module and the folder of its config."""

    def make(factory):
        torch.manual_seed(0)
        module = randomise(factory(), seed=1)
        folder = tmp_path / "config"
        save_config = getattr(module, "save_config", None)
        if save_config:
            save_config(folder)
        else:
            module.config.save_pretrained(folder)
        return module, folder

    return make


def loaded(folder, path, cls, prefix="", dtype="float32"):
    source = ComponentSource("part", folder, path, prefix)
    return load_module(source, cls, dtype=dtype, device="cpu")


def assert_equal(module, other):
    ours, theirs = module.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def qwen_forward(module):
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        return module(
            hidden_states=torch.randn(1, 16, 64, generator=random),
            encoder_hidden_states=torch.randn(1, 7, 32, generator=random),
            timestep=torch.tensor([0.5]),
            img_shapes=[[(1, 4, 4)]],
            return_dict=False,
        )[0]


def off_by(module, other):
    ours, theirs = qwen_forward(module), qwen_forward(other)
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


@pytest.mark.parametrize(
    ("factory", "names"),
    [
        (qwen, dict),
        (z_image, original.z_image),
        (wan, original.wan),
        (sd3, original.sd3),
        (kl_vae, original.kl_vae),
        (flux2_vae, original.flux2_vae),
        (qwen_vae, original.wan_vae),
        (wan_vae, original.wan_vae),
    ],
)
@pytest.mark.parametrize("prefix", ["", PREFIX])
def test_published_names_give_the_same_module(made, tmp_path, factory, names, prefix):
    module, folder = made(factory)
    tensors = names(module.state_dict())
    path = files.save(tensors, tmp_path / "x.safetensors", prefix)
    assert_equal(loaded(folder, path, type(module), prefix), module)


def test_the_forward_is_the_same(made, tmp_path):
    module, folder = made(qwen)
    path = files.save(module.state_dict(), tmp_path / "x.safetensors", PREFIX)
    again = loaded(folder, path, type(module), PREFIX)
    assert off_by(again, module) < 1e-5  # the same weights, otherwise aligned in memory
    assert not again.training
    assert not any(parameter.requires_grad for parameter in again.parameters())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("factory", [qwen, wan, kl_vae])
def test_a_file_gives_what_the_folder_gives(made, tmp_path, factory, dtype):
    module, _ = made(factory)
    folder = tmp_path / "saved"
    module.save_pretrained(folder)
    from_folder = load_module(folder, type(module), dtype=dtype, device="cpu")
    path = folder / "diffusion_pytorch_model.safetensors"
    from_file = loaded(folder, path, type(module), dtype=dtype)
    assert_equal(from_file, from_folder)
    types = [parameter.dtype for parameter in from_folder.parameters()]
    assert [parameter.dtype for parameter in from_file.parameters()] == types


def test_shards_by_their_index(made, tmp_path):
    module, _ = made(qwen)
    folder = tmp_path / "saved"
    module.save_pretrained(folder, max_shard_size="100KB")
    index = folder / "diffusion_pytorch_model.safetensors.index.json"
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert_equal(loaded(folder, index, type(module)), module)


def test_fp8_is_cast(made, tmp_path):
    module, folder = made(qwen)
    path = files.save(files.fp8(module.state_dict()), tmp_path / "x.safetensors")
    again = loaded(folder, path, type(module))
    assert {parameter.dtype for parameter in again.parameters()} == {torch.float32}
    assert 0 < off_by(again, module) < 0.1


@pytest.mark.parametrize("word", ["scale_weight", "weight_scale"])
def test_scaled_fp8_is_multiplied_by_its_scales(made, tmp_path, word):
    module, folder = made(qwen)
    tensors = files.fp8_scaled(module.state_dict(), word)
    path = files.save(tensors, tmp_path / "x.safetensors", PREFIX)
    again = loaded(folder, path, type(module), PREFIX)
    assert 0 < off_by(again, module) < 0.1
    name = "transformer_blocks.0.attn.to_q.weight"
    expected = tensors[name].float() * tensors[name.removesuffix("weight") + word]
    assert torch.equal(again.state_dict()[name], expected)


@pytest.mark.parametrize(("kind", "most"), [("Q8_0", 0.05), ("Q5_0", 0.3)])
def test_gguf_stays_quantised(made, tmp_path, kind, most):
    module, folder = made(qwen)
    path = files.save_gguf(module.state_dict(), tmp_path / "x.gguf", kind)
    again = loaded(folder, path, type(module))
    assert type(again.transformer_blocks[0].attn.to_q).__name__ == "GGUFLinear"
    assert 0 < off_by(again, module) < most
    held = sum(p.numel() * p.element_size() for p in again.parameters())
    source = ComponentSource("part", folder, path)
    assert file_weight_bytes(source, "float32") == held


def test_gguf_in_published_names_with_a_tensor_of_five_dimensions(made, tmp_path):
    module, folder = made(wan)
    path = files.save_gguf(original.wan(module.state_dict()), tmp_path / "x.gguf", "F32")
    assert_equal(loaded(folder, path, type(module)), module)


def clip():
    config = transformers.CLIPTextConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    return transformers.CLIPTextModel(config)


def clip_g():
    config = transformers.CLIPTextConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        projection_dim=16,
    )
    return transformers.CLIPTextModelWithProjection(config)


def t5():
    config = transformers.T5Config(
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        vocab_size=64,
        feed_forward_proj="gated-gelu",
    )
    return transformers.T5EncoderModel(config)


def qwen3():
    config = transformers.Qwen3Config(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        vocab_size=64,
        bos_token_id=None,
        eos_token_id=None,
    )
    return transformers.Qwen3Model(config)


def clip_names(tensors):
    """As ComfyUI keeps CLIP-L: with the tower's name and what comes after the encoder."""
    extra = {"logit_scale": torch.ones(()), "text_projection.weight": torch.ones(16, 16)}
    return {f"text_model.{k}": v for k, v in tensors.items()} | extra


def t5_names(tensors):
    extra = {"spiece_model": torch.zeros(9, dtype=torch.uint8)}
    return {k: v for k, v in tensors.items() if k != "encoder.embed_tokens.weight"} | extra


def causal_lm_names(tensors):
    return {f"model.{k}": v for k, v in tensors.items()} | {"lm_head.weight": torch.ones(64, 16)}


def open_clip_names(tensors):
    """As Stable Diffusion XL's checkpoints hold CLIP-G."""
    out = {}
    for name, tensor in tensors.items():
        new = name.removeprefix("text_model.")
        new = new.replace("encoder.layers.", "transformer.resblocks.")
        new = new.replace("layer_norm1", "ln_1").replace("layer_norm2", "ln_2")
        new = new.replace("mlp.fc1", "mlp.c_fc").replace("mlp.fc2", "mlp.c_proj")
        new = new.replace("self_attn.out_proj", "attn.out_proj")
        new = new.replace("embeddings.token_embedding", "token_embedding")
        new = new.replace("embeddings.position_embedding.weight", "positional_embedding")
        new = new.replace("final_layer_norm", "ln_final")
        out[new] = tensor
    for layer in range(2):
        base = f"transformer.resblocks.{layer}"
        for kind in ("weight", "bias"):
            parts = [out.pop(f"{base}.self_attn.{x}_proj.{kind}") for x in "qkv"]
            out[f"{base}.attn.in_proj_{kind}"] = torch.cat(parts)
    out["text_projection"] = out.pop("text_projection.weight").T
    return out


@pytest.mark.parametrize(
    ("factory", "names", "prefix"),
    [
        (clip, clip_names, "text_encoders.clip_l.transformer."),
        (clip_g, dict, ""),
        (clip_g, open_clip_names, "conditioner.embedders.1.model."),
        (t5, t5_names, ""),
        (qwen3, dict, ""),
        (qwen3, causal_lm_names, ""),
    ],
)
def test_text_encoders(made, tmp_path, factory, names, prefix):
    module, folder = made(factory)
    path = files.save(names(module.state_dict()), tmp_path / "x.safetensors", prefix)
    assert_equal(loaded(folder, path, type(module), prefix), module)


def test_a_scaled_text_encoder(made, tmp_path, caplog):
    module, folder = made(t5)
    tensors = files.fp8_scaled(t5_names(module.state_dict()))
    path = files.save(tensors, tmp_path / "x.safetensors")
    with caplog.at_level(logging.WARNING):
        again = loaded(folder, path, type(module))
    ids = torch.arange(8)[None]
    with torch.no_grad():
        ours, theirs = again(ids)[0], module(ids)[0]
    assert 0 < (ours - theirs).abs().max() / theirs.abs().max() < 0.2
    assert "REPORT" not in caplog.text


def test_missing_and_unknown_tensors_are_counted_and_named(made, tmp_path):
    module, folder = made(kl_vae)
    tensors = original.kl_vae(module.state_dict())
    lost = [name for name in tensors if name.startswith("decoder.mid.block_1.conv1")]
    for name in lost:
        del tensors[name]
    path = files.save(tensors, tmp_path / "half.safetensors")
    with pytest.raises(ModelLoadFailed) as caught:
        loaded(folder, path, type(module))
    assert "lacks 2 (decoder.mid_block.resnets.0.conv1.bias" in caught.value.message
    assert caught.value.field == "half.safetensors"


def test_a_file_of_another_size_names_a_tensor(made, tmp_path):
    module, folder = made(kl_vae)
    other = diffusers.AutoencoderKL(**{**KL, "block_out_channels": [16] * 4})
    path = files.save(original.kl_vae(other.state_dict()), tmp_path / "x.safetensors")
    with pytest.raises(ModelLoadFailed, match=r"wrongly shaped \d+ \(decoder\.conv_in"):
        loaded(folder, path, type(module))


def test_a_text_encoder_that_is_another_names_what_it_lacks(made, tmp_path):
    _, folder = made(t5)
    other = randomise(qwen3(), seed=2)
    path = files.save(other.state_dict(), tmp_path / "x.safetensors")
    with pytest.raises(ModelLoadFailed, match=r"lacks \d+ \(encoder"):
        loaded(folder, path, transformers.T5EncoderModel)


def test_names_without_a_mapping_are_refused(made, tmp_path):
    module, folder = made(flux2_vae)
    path = files.save({"first.weight": torch.ones(2)}, tmp_path / "x.safetensors")
    with pytest.raises(ModelLoadFailed, match=r"x\.safetensors"):
        loaded(folder, path, type(module))
    video = diffusers.HunyuanVideo15Transformer3DModel
    with pytest.raises(ModelLoadFailed, match="no mapping"):
        loaded(hunyuan_config(video, folder), path, video)


def hunyuan_config(cls, folder):
    cls(
        num_attention_heads=2,
        attention_head_dim=8,
        num_layers=1,
        num_refiner_layers=1,
        text_embed_dim=16,
        text_embed_2_dim=8,
        image_embed_dim=12,
        rope_axes_dim=(2, 2, 4),
    ).save_config(folder)
    return folder


def test_a_gguf_text_encoder_is_refused(made, tmp_path):
    module, folder = made(t5)
    path = files.save_gguf(module.state_dict(), tmp_path / "t5.gguf")
    with pytest.raises(ModelLoadFailed, match="GGUF text encoder"):
        loaded(folder, path, type(module))


def test_bytes_are_known_before_loading(made, tmp_path):
    module, folder = made(qwen)
    tensors = files.fp8_scaled(module.state_dict())
    path = files.save(tensors, tmp_path / "x.safetensors", PREFIX)
    source = ComponentSource("part", folder, path, PREFIX)
    again = load_module(source, type(module), dtype="bfloat16", device="cpu")
    held = sum(p.numel() * p.element_size() for p in again.parameters())
    assert file_weight_bytes(source, "bfloat16") == held
