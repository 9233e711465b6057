import asyncio
import os
import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from omnistage.runtime.cli import app, main
from omnistage.runtime.config import ConfigError
from omnistage.runtime.server.serve import CannotListen, listen
from omnistage.tests.fakes.fake_server import FakeServer


def run(*arguments):
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})


def test_config_show_prints_values_with_their_origin(monkeypatch):
    monkeypatch.setenv("OMNISTAGE_STORE__BUDGET_MB", "7")
    output = run("config", "show", "--set", "server.token=secret", "--model", "m=/a/b").output
    lines = {line.split()[0]: line.split()[1:] for line in output.splitlines() if line.split()}
    assert lines["store.budget_mb"] == ["7", "OMNISTAGE_STORE__BUDGET_MB"]
    assert lines["models.m.source"] == ["/a/b", "--set", "models.m.source"]
    assert lines["server.port"] == ["8400", "default"]
    assert "secret" not in output.replace("server.token", "")


def test_a_wrong_setting_ends_in_words_not_in_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["omnistage", "serve", "--host", "0.0.0.0"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    error = capsys.readouterr().err
    assert "server.token" in error and "Traceback" not in error


def test_a_setting_that_does_not_exist_is_an_error():
    assert isinstance(run("serve", "--set", "a.b=1").exception, ConfigError)


def test_a_model_option_without_a_source_is_refused():
    result = run("serve", "--model", "x")
    assert result.exit_code == 2
    assert "ID=SOURCE" in result.output


def test_a_port_that_is_taken_is_said_before_anything_starts():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run("serve", "--port", str(taken.getsockname()[1]))
    assert isinstance(result.exception, CannotListen)
    assert "--port" in result.exception.message


def test_a_port_that_a_runtime_is_about_to_serve_is_taken():
    with listen("127.0.0.1", 0) as taken:
        result = run("serve", "--port", str(taken.getsockname()[1]))
    assert isinstance(result.exception, CannotListen)


async def test_models_lists_those_of_a_running_runtime():
    server = FakeServer()
    await server.start()
    command = [sys.executable, "-m", "omnistage.runtime", "models", "--address", server.url]
    environ = {"COLUMNS": "200", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = await asyncio.to_thread(
        subprocess.run,
        command,
        capture_output=True,
        text=True,
        check=True,
        env=environ,
    )
    await server.stop()
    assert "encode, sample, decode, load" in result.stdout


def test_version_prints_one_line():
    assert run("version").output.strip()
