"""A small client of ComfyUI's own HTTP API: queue prompts, wait, look at pictures, listen."""

from __future__ import annotations

import copy
import io
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
from PIL import Image

from .servers import REPOSITORY, ComfyUI, get_json, wait_until

WORKFLOWS = REPOSITORY / "workflows"
Graph = dict[str, Any]


def workflow(name: str) -> Graph:
    """One of the shipped workflows in API format, as it is."""
    return dict(json.loads((WORKFLOWS / "api" / f"{name}.json").read_text()))


def with_inputs(graph: Graph, class_type: str, **inputs: Any) -> Graph:
    """A copy of a graph in which every node of a class has these inputs."""
    changed = copy.deepcopy(graph)
    for node in changed.values():
        if node["class_type"] == class_type:
            node["inputs"] |= inputs
    return changed


class Refused(Exception):
    """ComfyUI did not take a prompt; `body` is its answer."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(json.dumps(body, indent=1))
        self.body = body

    @property
    def details(self) -> str:
        """What the user reads."""
        return str(self.body["error"]["details"])


class Comfy:
    """One ComfyUI server."""

    def __init__(self, server: ComfyUI) -> None:
        self.server = server

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST JSON; an empty answer is an empty object.

        Raises:
            Refused: ComfyUI answered 400.
        """
        request = urllib.request.Request(
            self.server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                data = answer.read()
        except urllib.error.HTTPError as error:
            if error.code == 400:
                raise Refused(json.load(error)) from error
            raise
        return json.loads(data) if data.strip() else {}

    def text(self, path: str) -> str:
        """GET a text."""
        with urllib.request.urlopen(self.server.url + path, timeout=60) as answer:
            return str(answer.read().decode())

    def queue(self, graph: Graph, **fields: Any) -> str:
        """Queue a prompt; returns its id."""
        return str(self.post("/prompt", {"prompt": graph, **fields})["prompt_id"])

    def wait(self, prompt_id: str, timeout_s: float = 300.0) -> dict[str, Any]:
        """Wait for a prompt's end; returns its history entry."""

        def entry() -> Any:
            return get_json(f"{self.server.url}/history/{prompt_id}").get(prompt_id)

        return dict(wait_until(entry, f"prompt {prompt_id} ends", timeout_s))

    def run(self, graph: Graph) -> list[Image.Image]:
        """Run a prompt to success; returns its pictures, in the order of their nodes."""
        return self.run_all([graph])[0]

    def run_all(self, graphs: Sequence[Graph]) -> list[list[Image.Image]]:
        """Queue prompts at once and wait for all; returns each one's pictures.

        Raises:
            RuntimeError: a prompt did not end in success; says what the user reads.
        """
        return [self.pictures(self.finished(own)) for own in [self.queue(g) for g in graphs]]

    def finished(self, prompt_id: str) -> dict[str, Any]:
        """Wait for a prompt's success; returns its history entry.

        Raises:
            RuntimeError: it did not end in success; says what the user reads.
        """
        entry = self.wait(prompt_id)
        if entry["status"]["status_str"] != "success":
            raise RuntimeError(error_of(entry) or "the prompt was interrupted")
        return entry

    def texts(self, entry: dict[str, Any]) -> list[str]:
        """What the preview nodes of a finished prompt show, in the order of their nodes."""
        outputs = sorted(entry["outputs"].items(), key=lambda item: int(item[0]))
        return [text for _, output in outputs for text in output.get("text", [])]

    def pictures(self, entry: dict[str, Any]) -> list[Image.Image]:
        """The pictures of a finished prompt."""
        files = self._files(entry, "images")
        return [Image.open(io.BytesIO(data)).convert("RGB") for data in files]

    def sounds(self, entry: dict[str, Any]) -> list[tuple[npt.NDArray[np.float32], int]]:
        """The sounds of a finished prompt, `[channels, T]` with their rate in Hz."""
        read = (
            soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
            for data in self._files(entry, "audio")
        )
        return [(samples.T, rate) for samples, rate in read]

    def _files(self, entry: dict[str, Any], kind: str) -> list[bytes]:
        """The files of a kind that a finished prompt saved, in the order of their nodes."""
        outputs = sorted(entry["outputs"].items(), key=lambda item: int(item[0]))
        return [self._file(file) for _, output in outputs for file in output.get(kind, [])]

    def _file(self, file: dict[str, str]) -> bytes:
        url = f"{self.server.url}/view?{urllib.parse.urlencode(file)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return bytes(answer.read())

    def running(self) -> list[str]:
        """Ids of the prompts being executed."""
        return [item[1] for item in get_json(self.server.url + "/queue")["queue_running"]]

    def idle(self) -> bool:
        """Whether the queue is empty."""
        queue = get_json(self.server.url + "/queue")
        return not queue["queue_running"] and not queue["queue_pending"]

    def drain(self) -> None:
        """Stop and drop everything."""
        self.post("/queue", {"clear": True})
        deadline = time.monotonic() + 60
        while not self.idle() and time.monotonic() < deadline:
            self.post("/interrupt", {})
            time.sleep(0.2)

    def set_queue_ahead(self, on: bool) -> None:
        """Turn the pack's queue-ahead on or off, as the settings dialog does."""
        folder = self.server.folder / "user" / "default"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "comfy.settings.json"
        saved = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**saved, "OmniStage.queueAhead": on}))


def error_of(entry: dict[str, Any]) -> str:
    """What a failed prompt tells the user; empty if it did not fail."""
    for kind, data in entry["status"]["messages"]:
        if kind == "execution_error":
            return str(data["exception_message"])
    return ""


def was_interrupted(entry: dict[str, Any]) -> bool:
    """Whether a prompt was stopped."""
    return any(kind == "execution_interrupted" for kind, _ in entry["status"]["messages"])
