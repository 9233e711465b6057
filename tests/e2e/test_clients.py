"""Public headless clients of ComfyUI run the shipped workflows."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from omnistage.runtime.bench.comfyui import WORKFLOWS, Comfy

pytestmark = pytest.mark.e2e

SIMPLIFIED = Path(__file__).parents[1] / "comfyui" / "simplified_client.py"

Run = Callable[..., str]


@pytest.fixture
def python() -> Path:
    """The Python of the clients' environment."""
    if "CLIENTS_PYTHON" not in os.environ:
        pytest.fail("CLIENTS_PYTHON does not name the clients' Python: run `make e2e`")
    return Path(os.environ["CLIENTS_PYTHON"])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a command in an empty home folder; returns what it printed."""
    environment = {**os.environ, "HOME": str(tmp_path), "DO_NOT_TRACK": "1"}

    def call(*command: str | Path) -> str:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            cwd=tmp_path,
            env=environment,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return call


def test_comfy_api_simplified(comfy: Comfy, python: Path, run: Run, tmp_path: Path):
    picture = tmp_path / "picture.png"
    workflow = WORKFLOWS / "api" / "text_to_image.json"
    run(python, SIMPLIFIED, comfy.server.url, workflow, picture)
    with Image.open(picture) as delivered:
        assert delivered.size == (64, 64)


@pytest.mark.parametrize("form", ["api/several_prompts", "several_prompts"])
def test_comfy_cli(comfy: Comfy, python: Path, run: Run, form: str):
    """It also turns the page's form into the API's, by rules of its own."""
    options = ["--workflow", WORKFLOWS / f"{form}.json", "--wait"]
    options += ["--host", "127.0.0.1", "--port", str(comfy.server.port)]
    printed = run(python.with_name("comfy"), "--json", "--skip-prompt", "run", *options)
    report = json.loads(printed.splitlines()[-1])
    assert report["ok"], report
    assert len(report["data"]["outputs"]) == 4
