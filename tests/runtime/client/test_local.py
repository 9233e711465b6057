"""Starting a runtime for real: the installed command line, in a process of its own."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from omnistage.runtime.client.address import RuntimeAddress, find_address
from omnistage.runtime.client.client import RuntimeClient
from omnistage.runtime.client.local import start_local
from omnistage.runtime.protocol.errors import RuntimeUnavailable

from .test_client import unused_port


@pytest.fixture
def address():
    return find_address(f"http://127.0.0.1:{unused_port()}", environ={})


@pytest.fixture
def environ(tmp_path):
    path = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path)}


async def test_a_running_runtime_is_used_as_it_is(server):
    await server.start()
    local = await start_local(RuntimeAddress(server.url), environ={})
    assert local.process is None
    local.stop()
    assert (await server.client.health())["status"] == "ok"


async def test_without_a_configured_python_it_says_which_variable_to_set(address):
    with pytest.raises(RuntimeUnavailable, match="OMNISTAGE_PYTHON"):
        await start_local(address, environ={})


async def test_a_python_that_is_none_is_named(address, tmp_path):
    with pytest.raises(RuntimeUnavailable, match="not an executable"):
        await start_local(address, environ={"OMNISTAGE_PYTHON": str(tmp_path)})


async def test_a_runtime_elsewhere_is_not_started_here():
    with pytest.raises(RuntimeUnavailable, match="only be started on this machine"):
        away = RuntimeAddress("http://192.0.2.1:1")
        await start_local(away, python=sys.executable, environ={})


async def test_a_runtime_that_ends_at_once_shows_the_end_of_its_log(address, environ):
    with pytest.raises(RuntimeUnavailable, match=r"server\.nonsense") as caught:
        await start_local(
            address, python=sys.executable, arguments=["--set", "server.nonsense=1"],
            environ=environ,
        )  # fmt: skip
    assert "ended with code 1" in caught.value.message


async def test_two_that_start_one_at_the_same_time_share_it(address, environ):
    arguments = ["--set", "engine.executor=inline"]
    starts = (
        start_local(address, python=sys.executable, arguments=arguments, environ=environ, log=log)
        for log in (Path(environ["XDG_CACHE_HOME"]) / name for name in "ab")
    )
    both = await asyncio.gather(*starts)
    assert sorted(local.process is None for local in both) == [False, True]
    for local in both:
        local.stop()


async def test_who_comes_second_knows_that_the_runtime_is_not_its_own(address, environ, tmp_path):
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    first, second = await asyncio.gather(
        start_local(
            address, python=sys.executable, arguments=["--set", "engine.executor=inline"],
            environ=environ,
        ),
        start_local(address, python=slow, environ=environ, log=tmp_path / "second"),
    )  # fmt: skip
    assert first.process is not None
    assert second.process is None
    first.stop()


STARTER = """
import asyncio, sys
from omnistage.runtime.client.address import find_address
from omnistage.runtime.client.local import _spawn
from pathlib import Path
import os
address = find_address(sys.argv[1], environ={})
_spawn(sys.executable, address, [], Path(sys.argv[2]), True, os.environ)
sys.stdin.read()
"""


async def test_a_tied_runtime_ends_when_its_starter_is_killed(address, environ, tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", STARTER, address.url, str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environ) as starter:
        async with RuntimeClient(address.url) as client:
            await until_answering(client, log, expected=True)
            starter.kill()
            await until_answering(client, log, expected=False)
    assert "shutting down" in log.read_text()


async def until_answering(client, log, *, expected):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            await client.health()
            answering = True
        except RuntimeUnavailable:
            answering = False
        if answering is expected:
            return
        await asyncio.sleep(0.1)
    pytest.fail(log.read_text() if log.exists() else "no log")
