"""Jobs that live exactly as long as the request that asked for them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ...orchestrator.orchestrator import Orchestrator
from ...protocol.errors import DependencyFailed, OmniStageError
from ...protocol.messages import JobEvent, SubmitRequest
from ...protocol.recipe import JobSpec, Recipe
from ..services import Services

T = TypeVar("T")


@asynccontextmanager
async def submitted(
    services: Services, client: str, specs: Sequence[JobSpec]
) -> AsyncIterator[list[str]]:
    """Run jobs, and stop them at the end of the block, however that comes about.

    Yields:
        Their keys.

    Raises:
        InvalidRequest: a job is wrong; none was started.
        QueueFull: too many jobs wait already.
    """
    owner = f"openai-{uuid.uuid4().hex}"
    request = SubmitRequest(owner, client, Recipe(tuple(specs)), previews=False)
    keys = services.orchestrator.submit(request).keys
    renewal = asyncio.create_task(_renew(services, owner))
    try:
        yield [keys[spec.id] for spec in specs]
    finally:
        renewal.cancel()
        services.orchestrator.release(owner)


async def follow(
    orchestrator: Orchestrator,
    key: str,
    on_event: Callable[[JobEvent], Awaitable[None]] | None = None,
) -> None:
    """Wait until a job is done, and pass on its events meanwhile.

    Raises:
        OmniStageError: it failed or was stopped.
    """
    subscription = orchestrator.subscribe(key)
    try:
        async for event in subscription:
            if event.error is not None:
                raise event.error
            if on_event is not None:
                await on_event(event)
    finally:
        orchestrator.unsubscribe(key, subscription)


def cause_of(orchestrator: Orchestrator, keys: Iterable[str], error: OmniStageError) -> Exception:
    """The failure of the first of some jobs that failed by itself; `error` if none did."""
    for key in keys:
        job = orchestrator.job(key)
        own = next((event.error for event in job.news if event.error is not None), None)
        if own is not None and not isinstance(own, DependencyFailed):
            return own
    return error


async def all_of(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all, in order; the first failure ends the others, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def _renew(services: Services, owner: str) -> None:
    while True:
        await asyncio.sleep(services.lease_ttl_s / 3)
        services.orchestrator.renew([owner])
