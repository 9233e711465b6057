"""Find or start a runtime on this machine, in a Python of its own; never installs anything."""

from __future__ import annotations

import asyncio
import os
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ..protocol.errors import RuntimeUnavailable
from .address import RuntimeAddress
from .client import RuntimeClient

PYTHON_VARIABLE = "OMNISTAGE_PYTHON"
_POLL_S = 0.2
_RIVAL_S = 1.0
"""When a started runtime ends, another may have got the port first; this long to hear of it."""
_TAIL_BYTES = 4000


@dataclass(slots=True)
class LocalRuntime:
    """A runtime on this machine.

    Keep it: a tied runtime ends when this object is forgotten.

    Attributes:
        process: the process this side started; None if the runtime was there already.
        log: where a started runtime writes.
    """

    address: RuntimeAddress
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None

    def stop(self) -> None:
        """Stop the runtime if it was started here; it shuts down gracefully."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


async def start_local(
    address: RuntimeAddress,
    *,
    python: str | Path | None = None,
    arguments: Sequence[str] = (),
    log: Path | None = None,
    tied: bool = True,
    timeout_s: float = 180.0,
    environ: Mapping[str, str] | None = None,
) -> LocalRuntime:
    """The runtime at an address of this machine, started if none answers there.

    Args:
        address: where to look, and where a started runtime listens.
        python: executable of the runtime's environment; default `OMNISTAGE_PYTHON`.
        arguments: more arguments for `serve`, such as `--config FILE`.
        log: file for the runtime's output; default in the user's cache folder.
        tied: whether a started runtime ends with this process.
        timeout_s: how long it may take to become ready.
        environ: replaces the process environment.

    Raises:
        RuntimeUnavailable: no Python is configured, or the runtime did not come up; holds the
            end of its log.
    """
    environ = os.environ if environ is None else environ
    async with RuntimeClient(address.url, address.token) as client:
        if await _answers(client):
            return LocalRuntime(address)
        executable = _executable(python or environ.get(PYTHON_VARIABLE), address)
        log = log or _default_log(address, environ)
        boot_id = uuid.uuid4().hex
        arguments = [*arguments, "--boot-id", boot_id]
        local = LocalRuntime(
            address, _spawn(executable, address, arguments, log, tied, environ), log
        )
        with ExitStack() as undo:
            undo.callback(local.stop)
            await _wait_until_ready(client, local, timeout_s)
            if (await client.health())["boot_id"] != boot_id:  # another got the port first
                return LocalRuntime(address)
            undo.pop_all()
        return local


async def _answers(client: RuntimeClient) -> bool:
    try:
        await client.health(timeout_s=2.0)
    except RuntimeUnavailable:
        return False
    return True


def _executable(python: str | Path | None, address: RuntimeAddress) -> str:
    if not address.is_local:
        raise RuntimeUnavailable(
            f"No OmniStage runtime answers at {address.url}, and one can only be started on this "
            "machine. Start it there with `omnistage serve`.",
            field="address",
            value=address.url,
        )
    if not python:
        raise RuntimeUnavailable(
            f"No OmniStage runtime answers at {address.url}, and {PYTHON_VARIABLE} does not say "
            "which Python could start one. Set it to the Python of the environment OmniStage is "
            "installed in, or run `omnistage serve` yourself.",
            field=PYTHON_VARIABLE,
        )
    if not os.access(python, os.X_OK) or Path(python).is_dir():
        raise RuntimeUnavailable(
            f"{PYTHON_VARIABLE} = {python} is not an executable file.",
            field=PYTHON_VARIABLE,
            value=str(python),
        )
    return str(python)


def _default_log(address: RuntimeAddress, environ: Mapping[str, str]) -> Path:
    cache = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "omnistage" / f"runtime-{address.port}.log"


def _spawn(
    python: str,
    address: RuntimeAddress,
    arguments: Sequence[str],
    log: Path,
    tied: bool,
    environ: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    # -P: the folder this process happens to stand in must not shadow the runtime's imports
    command = [python, "-P", "-m", "omnistage.runtime", "serve"]
    command += ["--host", address.host, "--port", str(address.port)]
    command += [*arguments, *(["--tied"] if tied else [])]
    environ = dict(environ)
    if address.token is not None:  # not on the command line, where other users could read it
        environ["OMNISTAGE_SERVER__TOKEN"] = address.token
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            # A tied runtime stops when this pipe closes, however this process ends.
            stdin=subprocess.PIPE if tied else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environ,
            start_new_session=True,  # Ctrl-C in this terminal is not meant for it
        )


async def _wait_until_ready(client: RuntimeClient, local: LocalRuntime, timeout_s: float) -> None:
    assert local.process is not None
    clock = asyncio.get_running_loop().time
    deadline_s, ended_s = clock() + timeout_s, None
    while clock() < deadline_s:
        try:
            if await client.ready():
                return
        except RuntimeUnavailable:
            if ended_s is not None and clock() - ended_s > _RIVAL_S:
                code = local.process.returncode
                raise _did_not_start(local, f"it ended with code {code}") from None
        if ended_s is None and local.process.poll() is not None:
            ended_s = clock()
        await asyncio.sleep(_POLL_S)
    raise _did_not_start(local, f"it was not ready within {timeout_s:.0f} s")


def _did_not_start(local: LocalRuntime, why: str) -> RuntimeUnavailable:
    assert local.log is not None
    with local.log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        tail = file.read().decode("utf-8", "replace").strip()
    return RuntimeUnavailable(
        f"The runtime at {local.address.url} did not start: {why}. The end of its log "
        f"({local.log}):\n{tail}",
        field="address",
        value=local.address.url,
    )
