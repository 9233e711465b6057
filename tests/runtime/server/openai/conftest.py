"""The real server with a fake chat engine, and OpenAI's own client."""

from contextlib import AsyncExitStack
from functools import cached_property

import pytest
from aiohttp import web
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from omnistage.runtime.config import load_config
from omnistage.runtime.executor.backoff import Backoff
from omnistage.runtime.executor.core_spec import CoreSpec
from omnistage.runtime.executor.group import EngineGroup
from omnistage.runtime.executor.inline import InlineExecutor
from omnistage.runtime.server.app import build_app, build_services
from omnistage.tests.fakes.fake_chat_model import fake_chat_catalogue


class ChatServer:
    """Starts on a free port; the end checks that nothing leaked."""

    def __init__(self, stack):
        self._stack = stack

    async def start(self, *settings, **core):
        config = load_config(assignments=settings, environ={}).config

        def make(engine):
            spec = CoreSpec("omnistage.tests.fakes.fake_chat_core:build", core, engine)
            return InlineExecutor(spec, backoff=Backoff(first_s=0.01, most_s=0.02))

        self.services = build_services(
            config, catalogue=fake_chat_catalogue(), engines=EngineGroup(make)
        )
        runner = web.AppRunner(
            build_app(self.services), handler_cancellation=True, shutdown_timeout=0.5
        )
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        self._stack.callback(self.orchestrator.check_integrity)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = "http://{}:{}".format(*runner.addresses[0])

    @cached_property
    def client(self):
        return self.new_client()

    def new_client(self, api_key="x"):
        client = AsyncOpenAI(
            base_url=f"{self.url}/v1",
            api_key=api_key,
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(verify=False),  # reads no certificates
        )
        self._stack.push_async_callback(client.close)
        return client

    async def ask(self, content="Hello", model="omni", **fields):
        messages = fields.pop("messages", [{"role": "user", "content": content}])
        create = self.client.chat.completions.create
        return await create(model=model, messages=messages, **fields)

    @property
    def orchestrator(self):
        return self.services.orchestrator


@pytest.fixture
async def server():
    """A server with the models of `fake_chat_catalogue`, started with `server.start(...)`."""
    async with AsyncExitStack() as stack:
        yield ChatServer(stack)
