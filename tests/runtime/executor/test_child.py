"""What a child process is told by its environment."""

import asyncio
import os
import socket
import sys

import pytest

from omnistage.runtime.executor.child import spawn
from omnistage.tests.fakes import environment


async def environment_of_child() -> str:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = await spawn(environment.__name__, theirs)
        printed = await child.output.read()
        assert await child.wait() == 0
    return printed.decode()


@pytest.mark.parametrize(
    ("name", "default", "own"),
    [
        ("OMP_WAIT_POLICY", "PASSIVE", "ACTIVE"),
        ("MALLOC_MMAP_THRESHOLD_", str(64 * 2**20), "1000000"),
        ("MALLOC_TRIM_THRESHOLD_", str(2**30), "1000000"),
    ],
)
def test_threads_sleep_and_memory_is_kept_unless_the_user_says_otherwise(
    monkeypatch, name, default, own
):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.delenv(name, raising=False)
    assert f"{name}={default}\n" in asyncio.run(environment_of_child())
    monkeypatch.setenv(name, own)
    assert f"{name}={own}\n" in asyncio.run(environment_of_child())
