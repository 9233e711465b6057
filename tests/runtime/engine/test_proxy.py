from __future__ import annotations

import pytest
import torch

from omnistage.runtime.engine.diffusion.proxy import ModuleProxy

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
