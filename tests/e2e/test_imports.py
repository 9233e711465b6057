"""The pack loads in ComfyUI's Python without any serving library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnistage.runtime.bench.servers import REPOSITORY, ComfyUI

pytestmark = pytest.mark.e2e

LOAD_AS_COMFYUI_DOES = """
import importlib.util, pathlib, sys
sys.argv = ["main.py", "--cpu"]
sys.path.insert(0, {source!r})
import comfy.options
comfy.options.enable_args_parsing()
import utils.extra_config  # before anything that has a `utils` of its own
import nodes, server  # ComfyUI's own, with all they import

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise AssertionError(f"the pack imports {{name}}")

for name in list(sys.modules):
    if name.partition(".")[0] in {blocked!r}:
        del sys.modules[name]
sys.meta_path.insert(0, Refuse())
root = pathlib.Path({repository!r})
spec = importlib.util.spec_from_file_location("/packs/omni_x_stage", root / "__init__.py")
pack = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = pack
spec.loader.exec_module(pack)
for file in sorted((root / "comfy_nodes").rglob("*.py")):
    parts = file.relative_to(root).with_suffix("").parts
    importlib.import_module(".".join([spec.name, *parts]))
print(pack.WEB_DIRECTORY, pack.comfy_entrypoint.__name__)
"""

BLOCKED = ("vllm", "diffusers", "transformers", "ray", "pydantic_settings", "typer", "greenlet")


def test_no_serving_library_is_imported(new_comfyui):
    comfyui: ComfyUI = new_comfyui()
    code = LOAD_AS_COMFYUI_DOES.format(
        source=str(comfyui.source), repository=str(REPOSITORY), blocked=BLOCKED
    )
    result = subprocess.run(
        [comfyui.python, "-c", code],
        capture_output=True,
        text=True,
        cwd=comfyui.folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1"},
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[-2:] == ["./comfy_nodes/web", "comfy_entrypoint"]


def test_outside_comfyui_the_package_imports_nothing(tmp_path: Path):
    """Also not when a runtime is started from within ComfyUI's folder."""
    (tmp_path / "comfy_api").mkdir()
    (tmp_path / "comfy_api" / "__init__.py").write_text("raise AssertionError('imported')")
    code = f"""
import importlib.util, sys
sys.path.insert(0, {str(tmp_path)!r})
spec = importlib.util.spec_from_file_location("omnistage", {str(REPOSITORY / "__init__.py")!r})
module = importlib.util.module_from_spec(spec)
sys.modules["omnistage"] = module
before = set(sys.modules)
spec.loader.exec_module(module)
assert set(sys.modules) == before, set(sys.modules) - before
assert not hasattr(module, "comfy_entrypoint")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
