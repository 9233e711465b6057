"""Decoders that a runtime may do without."""

from __future__ import annotations

import importlib
from typing import Any

from ...protocol.errors import InvalidRequest


def library(name: str, what: str) -> Any:
    """Import the package that reads `what`.

    Raises:
        InvalidRequest: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidRequest(
            f"This runtime takes no {what}: the Python package {name} is not installed in its "
            "environment."
        ) from error
