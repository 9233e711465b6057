import asyncio

from omnistage.tests.fakes.recipes import encode
from omnistage.tests.runtime.orchestrator.rig import Rig


async def read(follower):
    return [event.kind async for event in follower]


async def test_a_reader_that_keeps_up_sees_everything_in_order():
    rig = Rig()
    (key,) = rig.submit(encode("a"))
    follower = rig.orchestrator.subscribe(key)
    task = rig.task(key)
    seen = [(await anext(follower)).kind]
    for happen in (
        lambda: rig.executor.start_task(task),
        lambda: rig.executor.progress(task, 1, batch=4),
        lambda: rig.executor.preview(task, 1),
        lambda: rig.executor.progress(task, 2, batch=4),
    ):
        happen()
        seen.append((await anext(follower)).kind)
    rig.executor.fail(task)
    seen += await read(follower)
    assert seen == ["queued", "running", "progress", "preview", "progress", "failed"]


async def test_a_slow_reader_misses_steps_never_the_end_and_holds_no_memory():
    rig = Rig()
    (key,) = rig.submit(encode("a"))
    follower = rig.orchestrator.subscribe(key)
    task = rig.task(key)
    rig.executor.start_task(task)
    for step in range(1000):
        rig.executor.progress(task, step)
        rig.executor.preview(task, step)
    assert len(follower) == 3
    assert (await anext(follower)).kind == "running"
    assert (await anext(follower)).step == 999
    rig.executor.fail(task)
    assert await read(follower) == ["preview", "failed"]


async def test_the_last_step_is_seen_though_the_end_comes_with_it():
    rig = Rig()
    (key,) = rig.submit(encode("a"))
    follower = rig.orchestrator.subscribe(key)
    task = rig.task(key)
    rig.executor.start_task(task)
    rig.executor.progress(task, 9, batch=4)
    rig.executor.fail(task)
    assert await read(follower) == ["progress", "failed"]
    assert [event.kind for event in rig.events(key)] == ["failed"]


async def test_a_new_attempt_makes_the_progress_of_the_old_one_void():
    rig = Rig()
    (key,) = rig.submit(encode("a"))
    follower = rig.orchestrator.subscribe(key)
    rig.executor.start_task(rig.task(key))
    rig.executor.progress(rig.task(key), 5)
    rig.executor.die()
    assert (await anext(follower)).kind == "queued"
    assert len(follower) == 0


async def test_who_comes_late_sees_the_state_and_the_last_step():
    rig = Rig()
    (key,) = rig.submit(encode("a"))
    rig.executor.start_task(rig.task(key))
    rig.executor.progress(rig.task(key), 3)
    rig.executor.preview(rig.task(key), 3)
    assert [e.kind for e in rig.events(key)] == ["running", "progress", "preview"]
    rig.executor.finish_all()
    (event,) = rig.events(key)
    assert (event.kind, event.outputs) == ("done", ("conditioning",))
    assert await read(rig.orchestrator.subscribe(key)) == ["done"]


async def test_a_waiting_reader_wakes_up():
    rig = Rig()
    (key,) = rig.submit(encode("a"))
    reading = asyncio.create_task(read(rig.orchestrator.subscribe(key)))
    await asyncio.sleep(0)
    rig.executor.finish_all()
    assert await reading == ["queued", "done"]


async def test_text_that_was_not_read_yet_is_one_piece():
    rig = Rig()
    (key,) = rig.submit(encode("a"))
    follower = rig.orchestrator.subscribe(key)
    task = rig.task(key)
    rig.executor.start_task(task)
    for piece in ("a ", "red ", "circle"):
        rig.executor.write(task, piece)
    assert [e.text async for e in _until(follower, "text")] == ["", "a red circle"]
    rig.executor.write(task, ".")
    assert (await anext(follower)).text == "."
    assert [e.text for e in rig.events(key)] == ["", "a red circle."], "who comes late sees all"


async def test_text_begins_anew_with_another_attempt_and_the_reader_is_told():
    rig = Rig()
    (key,) = rig.submit(encode("a"))
    follower = rig.orchestrator.subscribe(key)
    rig.executor.start_task(rig.task(key))
    rig.executor.write(rig.task(key), "a red")
    assert [e.kind async for e in _until(follower, "text")] == ["running", "text"]
    rig.executor.die()
    task = rig.task(key)
    rig.executor.start_task(task)
    rig.executor.write(task, "a blue")
    rig.executor.finish(task)
    rest = [event async for event in follower]
    assert [e.kind for e in rest] == ["running", "text", "done"]
    assert rest[1].text == "a blue"


async def _until(follower, kind):
    """Events up to the first of a kind."""
    async for event in follower:
        yield event
        if event.kind == kind:
            return


async def test_followers_that_leave_are_forgotten():
    rig = Rig()
    (key,) = rig.submit(encode("a"))
    follower = rig.orchestrator.subscribe(key)
    rig.orchestrator.unsubscribe(key, follower)
    rig.orchestrator.unsubscribe(key, follower)
    rig.orchestrator.unsubscribe("unknown", follower)
    assert not rig.orchestrator.job(key).subscribers
