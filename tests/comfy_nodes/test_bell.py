"""The bell that wakes waiting nodes."""

from __future__ import annotations

import asyncio
import threading

from omnistage.comfy_nodes.bell import Bell


async def test_a_ring_from_another_thread_is_heard_by_all_who_listen():
    bell = Bell()
    with bell.heard() as one, bell.heard() as other:
        threading.Thread(target=lambda: [bell.ring(), bell.ring()]).start()
        await asyncio.wait_for(asyncio.gather(one, other), 5)


async def test_who_listens_no_more_is_left_alone():
    bell = Bell()
    with bell.heard() as rung:
        pass
    bell.ring()
    await asyncio.sleep(0)
    assert not rung.done()


async def test_a_listener_whose_loop_is_closed_keeps_nobody_from_hearing():
    bell = Bell()
    dead = bell.heard()

    async def listen() -> None:
        dead.__enter__()  # and never leaves, like a node that ended with its loop

    thread = threading.Thread(target=lambda: asyncio.run(listen()))
    thread.start()
    thread.join()
    with bell.heard() as rung:
        bell.ring()
        await asyncio.wait_for(rung, 5)
