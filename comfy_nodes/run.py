"""The jobs of one node: submit or join them, show what happens, stop, say what went wrong."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
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
from ..runtime.protocol.messages import SubmitReply, SubmitRequest
from ..runtime.protocol.recipe import Handle
from . import host, media
from .display import Display, News
from .leases import CLIENT, owner_of
from .pack import Pack, pack
from .playback import EVENT, Playback
from .values import Remote

T = TypeVar("T")
Describe = Callable[[Mapping[str, Any]], str]
"""Parameters as they were used, defaults filled in, as a line of text for the node."""
DescribeFrame = Callable[[Mapping[str, Any], Frame], str]
"""The same, of a result that is here."""

_POLL_S = 0.125
"""How often a waiting node shows its news, and looks at the flag that ComfyUI's Stop sets, when
nothing woke it."""
_RELEASE_S = 1.0
"""How long a node that ends early may wait for its runtime to hear of it."""
_RETRIES = 2


class NodeError(Exception):
    """Why a node failed, in words for the person at the page."""


@dataclass
class _Work:
    """What a node waits for; `news` is filled by the I/O thread and read by the node."""

    pack: Pack
    prompt: str
    node: str
    previews: bool
    playback: Playback | None = None
    display: Display = field(default_factory=Display)
    news: SimpleQueue[News] = field(default_factory=SimpleQueue)


def _say_nothing(*_: Any) -> str:
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
        work = _work()
        await _watch(title, work, _finished(work, result, describe))


async def begin(title: str, result: Remote, describe: Describe = _say_nothing) -> None:
    """Have a result made, and leave the wait to whoever needs it; see `finish`.

    Raises:
        NodeError: the job was refused.
    """
    work = _work()
    await _watch(title, work, _begun(work, result, describe))


async def fetch(
    title: str,
    result: Remote,
    describe: DescribeFrame = _say_nothing,
    *,
    playback: Playback | None = None,
) -> Frame:
    """Wait for a result and download it; see `finish`.

    Args:
        title: the node's name, for error messages.
        result: what to wait for.
        describe: makes the line of text that the node shows.
        playback: plays it on the page while it is made.

    Raises:
        NodeError: the job was refused or failed.
    """
    if not isinstance(result.source, Handle):
        return Frame.decode(result.source.data)
    work = _work(playback)
    return await _watch(title, work, _fetched(work, result, describe))


async def fetch_all(
    title: str, *results: Remote, playback: Playback | None = None
) -> Sequence[Frame]:
    """Wait for several jobs' results at the same time; see `fetch`.

    Raises:
        NodeError: a job was refused or failed.
    """
    work = _work(playback)
    fetches = (_fetched(work, result, _say_nothing) for result in results)
    return await _watch(title, work, _together(*fetches))


async def outputs_of(title: str, result: Remote) -> Collection[str]:
    """Names of all outputs that the job of a result has.

    Raises:
        NodeError: the runtime cannot be reached.
    """
    work = _work()
    return await _watch(title, work, _outputs(work, result))


def _work(playback: Playback | None = None) -> _Work:
    node = host.current_node()
    return _Work(pack(), host.current_prompt(), node, host.watched(), playback)


# --- on the loop of the prompt --------------------------------------------------------------------


async def _watch(title: str, work: _Work, job: Coroutine[Any, Any, T]) -> T:
    """Wait for a coroutine on the I/O loop, showing its news and looking for Stop."""
    future = work.pack.io.start(job)
    try:
        return await _until_done(work, future)
    except BaseException as error:
        future.cancel()
        await _release(work)
        if isinstance(error, OmniStageError):
            raise NodeError(f"{title}: {error.message}") from error
        raise


async def _until_done(work: _Work, future: concurrent.futures.Future[T]) -> T:
    waiting = asyncio.wrap_future(future)
    while True:
        with work.pack.bell.heard() as rung:
            either: tuple[asyncio.Future[Any], ...] = (waiting, rung)
            await asyncio.wait(either, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
        _show(work)
        if waiting.done():
            return waiting.result()
        host.stop_if_interrupted()


async def _release(work: _Work) -> None:
    """Give up the prompt's work before ComfyUI goes on.

    It collects garbage after a prompt, which stops all its threads for some tenths of a second.
    """
    released = work.pack.io.start(work.pack.leases.release(work.prompt))
    await asyncio.wait([asyncio.wrap_future(released)], timeout=_RELEASE_S)


def _show(work: _Work) -> None:
    """Show the latest news on the node, and play them."""
    news = list(_taken(work.news))
    shown = work.display.after(news)
    if shown.progress is not None:
        picture = None if shown.image is None else media.preview_image(shown.image)
        host.show_progress(work.node, shown.progress.step, shown.progress.total, picture)
    if shown.text:
        host.show_text(work.node, shown.text)
    if work.playback is not None:
        for message in work.playback.after(news):
            host.tell_page(EVENT, {"prompt_id": work.prompt, "node": work.node, **message})


def _taken(news: SimpleQueue[News]) -> Iterator[News]:
    with suppress(Empty):
        while True:
            yield news.get_nowait()


# --- on the I/O loop ------------------------------------------------------------------------------


async def _together(*fetches: Coroutine[Any, Any, Frame]) -> Sequence[Frame]:
    return await asyncio.gather(*fetches)


async def _finished(work: _Work, result: Remote, describe: Describe) -> None:
    client = await work.pack.runtimes.ready(result.address)
    _, params = await _finish(work, client, _handle(result))
    work.news.put(describe(params))


async def _begun(work: _Work, result: Remote, describe: Describe) -> None:
    client = await work.pack.runtimes.ready(result.address)
    handle = _handle(result)
    reply = await _submit(work, client, handle)
    work.news.put(describe(reply.params[handle.job]))


async def _fetched(work: _Work, result: Remote, describe: DescribeFrame) -> Frame:
    client = await work.pack.runtimes.ready(result.address)
    handle = _handle(result)
    for _ in range(_RETRIES):
        with suppress(ResultGone):  # evicted between two steps of ours: the recipe brings it back
            return await _fetch(work, client, handle, describe)
    return await _fetch(work, client, handle, describe)


async def _fetch(
    work: _Work, client: RuntimeClient, handle: Handle, describe: DescribeFrame
) -> Frame:
    key, params = await _finish(work, client, handle)
    frame = await client.output(key, handle.output)
    work.news.put(frame)
    work.news.put(describe(params, frame))
    return frame


async def _outputs(work: _Work, result: Remote) -> Collection[str]:
    *_, last = _handle(result).recipe
    models = work.pack.catalogue.last(result.address)
    if last.model not in models:
        await work.pack.runtimes.ready(result.address)
        models = await work.pack.catalogue.models(result.address)
    if last.model not in models or last.stage not in models[last.model].stages:
        return ()  # what asks for the result will be told
    return models[last.model].stages[last.stage].outputs


def _handle(result: Remote) -> Handle:
    """The handle of a result that a job makes."""
    assert isinstance(result.source, Handle)
    return result.source


async def _finish(
    work: _Work, client: RuntimeClient, handle: Handle
) -> tuple[str, Mapping[str, Any]]:
    """Bring a job to its end; returns its key and its parameters."""
    reply = await _submit(work, client, handle)
    key = reply.keys[handle.job]
    if reply.states[handle.job] != "done":  # queue-ahead has often been here before
        await _follow(work, client, key)
    return key, reply.params[handle.job]


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
    work.pack.leases.hold(work.prompt, client)
    request = SubmitRequest(owner_of(work.prompt), CLIENT, handle.recipe, previews=work.previews)
    while True:
        try:
            return await client.submit(request, handle.blobs)
        except EngineStarting as error:
            work.news.put(error.message)
            await asyncio.sleep(_POLL_S * 5)
