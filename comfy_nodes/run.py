"""One job of one node: submit or join it, show what happens, stop it, say what went wrong."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeVar

from ..runtime.client import RuntimeClient
from ..runtime.protocol.errors import (
    EngineStarting,
    JobCancelled,
    JobFailed,
    OmniStageError,
    ResultGone,
)
from ..runtime.protocol.frames import Frame
from ..runtime.protocol.messages import JobEvent, SubmitReply, SubmitRequest
from ..runtime.protocol.recipe import Handle
from . import host, media
from .leases import CLIENT, owner_of
from .pack import Pack, pack
from .values import Remote

T = TypeVar("T")
Describe = Callable[[Mapping[str, Any]], str]
"""Parameters as they were used, defaults filled in, as a line of text for the node."""

_POLL_S = 0.1
"""ComfyUI's Stop only sets a flag; this is how often a waiting node looks at it."""
_RETRIES = 2


class NodeError(Exception):
    """Why a node failed, in words for the person at the page."""


@dataclass
class _Work:
    """What a node waits for; `news` is filled by the I/O thread and read by the node."""

    pack: Pack
    prompt: str
    node: str
    result: Remote
    previews: bool
    describe: Describe
    news: SimpleQueue[JobEvent | str] = field(default_factory=SimpleQueue)


def _say_nothing(_: Mapping[str, Any]) -> str:
    return ""


async def finish(title: str, result: Remote, describe: Describe = _say_nothing) -> None:
    """Wait until a result is there, and leave it on the runtime.

    Args:
        title: the node's name, for error messages.
        result: what to wait for.
        describe: makes the line of text that the node shows.

    Raises:
        NodeError: the job was refused or failed.
    """
    if isinstance(result.source, Handle):
        work = _work(result, describe)
        await _watch(title, work, _finished(work))


async def fetch(title: str, result: Remote) -> Frame:
    """Wait for a result and download it.

    Raises:
        NodeError: the job was refused or failed.
    """
    if not isinstance(result.source, Handle):
        return Frame.decode(result.source.data)
    work = _work(result, _say_nothing)
    return await _watch(title, work, _fetched(work))


def _work(result: Remote, describe: Describe) -> _Work:
    return _Work(
        pack(), host.current_prompt(), host.current_node(), result, host.watched(), describe
    )


# --- on the loop of the prompt --------------------------------------------------------------------


async def _watch(title: str, work: _Work, job: Coroutine[Any, Any, T]) -> T:
    """Wait for a coroutine on the I/O loop, showing its news and looking for Stop."""
    future = work.pack.io.start(job)
    try:
        return await _until_done(work, future)
    except BaseException as error:
        future.cancel()
        work.pack.io.start(work.pack.leases.release(work.prompt))
        if isinstance(error, OmniStageError):
            raise NodeError(f"{title}: {error.message}") from error
        raise


async def _until_done(work: _Work, future: concurrent.futures.Future[T]) -> T:
    waiting = asyncio.wrap_future(future)
    while True:
        done, _ = await asyncio.wait([waiting], timeout=_POLL_S)
        _show(work)
        if done:
            return waiting.result()
        host.stop_if_interrupted()


def _show(work: _Work) -> None:
    """Show the latest news on the node."""
    text, step, image = "", None, None
    while not work.news.empty():
        item = work.news.get_nowait()
        if isinstance(item, str):
            text = item
        elif item.total:
            step, image = item, item.image or image
            text = f"step {step.step}/{step.total}, batch {step.batch}"
    if step is not None:
        picture = None if image is None else media.preview_image(image)
        host.show_progress(work.node, step.step, step.total, picture)
    if text:
        host.show_text(work.node, text)


# --- on the I/O loop ------------------------------------------------------------------------------


async def _finished(work: _Work) -> None:
    client = await work.pack.runtimes.ready(work.result.address)
    await _finish(work, client)


async def _fetched(work: _Work) -> Frame:
    client = await work.pack.runtimes.ready(work.result.address)
    for _ in range(_RETRIES):
        with suppress(ResultGone):  # evicted between two steps of ours: the recipe brings it back
            return await client.output(*await _finish(work, client))
    return await client.output(*await _finish(work, client))


async def _finish(work: _Work, client: RuntimeClient) -> tuple[str, str]:
    """Bring a job to its end; returns its key and the output's name."""
    handle = work.result.source
    assert isinstance(handle, Handle)
    work.pack.leases.hold(work.prompt, client)
    reply = await _submit(work, client, handle)
    key = reply.keys[handle.job]
    if reply.states[handle.job] != "done":  # queue-ahead has often been here before
        await _follow(work, client, key)
    if text := work.describe(reply.params[handle.job]):
        work.news.put(text)
    return key, handle.output


async def _follow(work: _Work, client: RuntimeClient, key: str) -> None:
    """Pass a job's events on until it is done."""
    async with aclosing(client.events(key, owner=owner_of(work.prompt))) as events:
        async for event in events:
            work.news.put(event)
            if event.kind == "failed":
                raise event.error or JobFailed("The job failed.", job=key)
            if event.kind == "cancelled":
                raise event.error or JobCancelled("The job was stopped on the runtime.", job=key)


async def _submit(work: _Work, client: RuntimeClient, handle: Handle) -> SubmitReply:
    request = SubmitRequest(owner_of(work.prompt), CLIENT, handle.recipe, previews=work.previews)
    while True:
        try:
            return await client.submit(request, handle.blobs)
        except EngineStarting as error:
            work.news.put(error.message)
            await asyncio.sleep(_POLL_S * 5)
