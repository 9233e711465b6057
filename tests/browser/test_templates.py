"""Every example workflow runs from ComfyUI's page, with previews and a picture at the end.

Tiny models of random weights stand for those that some of the workflows name, asked for little.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnistage.runtime.bench.servers import ComfyUI, Runtime
from omnistage.tests.fakes import workflow_models

pytestmark = pytest.mark.browser

HERE = Path(__file__).parent
TEMPLATES = sorted(path.stem for path in (HERE.parents[1] / "workflows").glob("*.json"))
WITHOUT_PICTURES = (
    "chat",
    "text_diffusion",
    "text_to_speech",
    "chat_with_voice",
    "speech_to_speech",
)
WATCHED = ("text_to_image", "several_prompts", "variations")
"""They do little else than draw, so that a slow page has the time to show a preview, too."""
SLOW = {"OmniStageSample.steps": 40}
"""The runtime draws ahead of ComfyUI: a picture that is done when its node's turn comes has no
preview, so that a page with few cores needs pictures that take longer than the nodes before."""
RUN_TIMEOUT_S = 600


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    """Fail, rather than skip, where something is missing, so that CI cannot pass without."""
    if "CHROMIUM" not in os.environ and shutil.which("chromium") is None:
        pytest.fail("No Chromium: install the system's package `chromium`, or set CHROMIUM")
    if not (HERE / "node_modules").is_dir():
        pytest.fail("No browser driver: run `make e2e`, or `npm ci` in tests/browser")
    if "COMFYUI" not in os.environ:
        pytest.fail("No ComfyUI: run `make e2e`, or set COMFYUI and COMFYUI_PYTHON")


@pytest.fixture(scope="module")
def server(tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComfyUI]:
    """A ComfyUI whose pack talks to a runtime of this module's own."""
    models = workflow_models.settings(tmp_path_factory.mktemp("models"))
    models += workflow_models.settings_of_own_models()
    runtime = Runtime(tmp_path_factory.mktemp("runtime"), *models)
    source, python = Path(os.environ["COMFYUI"]), Path(os.environ["COMFYUI_PYTHON"])
    comfyui = ComfyUI(tmp_path_factory.mktemp("comfyui"), source, python)
    workflow_models.save_picture(comfyui.folder / "input")
    try:
        runtime.start()
        runtime.wait_for_model("smollm2")
        comfyui.start({"OMNISTAGE_ADDRESS": runtime.url})
        yield comfyui
    finally:
        comfyui.end()
        runtime.end()


@pytest.mark.parametrize("template", TEMPLATES)
def test_template_runs_in_the_page(server: ComfyUI, tmp_path: Path, template: str):
    widgets = json.dumps(workflow_models.SMALL.get(template, SLOW))
    script = [HERE / "run_template.mjs", server.url, "omnistage", template, tmp_path, widgets]
    run = subprocess.run(
        ["node", *script], capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    assert run.stdout, run.stderr
    report = json.loads(run.stdout)
    assert report["finished"], report
    if template not in WITHOUT_PICTURES:
        assert [image for image in report["images"] if image["type"] == "output"]
    if template not in (*WITHOUT_PICTURES, *workflow_models.SMALL):  # those are over too soon
        assert report["preview_nodes"], "no node was given a preview while the workflow ran"
    if template in WATCHED:
        assert report["preview_shown"], "no node showed a preview while the workflow ran"
    assert all(image["width"] > 0 for image in report["images"])
    assert report["page_errors"] == []
