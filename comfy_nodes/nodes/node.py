"""The base of all nodes."""

from __future__ import annotations

from comfy_api.latest import io


class Node(io.ComfyNode):
    """A node of the pack; ComfyUI calls its class methods, never an instance."""

    @classmethod
    def title(cls) -> str:
        """The node's name, as the page shows it."""
        return str(cls.define_schema().display_name)
