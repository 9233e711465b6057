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


@pytest.mark.parametrize(("own", "told"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_sleep_while_they_wait_unless_the_user_says_otherwise(monkeypatch, own, told):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if own:
        monkeypatch.setenv("OMP_WAIT_POLICY", own)
    assert f"OMP_WAIT_POLICY={told}\n" in asyncio.run(environment_of_child())
