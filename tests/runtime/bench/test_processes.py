import os
import subprocess
import sys

from omnistage.runtime.bench.processes import children_of, memory_mb

CHILD = """
import subprocess, sys
held = b"x" * (50 << 20)
grandchild = subprocess.Popen([sys.executable, "-c", "input()"], stdin=sys.stdin)
print(grandchild.pid, flush=True)
grandchild.wait()
"""


def test_children_and_their_memory():
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, "known"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        grandchild = int(child.stdout.readline())
        mine = {process.pid: process for process in children_of(os.getpid())}
        assert mine[child.pid].command.endswith("known")
        assert grandchild not in mine
        assert [process.pid for process in children_of(child.pid)] == [grandchild]
        assert 50 < memory_mb(child.pid) < 100
        assert memory_mb(grandchild) < 50
        child.stdin.close()
