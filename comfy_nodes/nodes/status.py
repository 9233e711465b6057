"""Runtime Status: what the runtime is and does."""

from __future__ import annotations

import time

from comfy_api.latest import io, ui

from ...runtime.client import RuntimeClient
from ..pack import pack
from .node import Node


class RuntimeStatus(Node):
    """Asks the configured runtime how it is."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageStatus",
            display_name="Runtime Status",
            category="OmniStage/runtime",
            description="Shows the runtime's address, version, models and load.",
            inputs=[],
            outputs=[io.String.Output(display_name="STRING")],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls) -> str:
        """Never the same: ask again each time."""
        return str(time.time_ns())

    @classmethod
    async def execute(cls) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        text = await pack().io.call(_status(pack().runtimes.client()))
        return io.NodeOutput(text, ui=ui.PreviewText(text))


async def _status(client: RuntimeClient) -> str:
    """The status as lines of text."""
    health = await client.health()
    stats, problems = await client.stats(), await client.problems()
    lines = [f"{client.address}: {health['status']}, version {health['version']}"]
    lines += [f"model {m.id}: {m.family}, revision {m.revision}" for m in await client.models()]
    lines += [f"model {k} cannot be used: {error.message}" for k, error in problems.items()]
    counts = {**stats["jobs"], **stats["finished"]}
    lines.append("jobs: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    batches = ", ".join(f"{count} of {size}" for size, count in stats["batches"].items())
    lines.append(f"steps by batch size: {batches or 'none yet'}")
    store = stats["store"]
    lines.append(f"results kept: {store['bytes'] >> 20} of {store['budget_bytes'] >> 20} MB")
    return "\n".join(lines)
