"""Calls with other adapters in one forward: each row gets its own, or they are kept apart."""

from types import SimpleNamespace

import pytest
import torch
from diffusers import (
    FluxTransformer2DModel,
    QwenImageTransformer2DModel,
    UNet2DConditionModel,
)

from omnistage.runtime.engine.diffusion.adapters import keep_apart, try_mixing
from omnistage.runtime.engine.diffusion.batch import pick
from omnistage.runtime.engine.diffusion.call import ModuleCall
from omnistage.runtime.engine.diffusion.collate import collator_for
from omnistage.runtime.models.call_spec import CallSpec
from omnistage.runtime.models.flux_packed import FluxPacked
from omnistage.runtime.models.lora import LoRAFolders
from omnistage.runtime.models.lora_load import Adapter, AdapterLoader, LayerChange
from omnistage.runtime.models.lora_shelf import Lent
from omnistage.runtime.models.qwen_image_packed import QwenImagePacked

from ...fakes.lora_files import kohya, lora_weights, save

CPU = torch.device("cpu")
ROW = CallSpec(primary="x", rows=frozenset({"x"}))
QWEN = CallSpec(
    primary="hidden_states",
    rows=frozenset({"hidden_states", "timestep"}),
    lists=frozenset({"img_shapes"}),
    pad={"encoder_hidden_states": "encoder_hidden_states_mask"},
    deferred=True,
    packed=QwenImagePacked(),
)
FLUX = CallSpec(primary="hidden_states", deferred=True, packed=FluxPacked())
UNET = CallSpec(
    primary="sample",
    rows=frozenset({"sample", "timestep", "encoder_hidden_states"}),
)


@pytest.fixture(autouse=True)
def _inference():
    with torch.inference_mode():
        yield


def call_of(module, spec, arguments, loras=(), *, name="transformer", mode="packed"):
    call = ModuleCall(
        SimpleNamespace(mode=mode), module, (name, "__call__"), arguments, spec, loras=loras
    )
    collator_for(mode, spec).describe(call)
    keep_apart(call)
    return call


def run(calls):
    """Outcomes of calls in as many forwards as they take; and how many that were."""
    waiting, forwards = list(calls), 0
    while waiting:
        batch = pick(waiting, max_rows=64, full_tokens=None)
        forwards += batch.run()
        waiting = [call for call in waiting if not call.done]
    return [call.outcome() for call in calls], forwards


def adapters_of(folder, pipeline, name, module, files):
    for file, weights in files.items():
        save(folder, file, weights)
    loader, folders = AdapterLoader(pipeline, [name], CPU), LoRAFolders([folder])
    return [loader.load(folders.find(file), lambda _: module) for file in files]


def random_weights(module, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for weight in module.parameters():
        weight.data = torch.randn(weight.shape, generator=generator) * 0.2
    return module.eval()


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    module = random_weights(
        QwenImageTransformer2DModel(
            patch_size=2,
            in_channels=16,
            out_channels=4,
            num_layers=2,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=8,
            axes_dims_rope=(8, 4, 4),
        )
    )
    files = {
        "A": lora_weights(module, rank=3, seed=1, size=0.3),
        "B": kohya(lora_weights(module, rank=5, seed=2, size=0.3), alpha=2),
    }
    folder = tmp_path_factory.mktemp("loras")
    return module, adapters_of(folder, "QwenImagePipeline", "transformer", module, files)


def qwen_arguments(i, *, side, words, rows=1):
    generator = torch.Generator().manual_seed(i)
    return {
        "hidden_states": torch.randn(rows, side * side, 16, generator=generator),
        "encoder_hidden_states": torch.randn(rows, words, 8, generator=generator),
        "encoder_hidden_states_mask": None,
        "timestep": torch.rand(rows, generator=generator),
        "img_shapes": [[(1, side, side)]] * rows,
        "return_dict": False,
    }


def qwen_calls(qwen, mode):
    """Other adapters, none, several and other strengths; other sizes where they can be packed."""
    module, (a, b) = qwen
    loras = [
        (Lent(a, 1.0),),
        (),
        (Lent(a, 0.3),),
        (Lent(b, -1.0), Lent(a, 0.5)),
        (),
        (Lent(b, 2.0),),
    ]
    spec = QWEN
    sides = (2, 3, 1, 2, 2, 1) if mode == "packed" else (2,) * 6
    return [
        call_of(
            module,
            spec,
            # sums of picture and text tokens agree on purpose: only a map tells them apart
            qwen_arguments(i, side=sides[i], words=(4, 3, 6, 4, 3, 3)[i], rows=1 + i % 2),
            own,
            mode=mode,
        )
        for i, own in enumerate(loras)
    ]


@pytest.mark.parametrize("mode", ["packed", "grouped"])
def test_a_mixed_forward_equals_each_call_alone(qwen, mode):
    for adapter in qwen[1]:
        adapter.mixes.clear()
    for call in qwen_calls(qwen, mode):
        try_mixing(call)
    alone = [call.run_alone()[0] for call in qwen_calls(qwen, mode)]
    plain = [call_of(*_bare(call), mode=mode).run_alone()[0] for call in qwen_calls(qwen, mode)]
    together, forwards = run(qwen_calls(qwen, mode))
    assert forwards == 1
    for call, got, want, bare in zip(qwen_calls(qwen, mode), together, alone, plain, strict=True):
        assert float((got[0] - want).abs().max()) <= 2e-5 * float(want.abs().max())
        assert (float((want - bare).abs().max()) > 0.05) == bool(call.loras)


def _bare(call):
    return call.module, call.spec, call.arguments


def edit_arguments(i, *, side, words, rows=1):
    """With a reference picture, but for the first."""
    shapes = [(1, side, side), (1, 2, 3)][: 2 if i else 1]
    arguments = qwen_arguments(i, side=side, words=words, rows=rows)
    tokens = sum(height * width for _, height, width in shapes)
    generator = torch.Generator().manual_seed(i)
    return {
        **arguments,
        "hidden_states": torch.randn(rows, tokens, 16, generator=generator),
        "img_shapes": [shapes] * rows,
    }


def flux_arguments(i, *, side, words, rows=1):
    generator = torch.Generator().manual_seed(i)
    positions = torch.cartesian_prod(torch.arange(1), torch.arange(side), torch.arange(side))
    return {
        "hidden_states": torch.randn(rows, side * side, 16, generator=generator),
        "encoder_hidden_states": torch.randn(rows, words, 8, generator=generator),
        "pooled_projections": torch.randn(rows, 8, generator=generator),
        "timestep": torch.rand(1, generator=generator),
        "guidance": torch.full((1,), 3.0 + i).expand(rows),
        "img_ids": positions.float(),
        "txt_ids": torch.zeros(words, 3),
        "return_dict": False,
    }


@pytest.mark.parametrize(
    ("cls", "config", "spec", "arguments"),
    [
        (
            QwenImageTransformer2DModel,
            {"out_channels": 4, "zero_cond_t": True},
            QWEN,
            edit_arguments,
        ),
        (
            FluxTransformer2DModel,
            {"num_single_layers": 2, "pooled_projection_dim": 8, "guidance_embeds": True},
            FLUX,
            flux_arguments,
        ),
    ],
    ids=["edit", "flux"],
)
def test_every_layer_of_a_packed_forward_knows_its_rows(cls, config, spec, arguments):
    config = {
        "in_channels": 16,
        "num_layers": 2,
        "attention_head_dim": 16,
        "num_attention_heads": 2,
        "joint_attention_dim": 8,
        "axes_dims_rope": (8, 4, 4),
        **config,
    }
    module = random_weights(cls(**config))
    layers = {n: part for n, part in module.named_modules() if isinstance(part, torch.nn.Linear)}
    assert len(layers) > 30

    def calls(adapter):
        loras = ((Lent(adapter, 1.0),), (), (Lent(adapter, -0.5),), ())
        sizes = ((2, 4, 1), (3, 3, 2), (1, 6, 1), (2, 4, 2))
        return [
            call_of(module, spec, arguments(i, side=side, words=words, rows=rows), loras[i])
            for i, (side, words, rows) in enumerate(sizes)
        ]

    for name, layer in layers.items():
        down = random_weights(torch.nn.Linear(layer.in_features, 2, bias=False))
        up = random_weights(torch.nn.Linear(2, layer.out_features, bias=False))
        adapter = Adapter("A", {"transformer": {name: LayerChange(down, up, 2, 2)}}, 1)
        try_mixing(calls(adapter)[0])
        assert set(adapter.mixes.values()) == {True}, name
        alone = [call.run_alone()[0] for call in calls(adapter)]
        together, forwards = run(calls(adapter))
        assert forwards == 1
        for got, want in zip(together, alone, strict=True):
            assert float((got[0] - want).abs().max()) <= 2e-5 * float(want.abs().max()), name


def test_calls_are_apart_until_mixing_is_proved_on_the_first_of_them(qwen):
    for adapter in qwen[1]:
        adapter.mixes.clear()
    _, forwards = run(qwen_calls(qwen, "grouped"))
    assert forwards == 5  # the two without adapters share theirs
    _, forwards = run(qwen_calls(qwen, "grouped"))
    assert forwards == 1


def test_a_forward_leaves_no_hook_behind_even_if_it_fails(qwen):
    module, (a, _) = qwen
    broken = qwen_arguments(0, side=2, words=3)
    broken["encoder_hidden_states"] = broken["encoder_hidden_states"][..., :-1]
    calls = [
        call_of(module, QWEN, arguments, (Lent(a, 1.0),))
        for arguments in (broken, qwen_arguments(1, side=2, words=3))
    ]
    run_of = pick(calls, max_rows=8, full_tokens=None)
    run_of.run()
    assert calls[0].error is not None
    assert not any(part._forward_hooks for part in module.modules())


def test_one_call_equals_peft_bit_by_bit(qwen, tmp_path):
    module, (a, b) = qwen
    arguments = qwen_arguments(0, side=2, words=3, rows=2)
    call = call_of(
        module, QWEN, arguments, (Lent(b, -0.7), Lent(a, 0.3)),
        mode="single",
    )  # fmt: skip
    ours = call.run_alone()[0]
    twin = QwenImageTransformer2DModel.from_config(module.config).eval()
    twin.load_state_dict(module.state_dict())
    for name, adapter in (("A", a), ("B", b)):
        weights = {}
        for layer, change in adapter.changes["transformer"].items():
            weights[f"transformer.{layer}.lora_A.weight"] = change.down.weight
            weights[f"transformer.{layer}.lora_B.weight"] = change.up.weight
        twin.load_lora_adapter(weights, adapter_name=name)
    twin.set_adapters(["B", "A"], [-0.7, 0.3])
    assert torch.equal(ours, twin(**arguments)[0])


def test_convolutions_of_a_unet_are_mixed_too(tmp_path):
    unet = random_weights(
        UNet2DConditionModel(
            sample_size=8,
            block_out_channels=(8, 16),
            layers_per_block=1,
            norm_num_groups=4,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=8,
            attention_head_dim=4,
            use_linear_projection=True,
        )
    )
    layers = [
        name
        for name, part in unet.named_modules()
        if name.endswith(("conv1", "conv2", "to_q", "to_v", "proj_in", "conv_shortcut"))
    ]
    files = {
        "A": lora_weights(unet, layers, rank=2, seed=1, size=0.3, prefix="unet."),
        "B": lora_weights(unet, layers[::2], rank=3, seed=2, size=0.3, prefix="unet."),
    }
    a, b = adapters_of(tmp_path, "StableDiffusionXLPipeline", "unet", unet, files)

    def calls():
        generator = torch.Generator().manual_seed(0)
        return [
            call_of(
                unet,
                UNET,
                {
                    "sample": torch.randn(1, 4, 8, 8, generator=generator),
                    "timestep": torch.tensor([500.0]),
                    "encoder_hidden_states": torch.randn(1, 5, 8, generator=generator),
                    "return_dict": False,
                },
                loras,
                name="unet",
            )
            for loras in ((Lent(a, 1.0),), (), (Lent(b, 0.5), Lent(a, -0.5)))
        ]

    alone = [call.run_alone()[0] for call in calls()]
    run(calls())
    together, forwards = run(calls())
    assert forwards == 1
    for got, want in zip(together, alone, strict=True):
        assert float((got[0] - want).abs().max()) <= 2e-5 * float(want.abs().max())


class Shuffled(torch.nn.Module):
    """Turns its rows round before its layer and back after it, or gives it bare tokens."""

    def __init__(self, way):
        super().__init__()
        self.layer, self.way = torch.nn.Linear(4, 4), way

    def forward(self, x):
        if self.way == "flip":
            return self.layer(x.flip(0)).flip(0)
        return self.layer(x.flatten(0, 1)).unflatten(0, x.shape[:2])


@pytest.mark.parametrize("way", ["flip", "tokens"])
def test_a_module_whose_dim_0_is_not_rows_is_found_out_and_kept_apart(way):
    module = Shuffled(way)
    down, up = torch.nn.Linear(4, 2, bias=False), torch.nn.Linear(2, 4, bias=False)
    adapter = Adapter("A", {"transformer": {"layer": LayerChange(down, up, 2, 2)}}, 1)

    def calls():
        x = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0))
        loras = ((Lent(adapter, 1.0),), (), (Lent(adapter, 1.0),), (Lent(adapter, 2.0),))
        return [call_of(module, ROW, {"x": x}, own) for own in loras]

    alone = [call.run_alone() for call in calls()]
    for _ in range(2):
        together, forwards = run(calls())
        assert forwards == 3  # those of equal adapters share theirs
        for got, want in zip(together, alone, strict=True):
            torch.testing.assert_close(got, want, atol=1e-6, rtol=0)
    assert set(adapter.mixes.values()) == {False}
