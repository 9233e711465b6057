"""Where settings come from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import omnistage
from omnistage.comfy_nodes.settings import Settings
from omnistage.runtime.client.address import DEFAULT_ADDRESS

SAVED = {
    "OmniStage.address": "http://saved:1",
    "OmniStage.token": "secret",
    "OmniStage.queueAhead": False,
    "OmniStage.python": "/somewhere/python",
}


def test_defaults():
    settings = Settings.of({}, {})
    assert settings.runtime().url == DEFAULT_ADDRESS
    assert settings.runtime().token is None
    assert settings.queue_ahead
    assert settings.python == ""


def test_what_comfyui_saved():
    settings = Settings.of({}, SAVED)
    assert (settings.runtime().url, settings.runtime().token) == ("http://saved:1", "secret")
    assert not settings.queue_ahead
    assert settings.python == "/somewhere/python"


def test_the_environment_wins():
    settings = Settings.of({"OMNISTAGE_ADDRESS": "env:2", "OMNISTAGE_QUEUE_AHEAD": "1"}, SAVED)
    assert settings.runtime().url == "http://env:2"
    assert settings.queue_ahead


@pytest.mark.parametrize("word", ["0", "false", "No", "OFF"])
def test_ways_to_say_no(word):
    assert not Settings.of({"OMNISTAGE_QUEUE_AHEAD": word}, {}).queue_ahead


def test_an_emptied_setting_is_the_default():
    assert Settings.of({}, {"OmniStage.address": " "}).runtime().url == DEFAULT_ADDRESS


def test_a_workflows_address_does_not_get_the_token():
    settings = Settings.of({}, SAVED)
    assert settings.runtime("http://stranger:9").token is None
    assert settings.runtime("http://saved:1").token == "secret"


def test_the_token_is_in_no_text_form():
    settings = Settings.of({}, SAVED)
    assert "secret" not in f"{settings} {settings!r} {settings.runtime()!r}"


def test_the_settings_dialog_has_the_same_settings():
    folder = Path(omnistage.__file__).parent / "comfy_nodes"
    script = (folder / "web" / "settings.js").read_text(encoding="utf-8")
    ids = re.findall(r'id: "([^"]+)"', script)
    assert set(ids) == set(SAVED)
    for language in ("en", "zh"):
        text = (folder / "locales" / language / "settings.json").read_text(encoding="utf-8")
        assert set(json.loads(text)) == {name.replace(".", "_") for name in ids}
