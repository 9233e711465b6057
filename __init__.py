"""OmniStage: stage nodes for ComfyUI, and a runtime that batches the work of many prompts.

ComfyUI loads this folder as a node pack; everywhere else it is the package `omnistage`, whose
import does nothing. A loaded `comfy_api` tells which: an importable one would not, because a
runtime may be started from within ComfyUI's folder.
"""

import sys

if "comfy_api" in sys.modules:
    from .comfy_nodes.extension import comfy_entrypoint

    WEB_DIRECTORY = "./comfy_nodes/web"
    __all__ = ["WEB_DIRECTORY", "comfy_entrypoint"]
