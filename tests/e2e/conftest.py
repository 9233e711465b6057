"""A runtime and a real ComfyUI, shared by all end-to-end tests of a session.

`COMFYUI` names the folder that holds ComfyUI's main.py, `COMFYUI_PYTHON` its Python; the
Makefile sets both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omnistage.runtime.bench.comfyui import Comfy
from omnistage.runtime.bench.servers import ComfyUI, Runtime, comfyui_python, wait_until

from .comfy import LEASE_S


@pytest.fixture(scope="session")
def new_comfyui(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], ComfyUI]:
    """Makes a ComfyUI that is not started yet, with empty folders."""
    if "COMFYUI" not in os.environ:
        pytest.fail("COMFYUI does not name a ComfyUI folder: run `make e2e`")
    source = Path(os.environ["COMFYUI"])
    python = comfyui_python(source)

    def make() -> ComfyUI:
        return ComfyUI(tmp_path_factory.mktemp("comfyui"), source, python)

    return make


@pytest.fixture(scope="session")
def runtime_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    server = Runtime(tmp_path_factory.mktemp("runtime"), f"leases.ttl_s={LEASE_S}")
    server.start()
    server.wait_for_model("smollm2")
    yield server
    server.end()


@pytest.fixture(scope="session")
def comfyui_server(
    new_comfyui: Callable[[], ComfyUI], runtime_server: Runtime
) -> Iterator[ComfyUI]:
    server = new_comfyui()
    server.start({"OMNISTAGE_ADDRESS": runtime_server.url})
    yield server
    server.end()


@pytest.fixture
def runtime(runtime_server: Runtime) -> Runtime:
    return runtime_server


@pytest.fixture
def comfy(comfyui_server: ComfyUI, runtime_server: Runtime) -> Iterator[Comfy]:
    """The shared ComfyUI, idle before and after the test, and so is the runtime."""
    client = Comfy(comfyui_server)
    yield client
    client.drain()
    wait_until(lambda: runtime_server.live_jobs == 0, "the runtime has no work left")
