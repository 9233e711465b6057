"""Run an API-format workflow with the public client comfy-api-simplified and save its picture.

Usage: ``python tests/comfyui/simplified_client.py SERVER_URL WORKFLOW.json PICTURE``, with the
Python of the ``.clients`` environment. The workflow's nodes need titles (``_meta.title``), as
ComfyUI writes them. Prints the prompt's id.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from comfy_api_simplified import ComfyApiWrapper, ComfyWorkflowWrapper

HISTORY_TIMEOUT_S = 10.0


def main(server: str, workflow_file: str, picture: str) -> None:
    """Queue the workflow, wait for it and write its first picture."""
    api = ComfyApiWrapper(server)
    workflow = ComfyWorkflowWrapper(workflow_file)
    # Not queue_and_wait_images(): it takes previews for results when a node sends any.
    prompt_id, _previews = asyncio.run(api.queue_prompt_and_wait(workflow))
    first = finished_images(api, prompt_id)[0]
    data = api.get_image(first["filename"], first["subfolder"], first["type"])
    Path(picture).write_bytes(data)
    print(prompt_id)


def finished_images(api: ComfyApiWrapper, prompt_id: str) -> list[dict[str, Any]]:
    """Return the prompt's saved images; the history can lag behind the last event."""
    deadline = time.monotonic() + HISTORY_TIMEOUT_S
    while time.monotonic() < deadline:
        outputs = api.get_history(prompt_id).get(prompt_id, {}).get("outputs", {})
        images = [image for output in outputs.values() for image in output.get("images", [])]
        if images:
            return images
        time.sleep(0.05)
    raise SystemExit(f"prompt {prompt_id} finished without a picture")


if __name__ == "__main__":
    main(*sys.argv[1:])
