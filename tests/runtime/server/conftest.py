import pytest

from omnistage.tests.fakes.fake_server import FakeServer


@pytest.fixture
async def server():
    """A server with the fake model, started with `await server.start(...)`."""
    server = FakeServer()
    yield server
    await server.stop()
