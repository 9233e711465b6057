import asyncio

from aiohttp import ClientSession, web

from omnistage.runtime.server.openai.stream import EventStream


async def slow(request, response):
    await asyncio.sleep(0)


async def two_at_once(request):
    stream = EventStream(request)
    await asyncio.gather(stream.send({"a": 1}), stream.send({"b": 2}))
    await stream.end()
    return stream.response


async def test_the_head_comes_before_whatever_is_sent_first():
    app = web.Application()
    app.on_response_prepare.append(slow)
    app.add_routes([web.get("/", two_at_once)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = "http://{}:{}/".format(*runner.addresses[0])
        async with ClientSession() as session, session.get(url) as response:
            assert response.content_type == "text/event-stream"
            assert await response.text() == 'data: {"a": 1}\n\ndata: {"b": 2}\n\ndata: [DONE]\n\n'
    finally:
        await runner.cleanup()
