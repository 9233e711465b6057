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
from typing import Any, Self

REPOSITORY = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 180.0
_MODEL_TIMEOUT_S = 600.0


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
    """Poll until the condition is true; returns its value.

    Raises:
        TimeoutError: it is not true in time.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")


class Server:
    """A server process on a loopback port of its own; its output goes to a file."""

    def __init__(self, folder: Path, name: str, ready_path: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"{name}.log"
        self._ready_path = ready_path
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """The server; it ends with the block."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the process."""
        self.end()

    def launch(
        self, command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]
    ) -> None:
        """Start the process and wait until it answers; it is ended if it does not.

        Raises:
            RuntimeError: it ended instead; carries the end of its log.
            TimeoutError: it does not answer in time.
        """
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
        try:
            wait_until(self._answers, f"{self.log.name} says the server is up", START_TIMEOUT_S)
        except BaseException:
            self.end()
            raise

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
        if self._process is None or self._process.poll() is not None:
            tail = self.log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the server ended; the end of its log:\n{tail}")
        try:
            get_json(self.url + self._ready_path)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        return True


class Runtime(Server):
    """`omnistage serve` with the demo model."""

    def __init__(self, folder: Path, *settings: str) -> None:
        super().__init__(folder, "runtime", "/ready")
        self._folder = folder
        self._settings = settings

    def start(self) -> None:
        """Start it, also again after a kill, at the same address."""
        command = [sys.executable, "-m", "omnistage.runtime", "serve", "--port", str(self.port)]
        for setting in self._settings:
            command += ["--set", setting]
        self.launch(command, self._folder, {})

    @property
    def stats(self) -> dict[str, Any]:
        """The runtime's counters and gauges."""
        return dict(get_json(self.url + "/v1/stats"))

    @property
    def live_jobs(self) -> int:
        """Jobs that wait or run."""
        return sum(self.stats["jobs"].values())

    def wait_for_model(self, name: str) -> None:
        """Wait until a model can be used: a language model may have to be converted first.

        Raises:
            TimeoutError: it cannot after some minutes.
        """
        wait_until(lambda: name in self.models, f"model {name} can be used", _MODEL_TIMEOUT_S)

    @property
    def models(self) -> dict[str, dict[str, Any]]:
        """Descriptions of the models by id."""
        return {model["id"]: model for model in get_json(self.url + "/v1/models")["models"]}


class ComfyUI(Server):
    """A real ComfyUI with folders of its own and only this repository as a pack."""

    def __init__(self, folder: Path, source: Path, python: Path, pack: Path = REPOSITORY) -> None:
        super().__init__(folder, "comfyui", "/system_stats")
        self.folder = folder
        self.source = source
        self.python = python
        for name in ("custom_nodes", "input", "output", "temp", "user", "models/checkpoints"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "custom_nodes" / "omnistage").symlink_to(pack)

    def start(self, environment: Mapping[str, str]) -> None:
        """Start it with these variables, such as the runtime's address."""
        options = ["--cpu", "--disable-api-nodes", "--listen", "127.0.0.1"]
        options += ["--port", str(self.port), "--base-directory", str(self.folder)]
        options += ["--database-url", f"sqlite:///{self.folder}/user/comfyui.db"]
        environment = {"HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1", **environment}
        self.launch([self.python, "main.py", *options], self.source, environment)


def comfyui_python(source: Path) -> Path:
    """The Python of a ComfyUI folder: `COMFYUI_PYTHON`, or a venv in or beside the folder."""
    named = os.environ.get("COMFYUI_PYTHON")
    places = [source / "venv", source / ".venv", source.parent / "venv"]
    found = [place / "bin" / "python" for place in places]
    return Path(named) if named else next((p for p in found if p.exists()), Path(sys.executable))
