"""Real servers as child processes: a runtime, and a ComfyUI with the pack in it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 180.0


def free_port() -> int:
    """A port nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get_json(url: str) -> Any:
    """GET a JSON document."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    """Poll until the condition is true; returns its value."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {timeout_s:.0f} s")


class Server:
    """A server process on a loopback port of its own; its output goes to a file."""

    def __init__(self, folder: Path, name: str, ready_path: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"{name}.log"
        self._ready_path = ready_path
        self._process: subprocess.Popen[bytes] | None = None

    def launch(
        self, command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]
    ) -> None:
        """Start the process and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(self._answers, f"{self.log.name} says the server is up", START_TIMEOUT_S)

    def end(self, sig: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal to the process and all its children, and wait for its end."""
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, sig)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """Kill it as a crash would, without a chance to clean up."""
        self.end(signal.SIGKILL)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            tail = self.log.read_text(errors="replace")[-3000:]
            raise AssertionError(f"the server ended with {self._process.returncode}:\n{tail}")
        try:
            get_json(self.url + self._ready_path)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        return True


class Runtime(Server):
    """`omnistage serve` with the demo model."""

    LEASE_S = 8.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "runtime", "/ready")
        self._folder = folder

    def start(self) -> None:
        """Start it, also again after a kill, at the same address."""
        command = [sys.executable, "-m", "omnistage.runtime", "serve", "--port", str(self.port)]
        self.launch([*command, "--set", f"leases.ttl_s={self.LEASE_S}"], self._folder, {})

    @property
    def stats(self) -> dict[str, Any]:
        """The runtime's counters and gauges."""
        return dict(get_json(self.url + "/v1/stats"))

    @property
    def live_jobs(self) -> int:
        """Jobs that wait or run."""
        return sum(self.stats["jobs"].values())

    def model(self, name: str = "demo") -> dict[str, Any]:
        """The description of a model."""
        models = get_json(self.url + "/v1/models")["models"]
        return next(dict(model) for model in models if model["id"] == name)


class ComfyUI(Server):
    """A real ComfyUI with folders of its own and this repository as its only pack."""

    def __init__(self, folder: Path, source: Path, python: Path) -> None:
        super().__init__(folder, "comfyui", "/system_stats")
        self.folder = folder
        self.source = source
        self.python = python
        for name in ("custom_nodes", "input", "output", "temp", "user", "models/checkpoints"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "custom_nodes" / "omnistage").symlink_to(REPOSITORY)

    def start(self, environment: Mapping[str, str]) -> None:
        """Start it with these variables, such as the runtime's address."""
        options = ["--cpu", "--disable-api-nodes", "--listen", "127.0.0.1"]
        options += ["--port", str(self.port), "--base-directory", str(self.folder)]
        options += ["--database-url", f"sqlite:///{self.folder}/user/comfyui.db"]
        environment = {"HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1", **environment}
        self.launch([self.python, "main.py", *options], self.source, environment)
