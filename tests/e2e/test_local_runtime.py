"""A runtime that the pack starts by itself, as the settings say."""

from __future__ import annotations

import sys
import urllib.error
from collections.abc import Callable, Iterator

import pytest

from omnistage.runtime.bench.comfyui import Comfy
from omnistage.runtime.bench.servers import ComfyUI, free_port, get_json, wait_until

from .comfy import small

pytestmark = pytest.mark.e2e


@pytest.fixture
def comfyui(new_comfyui: Callable[[], ComfyUI], address: str) -> Iterator[ComfyUI]:
    server = new_comfyui()
    cache = str(server.folder / "cache")
    server.start(
        {
            "OMNISTAGE_ADDRESS": address,
            "OMNISTAGE_PYTHON": sys.executable,
            "XDG_CACHE_HOME": cache,
        }
    )
    yield server
    server.kill()


@pytest.fixture
def address() -> str:
    return f"http://127.0.0.1:{free_port()}"


def answers(address: str) -> bool:
    try:
        get_json(address + "/health")
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


def test_it_starts_with_comfyui_serves_and_ends_with_it(comfyui: ComfyUI, address: str):
    assert len(Comfy(comfyui).run(small())) == 1
    assert answers(address)
    comfyui.kill()
    wait_until(lambda: not answers(address), "the runtime ends after ComfyUI died", 30.0)
