"""The page's part of playing: `web/play.js` in Node.js, see `play.mjs`."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

SCRIPT = Path(__file__).with_name("play.mjs")
PLAYER = Path(__file__).parents[2] / "comfy_nodes" / "web" / "play.js"
CASES = re.findall(r"^  (\w+)\(\) \{$", SCRIPT.read_text().partition("const CASES")[2], re.M)
PAGE = """\
export let extension
export const events = new EventTarget()
export const app = { registerExtension: (given) => (extension = given) }
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script next to the player, and a page that does nothing but what they need."""
    folder = tmp_path_factory.mktemp("page")
    for name in ("scripts", "extensions/omnistage"):
        (folder / name).mkdir(parents=True)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "scripts" / "app.js").write_text(PAGE)
    (folder / "scripts" / "api.js").write_text("export { events as api } from './app.js'\n")
    shutil.copy(PLAYER, folder / "extensions" / "omnistage")
    return Path(shutil.copy(SCRIPT, folder))


@pytest.mark.parametrize("case", CASES)
def test_the_player(script: Path, case: str):
    run = subprocess.run(
        ["node", script, case], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
