"""What the pack adds to ComfyUI's HTTP requests.

- a posted prompt that the runtime would refuse is answered at once, in ComfyUI's own form
- a page that has models unloaded means the runtime's, too
- a page that asks for the nodes gets the models there are now
- a page that asks for translations gets the pack's too
- whatever was posted, the queue is looked at afterwards, and nodes that wait look for Stop
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import torch
from aiohttp import web

from ..runtime.protocol.errors import OmniStageError
from . import host
from .free import free_runtime
from .pack import Pack
from .planner import Plan, QueuedPrompt, is_link, plan
from .precheck import problems, unknown_model
from .problem import Problem, refusal
from .translations import with_ours

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_middleware(pack: Pack, wake: Callable[[], None]) -> Any:
    """The aiohttp middleware of a pack.

    Args:
        pack: the connection to runtimes.
        wake: has the queue, and the flag that Stop sets, looked at.
    """

    @web.middleware
    async def omnistage(request: web.Request, handler: Handler) -> web.StreamResponse:
        path = request.path.removeprefix("/api")
        if request.method == "GET":
            return await _answer(request, path, handler, pack)
        if request.method != "POST":
            return await handler(request)
        if path == "/prompt":
            refused = await _refuse(request, pack)
            if refused is not None:
                return refused
        if path == "/free":
            await _free(request, pack)
        try:
            return await handler(request)
        finally:
            wake()

    return omnistage


async def _answer(
    request: web.Request, path: str, handler: Handler, pack: Pack
) -> web.StreamResponse:
    """ComfyUI's answer to a page, brought up to date."""
    if path.startswith("/object_info"):
        await pack.io.call(pack.catalogue.refresh())
    response = await handler(request)
    if path == "/i18n" and isinstance(response, web.Response) and response.text:
        return web.json_response(with_ours(json.loads(response.text)))
    return response


async def _free(request: web.Request, pack: Pack) -> None:
    """Free the runtime's memory beside ComfyUI's own."""
    try:
        asked = dict(await request.json())
    except Exception:  # a border: ComfyUI answers what is malformed, in its own words
        log.debug("OmniStage: a request to free memory was not understood", exc_info=True)
        return
    pack.io.start(free_runtime(asked, pack.runtimes.client))


async def _refuse(request: web.Request, pack: Pack) -> web.Response | None:
    """The answer to a prompt that cannot work; None for one that may."""
    try:
        graph = (await request.json())["prompt"]
        found = await pack.io.call(_check(graph, pack))
    except Exception:  # a border: ComfyUI answers what is malformed, in its own words
        log.debug("OmniStage: a posted prompt could not be checked", exc_info=True)
        return None
    if not found:
        return None
    body = refusal(found, graph)
    log.error("OmniStage: prompt refused:\n%s", body["error"]["details"])
    return web.json_response(body, status=400)


async def _check(graph: Mapping[str, Any], pack: Pack) -> list[Problem]:
    """What is wrong with a posted graph."""
    # Which files it reads does not matter here, only that their nodes can be planned.
    prompt = QueuedPrompt("", graph, host.output_nodes(graph))
    picture = (torch.zeros(1, 1, 1, 3), torch.zeros(1, 1, 1))
    silence = {"waveform": torch.zeros(1, 1, 1), "sample_rate": 1}
    planned = plan(prompt, lambda _: picture, lambda _: silence)
    found: list[Problem] = []
    for address in planned.addresses:
        found += await _check_runtime(address, graph, planned, pack)
    return found


async def _check_runtime(
    address: str, graph: Mapping[str, Any], planned: Plan, pack: Pack
) -> list[Problem]:
    """What is wrong with the part of a graph that one runtime is to do."""
    here = planned.at(address)
    named = {
        node: model.id
        for node, model in here.models.items()
        if not is_link(graph[node]["inputs"]["model"])  # a node that only passes it on
    }
    try:
        models = await pack.catalogue.models(address)
    except OmniStageError as error:
        if pack.runtimes.starts(address):
            return []  # it is started when the prompt runs
        return [Problem(node, error.field or "model", error.message) for node in named]
    found = [
        Problem(node, "model", unknown_model(model, models))
        for node, model in named.items()
        if model not in models
    ]
    return found or list(problems(graph, here, models))
