"""The asynchronous client of the native API, and how to find or start a runtime.

Used by the ComfyUI nodes, the command line and the tests; needs aiohttp, numpy and `protocol`
and runs on Python 3.10, because ComfyUI's Python may be that old.
"""

from .address import DEFAULT_ADDRESS, RuntimeAddress, find_address
from .client import RuntimeClient
from .local import LocalRuntime, start_local

__all__ = [
    "DEFAULT_ADDRESS",
    "LocalRuntime",
    "RuntimeAddress",
    "RuntimeClient",
    "find_address",
    "start_local",
]
