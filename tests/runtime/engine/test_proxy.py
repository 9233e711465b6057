from __future__ import annotations

import pytest
import torch

from omnistage.runtime.engine.diffusion.call import ModuleCall
from omnistage.runtime.engine.diffusion.proxy import ModuleProxy, parts

from .toys import Layer


@pytest.fixture
def proxy() -> ModuleProxy:
    return ModuleProxy(request=None, name="layer", module=Layer())  # type: ignore[arg-type]


def test_it_looks_like_the_module(proxy: ModuleProxy) -> None:
    assert isinstance(proxy, Layer)
    assert isinstance(proxy, torch.nn.Module)
    assert proxy.weight.shape == (4, 4)


@pytest.mark.parametrize("method", ["to", "half", "float", "train", "requires_grad_"])
def test_what_would_change_the_module_for_others_is_refused(
    proxy: ModuleProxy, method: str
) -> None:
    with pytest.raises(AttributeError, match="every other request"):
        getattr(proxy, method)


def test_nothing_can_be_set_on_it(proxy: ModuleProxy) -> None:
    with pytest.raises(AttributeError, match="shared"):
        proxy.state = 1


class Coder(Layer):
    """Has what models read, and more that computes."""

    def __init__(self) -> None:
        super().__init__()
        self.config = {"in_channels": 4}
        self.bn = torch.nn.BatchNorm1d(4)
        self.rope = object()

    @property
    def device(self) -> torch.device:
        return self.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.weight.dtype

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return z


class Records:
    """Stands in for a request."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def call(
        self, proxy: ModuleProxy, method: str, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        self.calls.append((method, args))


def test_what_models_read_is_the_modules_own() -> None:
    module = Coder()
    proxy = ModuleProxy(request=None, name="coder", module=module)  # type: ignore[arg-type]
    for name in ("config", "bn", "rope"):
        assert getattr(proxy, name) is getattr(module, name)
    assert (proxy.device, proxy.dtype) == (module.device, module.dtype)


def test_what_computes_goes_to_the_engine() -> None:
    records = Records()
    proxy = ModuleProxy(request=records, name="coder", module=Coder())  # type: ignore[arg-type]
    proxy.decode(1)
    proxy.encode(2)
    proxy(3)
    assert records.calls == [("decode", (1,)), ("encode", (2,)), ("__call__", (3,))]


def test_a_cache_context_is_told_with_its_place_in_the_schedule(proxy: ModuleProxy) -> None:
    with proxy.cache_context("cond", step_index=3, sigma=0.5):
        with proxy.cache_context("inner"):
            inner = parts(proxy)[2]
        outer = parts(proxy)[2]
    assert inner is not None
    assert (inner.name, inner.info) == ("inner", {})
    assert outer is not None
    assert (outer.name, outer.info) == ("cond", {"step_index": 3, "sigma": 0.5})
    assert parts(proxy)[2] is None


def test_hooks_are_on_the_module_while_a_call_runs(proxy: ModuleProxy) -> None:
    from diffusers.hooks import HookRegistry, ModelHook

    class Doubles(ModelHook):
        def post_forward(self, module: torch.nn.Module, output: object) -> object:
            return {"y": output["y"] * 2}  # type: ignore[index]

    def install(module: torch.nn.Module) -> None:
        HookRegistry.check_if_exists_or_initialize(module).register_hook(Doubles(), "doubles")

    def result() -> torch.Tensor:
        name, module, context, install = parts(proxy)
        call = ModuleCall(
            None,  # type: ignore[arg-type]
            module,
            (name, "__call__"),
            {"x": torch.ones(1, 4)},
            None,
            context=context,
            install=install,
        )
        return call.run_alone()["y"]

    plain = result()
    proxy.hook_calls(install)
    assert torch.equal(proxy._module(torch.ones(1, 4))["y"], plain), "others see no hook"
    assert torch.equal(result(), 2 * plain)
    assert torch.equal(proxy._module(torch.ones(1, 4))["y"], plain)
    proxy.unhook_calls()
    assert torch.equal(result(), plain)
    proxy.hook_calls(lambda module: None)
    assert parts(proxy)[3] is None, "without hooks, calls may be merged"
