"""The real server, over real sockets, with the fake model and the fake core."""

from contextlib import AsyncExitStack

from aiohttp import web

from omnistage.runtime.client.client import RuntimeClient
from omnistage.runtime.config import load_config
from omnistage.runtime.executor.backoff import Backoff
from omnistage.runtime.executor.core_spec import CoreSpec
from omnistage.runtime.executor.group import EngineGroup
from omnistage.runtime.executor.inline import InlineExecutor
from omnistage.runtime.server.app import build_app, build_services

from .fake_model import fake_catalogue


class FakeServer:
    """Starts on a free port; `stop` checks that nothing leaked."""

    def __init__(self):
        self._stack = AsyncExitStack()
        self.runner = None

    async def start(self, *settings, executor=InlineExecutor, families=None, **core):
        config = load_config(assignments=settings, environ={}).config

        def make(engine):
            spec = CoreSpec("omnistage.tests.fakes.fake_core:build", core, engine)
            return executor(spec, backoff=Backoff(first_s=0.01, most_s=0.02))

        services = build_services(
            config,
            catalogue=fake_catalogue(**(families or {})),
            engines=EngineGroup(make, eager=("diffusion",)),
        )
        return await self.serve(services)

    async def serve(self, services):
        """Serve what is behind these services."""
        self.services = services
        self.runner = web.AppRunner(
            build_app(self.services), handler_cancellation=True, shutdown_timeout=0.5
        )
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = self.new_client(services.config.token)
        return self

    def new_client(self, token=None):
        client = RuntimeClient(self.url, None if token is None else token.get_secret_value())
        self._stack.push_async_callback(client.close)
        return client

    @property
    def orchestrator(self):
        return self.services.orchestrator

    async def stop(self):
        await self._stack.aclose()
        if self.runner is not None:
            self.services.orchestrator.check_integrity()
            for owner in list(self.services.orchestrator._leases._leases):
                self.services.orchestrator.release(owner)
            await self.runner.cleanup()
