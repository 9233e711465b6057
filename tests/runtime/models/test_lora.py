"""LoRA files: what they are called, what is refused, and what is in memory."""

import json

import pytest
import torch
from diffusers import QwenImageTransformer2DModel
from peft.tuners.lora.layer import LoraLayer

from omnistage.runtime.models.catalogue import Catalogue, ModelEntry
from omnistage.runtime.models.lora import LoRAFolders
from omnistage.runtime.models.lora_load import Adapter, AdapterLoader, hollow
from omnistage.runtime.models.lora_params import LoRA
from omnistage.runtime.models.lora_shelf import AdapterShelf
from omnistage.runtime.orchestrator.keys import plan_recipe
from omnistage.runtime.protocol.errors import InvalidRequest, JobFailed, ModelLoadFailed
from omnistage.runtime.protocol.messages import ModelInfo
from omnistage.runtime.protocol.recipe import JobSpec, Recipe

from ...fakes.lora_files import kohya, lora_weights, save

LAYERS = ("transformer_blocks.0.attn.to_q", "transformer_blocks.0.img_mod.1")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def transformer():
    config = {
        "patch_size": 2,
        "in_channels": 16,
        "out_channels": 4,
        "num_layers": 1,
        "attention_head_dim": 16,
        "num_attention_heads": 2,
        "joint_attention_dim": 8,
        "axes_dims_rope": (8, 4, 4),
    }
    return QwenImageTransformer2DModel(**config).eval()


@pytest.fixture
def load(transformer, tmp_path):
    """Save weights as a file and load it; the module must come out of it untouched."""

    def load(weights, name="A"):
        save(tmp_path, name, weights)
        before = {k: v.clone() for k, v in transformer.state_dict().items()}
        try:
            loader = AdapterLoader("QwenImagePipeline", ["transformer"], CPU)
            return loader.load(LoRAFolders([tmp_path]).find(name), lambda _: transformer)
        finally:
            assert not any(isinstance(part, LoraLayer) for part in transformer.modules())
            assert not any(part._forward_hooks for part in transformer.modules())
            after = transformer.state_dict()
            assert all(torch.equal(before[k], after[k]) for k in before.keys() | after.keys())

    return load


# what they are called


def test_names_are_paths_below_their_folder_and_the_first_folder_counts(tmp_path):
    own, other = tmp_path / "own", tmp_path / "other"
    for path in (own / "a.safetensors", own / "sub/b.v1.safetensors", other / "a.safetensors"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(str(path).encode())
    (own / "pickled.pt").write_bytes(b"")
    files = LoRAFolders([own, other, tmp_path / "missing"]).files()
    assert list(files) == ["a", "sub/b.v1"]
    assert files["a"].path == own / "a.safetensors"


@pytest.mark.parametrize("name", ["../out", "/etc/passwd", "sub/../a", "linked", "a.safetensors"])
def test_a_name_never_leads_out_of_its_folder(tmp_path, name):
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "out.safetensors").write_bytes(b"")
    (folder / "a.safetensors").write_bytes(b"")
    (folder / "linked.safetensors").symlink_to(tmp_path / "out.safetensors")
    (folder / "alias.safetensors").symlink_to(folder / "a.safetensors")
    folders = LoRAFolders([folder])
    assert list(folders.files()) == ["a", "alias"]
    with pytest.raises(InvalidRequest, match=r"is not on this runtime; it has a, alias") as caught:
        folders.find(name)
    assert (caught.value.field, caught.value.value) == ("loras", name)


def test_a_revision_follows_the_content_of_small_and_large_files(tmp_path):
    path = tmp_path / "a.safetensors"
    file_of = LoRAFolders([tmp_path]).find
    seen = set()
    for size in (10, 6 << 20):
        for spot in (0, size // 2, size - 1):
            content = bytearray(size)
            content[spot : spot + 1] = b"x"
            path.write_bytes(content)
            seen.add(file_of("a").revision)
            path.write_bytes(content)
            assert file_of("a").revision in seen
    assert len(seen) == 6


# what a job makes of them


@pytest.fixture
def entry(tmp_path):
    return ModelEntry("demo", "demo", lora_folders=[str(tmp_path)])


def pinned(entry, loras, stage="sample"):
    graph = entry.graph[stage]
    return entry.pinned(graph, graph.check_params({"loras": loras}))["loras"]


def test_a_job_is_pinned_to_the_content_of_its_adapters(entry, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"1")
    asked = [{"name": "a", "strength": 0.5}]
    first = pinned(entry, asked)
    assert first == pinned(entry, asked)
    assert {**first[0], "revision": None} == {
        "name": "a",
        "strength": 0.5,
        "noise": "all",
        "revision": None,
    }
    path.write_bytes(b"2")
    assert pinned(entry, asked) != first


def test_texts_of_encoders_that_take_no_adapters_are_shared(entry, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"1")
    assert pinned(entry, [{"name": "a"}], "text_encode") == []
    with pytest.raises(InvalidRequest, match=r"LoRA 'b' is not on this runtime; it has a\."):
        pinned(entry, [{"name": "b"}], "text_encode")


@pytest.mark.parametrize(
    ("loras", "words"),
    [
        ([{"name": "a", "strength": 10.5}], "less than or equal to 10"),
        ([{"name": ""}], "at least 1 character"),
        ([{"name": "a"}, {"name": "a"}], "listed twice"),
        ([{"name": str(i)} for i in range(17)], "at most 16"),
        ([{"name": "a", "path": "/x"}], "not permitted"),
    ],
)
def test_wrong_lists_are_refused(entry, loras, words):
    with pytest.raises(InvalidRequest, match=words):
        entry.graph["sample"].check_params({"loras": loras})


def test_a_model_lists_its_adapters_where_nodes_look(entry, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"1")
    info = ModelInfo.from_json(json.loads(json.dumps(entry.info().to_json())))
    assert info.loras == ("a",)
    name = info.stages["sample"].params["$defs"][LoRA.__name__]["properties"]["name"]
    assert name["enum"] == ["a"]
    (tmp_path / "a.safetensors").unlink()
    assert entry.info().loras == ()


def test_an_adapter_for_a_second_transformer_needs_one(entry, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"1")
    with pytest.raises(InvalidRequest, match="'a' is for low noise only") as caught:
        pinned(entry, [{"name": "a", "noise": "low"}])
    assert (caught.value.field, caught.value.value, caught.value.allowed) == ("loras", "low", "all")


def test_an_unknown_adapter_is_refused_before_anything_starts(entry):
    job = JobSpec.make("demo", "text_encode", {"loras": [{"name": "x"}]}, {})
    with pytest.raises(InvalidRequest, match="it has none"):
        plan_recipe(Recipe((job,)), Catalogue({"demo": entry}), lambda digest: None)


# reading files


def _prefixed(weights, prefix):
    return {key.replace("transformer.", prefix, 1): value for key, value in weights.items()}


@pytest.mark.parametrize(
    "rename",
    [
        lambda weights: weights,
        lambda weights: _prefixed(weights, "diffusion_model."),
        lambda weights: _prefixed(weights, "base_model.model."),
        lambda weights: kohya(weights, alpha=4),
    ],
    ids=["diffusers", "original", "peft", "kohya"],
)
def test_every_format_gives_the_same_changes(load, transformer, rename):
    weights = lora_weights(transformer, LAYERS)
    adapter = load(rename(weights))
    changes = adapter.changes["transformer"]
    assert changes.keys() == set(LAYERS)
    assert adapter.ignored == ()
    assert adapter.nbytes == sum(weight.nbytes for weight in weights.values())
    for layer, change in changes.items():
        have = change.up.weight @ change.down.weight * change.scale(1.0)
        half = [weights[f"transformer.{layer}.lora_{x}.weight"] for x in "BA"]
        torch.testing.assert_close(have, half[0] @ half[1])


def test_ranks_and_alphas_are_those_of_each_layer(load, transformer):
    weights = lora_weights(transformer, LAYERS[:1], rank=2)
    weights |= lora_weights(transformer, LAYERS[1:], rank=6)
    changes = load(kohya(weights, alpha=3)).changes["transformer"]
    assert {name: change.down.weight.shape[0] for name, change in changes.items()} == dict(
        zip(LAYERS, (2, 6), strict=True)
    )


UNKNOWN = {
    "transformer.blocks.9.q.lora_A.weight": torch.ones(4, 8),
    "transformer.blocks.9.q.lora_B.weight": torch.ones(8, 4),
}


@pytest.mark.parametrize("prefix", ["unet.", "transformer_3."])
def test_keys_of_another_model_are_refused(load, transformer, prefix):
    with pytest.raises(InvalidRequest, match=rf"none of its 4 keys fits, such as '{prefix}.*attn"):
        load(lora_weights(transformer, LAYERS, prefix=prefix))


def test_keys_of_unknown_layers_are_refused(load):
    with pytest.raises(InvalidRequest, match=r"Expected are keys such as 'transformer\..*attn"):
        load(UNKNOWN)


def test_keys_that_fit_nothing_are_ignored_and_said(load, transformer, caplog):
    adapter = load(lora_weights(transformer, LAYERS) | UNKNOWN)
    assert sorted(adapter.ignored) == sorted(UNKNOWN)
    assert adapter.changes["transformer"].keys() == set(LAYERS)
    assert "2 of 6 keys fit nothing" in caplog.text


def test_broken_adapters_are_refused_with_the_reason(load, transformer, tmp_path):
    good = lora_weights(transformer, LAYERS)
    down = f"transformer.{LAYERS[0]}.lora_A.weight"
    cases = {
        r"size mismatch .*to_q.*\[4, 7\].*\[4, 32\]": good | {down: torch.ones(4, 7)},
        "only one half": {k: v for k, v in good.items() if k != down},
        "is a DoRA adapter": good | {f"transformer.{LAYERS[0]}.dora_scale": torch.ones(1)},
        "is empty": {},
    }
    for i, (words, weights) in enumerate(cases.items()):
        with pytest.raises(ModelLoadFailed, match=words) as caught:
            load(weights, f"broken-{i}")
        assert f"broken-{i}.safetensors" in str(caught.value)


def test_a_file_that_is_no_safetensors_file_is_never_unpickled(tmp_path, transformer):
    torch.save({"transformer.x.lora_A.weight": torch.ones(1)}, tmp_path / "a.safetensors")
    loader = AdapterLoader("QwenImagePipeline", ["transformer"], CPU)
    with pytest.raises(ModelLoadFailed, match="no whole safetensors file"):
        loader.load(LoRAFolders([tmp_path]).find("a"), lambda _: transformer)


def test_pipelines_without_adapters_say_so(tmp_path):
    save(tmp_path, "a", UNKNOWN)
    loader = AdapterLoader("DDPMPipeline", ["unet"], CPU)
    with pytest.raises(InvalidRequest, match="Models of class DDPMPipeline take no LoRAs"):
        loader.load(LoRAFolders([tmp_path]).find("a"), lambda _: torch.nn.Identity())


def test_a_hollow_copy_has_shapes_but_no_memory(transformer):
    copy = hollow(transformer, CPU)
    for name, weight in transformer.named_parameters():
        twin = copy.get_parameter(name)
        assert (twin.shape, twin.dtype) == (weight.shape, weight.dtype)
        assert twin.untyped_storage().nbytes() <= 8
        assert twin.data_ptr() != weight.data_ptr()


# what is in memory


class CountingLoader:
    """Adapters of a kilobyte each."""

    def __init__(self):
        self.loads = []

    def load(self, file, find, noise):
        self.loads.append(file.name if noise == "all" else f"{file.name} {noise}")
        return Adapter(file.name, {}, 1024)


@pytest.fixture
def shelf(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.safetensors").write_bytes(name.encode())
    loader = CountingLoader()
    return AdapterShelf(LoRAFolders([tmp_path]), loader, 2048), loader


def lend(shelf, *names):
    return shelf.lent([{"name": name, "strength": 1.0} for name in names], lambda _: None)


def test_an_adapter_is_loaded_once_and_the_least_recently_used_goes(shelf):
    shelf, loader = shelf
    for names in ("a", "b", "a", "c", "a", "b"):
        with lend(shelf, *names):
            pass
    assert loader.loads == ["a", "b", "c", "b"]
    assert list(shelf.listing()) == ["a", "b"]
    assert shelf.nbytes == 2048


def test_an_adapter_for_high_noise_is_another_than_that_for_low(shelf):
    shelf, loader = shelf
    wanted = [{"name": "a", "strength": 1.0, "noise": noise} for noise in ("high", "low")]
    with shelf.lent(wanted, lambda _: None):
        assert list(shelf.listing()) == ["a (high noise)", "a (low noise)"]
    assert loader.loads == ["a high", "a low"]


def test_what_is_in_use_stays_and_its_excess_goes_afterwards(shelf):
    shelf, loader = shelf
    with lend(shelf, "a", "b"):
        with lend(shelf, "c") as lent:
            assert [one.adapter.name for one in lent] == ["c"]
            assert shelf.nbytes == 3072
        assert list(shelf.listing()) == ["a", "b"]
        with lend(shelf, "a"):
            assert shelf.listing()["a"]["requests"] == 2
    assert loader.loads == ["a", "b", "c"]


def test_what_fails_or_ends_early_is_no_longer_in_use(shelf):
    shelf, _ = shelf
    with pytest.raises(InvalidRequest), lend(shelf, "a", "missing"):
        pass
    with pytest.raises(GeneratorExit), lend(shelf, "b"):
        raise GeneratorExit
    assert {one["requests"] for one in shelf.listing().values()} == {0}


def test_strength_0_is_no_adapter(shelf):
    shelf, loader = shelf
    with shelf.lent([{"name": "a", "strength": 0.0}], lambda _: None) as lent:
        assert lent == ()
    assert loader.loads == []


def test_a_changed_file_is_another_adapter_and_an_old_job_says_so(shelf, tmp_path):
    shelf, loader = shelf
    revision = LoRAFolders([tmp_path]).find("a").revision
    asked = [{"name": "a", "strength": 1.0, "revision": revision}]
    with shelf.lent(asked, lambda _: None):
        pass
    (tmp_path / "a.safetensors").write_bytes(b"new")
    with pytest.raises(JobFailed, match="has changed"), shelf.lent(asked, lambda _: None):
        pass
    with lend(shelf, "a"):
        pass
    assert loader.loads == ["a", "a"]


def test_a_file_larger_than_the_budget_is_refused(shelf, tmp_path):
    shelf, _ = shelf
    (tmp_path / "a.safetensors").write_bytes(bytes(4096))
    with pytest.raises(ModelLoadFailed, match="lora_mb"), lend(shelf, "a"):
        pass
