"""An orchestrator on a fake executor and a clock that the test moves."""

from omnistage.runtime.orchestrator.leases import Leases
from omnistage.runtime.orchestrator.lifecycle import Limits
from omnistage.runtime.orchestrator.orchestrator import Orchestrator
from omnistage.runtime.orchestrator.store import Store
from omnistage.runtime.protocol.frames import Frame
from omnistage.tests.fakes.fake_executor import FakeExecutor
from omnistage.tests.fakes.fake_model import fake_catalogue
from omnistage.tests.fakes.recipes import request


class Rig:
    def __init__(self, budget_bytes=1 << 20, limits=None, **families):
        self.now_s = 0.0
        self.executor = FakeExecutor()
        self.orchestrator = Orchestrator(
            fake_catalogue(**families),
            self.executor,
            Store(budget_bytes),
            Leases(60.0, lambda: self.now_s),
            limits or Limits(),
        )
        self.executor.listen(self.orchestrator.listener)

    def submit(self, *handles, owner="owner", **options):
        reply = self.orchestrator.submit(request(*handles, owner=owner, **options))
        self.orchestrator.check_integrity()
        return [reply.keys[handle.job] for handle in handles]

    def upload(self, upload):
        digest, data = upload
        self.orchestrator.put_blob(digest, Frame.decode(data))

    def state(self, key):
        return self.orchestrator.job(key).state

    def task(self, key):
        return self.executor.tasks[self.orchestrator.job(key).task]

    def events(self, key):
        """What a new follower sees."""
        return list(self.orchestrator.job(key).subscribe()._news)

    def check(self):
        self.orchestrator.check_integrity()
