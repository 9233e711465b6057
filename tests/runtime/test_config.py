from pathlib import Path

import pytest

from omnistage.runtime.config import ConfigError, load_config


def origins(loaded):
    return {s.name: (s.value, s.origin) for s in loaded.settings()}


def test_defaults_serve_what_comes_along_on_loopback_only():
    config = load_config(environ={}).config
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8400)
    assert [e.source for e in config.catalogue().entries()] == ["demo", "voice", "smollm2"]


def test_later_sources_win_and_every_value_knows_its_origin(tmp_path: Path):
    file = tmp_path / "omnistage.toml"
    file.write_text("[server]\nport = 1\nhost = 'localhost'\n[store]\nbudget_mb = 7\n")
    environ = {"OMNISTAGE_SERVER__PORT": "2", "OMNISTAGE_STORE__BUDGET_MB": "8"}
    loaded = load_config(file, ["server.port=3"], environ)
    shown = origins(loaded)
    assert shown["server.port"] == (3, "--set server.port")
    assert shown["store.budget_mb"] == (8, "OMNISTAGE_STORE__BUDGET_MB")
    assert shown["server.host"] == ("localhost", str(file))
    assert shown["engine.retries"] == (2, "default")


def test_client_variables_are_not_settings():
    load_config(environ={"OMNISTAGE_ADDRESS": "http://x:1", "OMNISTAGE_TOKEN": "t"})


def test_engine_settings_pass_through():
    config = load_config(assignments=["engine.diffusion.policy=fair"], environ={}).config
    assert config.engine.diffusion.policy == "fair"


def test_configured_models_replace_the_demo():
    texts = [
        "models.qwen.source=/m/qwen",
        "models.qwen.dtype=bfloat16",
        "models.qwen.device=cuda:0",
    ]
    (entry,) = load_config(assignments=texts, environ={}).config.catalogue().entries()
    assert (entry.id, entry.source, entry.dtype, entry.device) == (
        "qwen",
        "/m/qwen",
        "bfloat16",
        "cuda:0",
    )


def test_other_machines_are_let_in_with_a_token_only():
    with pytest.raises(ConfigError, match=r"server \(from --set server.host\).*server.token"):
        load_config(assignments=["server.host=0.0.0.0"], environ={})
    texts = ["server.host=0.0.0.0", "server.token=secret"]
    loaded = load_config(assignments=texts, environ={})
    assert origins(loaded)["server.token"][0] == "**********"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("server.port=99999", r"server.port \(from --set server.port\): .*65535"),
        ("server.prot=1", r"server.prot.*no such setting"),
        ("engine.diffusion.policy=best", r"engine.diffusion.policy.*'fcfs'"),
        ("server.port.x=1", r"server.port"),
        ("models.m.dtype=float32", r"models.m .*needs a source"),
        ("server.token=''", r"server.token"),
        ("nonsense", r"section.name=value"),
    ],
)
def test_a_wrong_value_is_named_with_its_origin(text, words):
    with pytest.raises(ConfigError, match=words):
        load_config(assignments=[text], environ={})


def test_a_section_that_is_also_a_value_is_refused():
    with pytest.raises(ConfigError, match="port is a value"):
        load_config(assignments=["server.port=1", "server.port.x=2"], environ={})


@pytest.mark.parametrize("content", [b"[server\n", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, content):
    file = tmp_path / "x.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"x\.toml is not TOML"):
        load_config(file, environ={})


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "none.toml", environ={})
