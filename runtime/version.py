"""The release this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def omnistage_version() -> str:
    """The installed package's version; `unknown` when it runs from a folder."""
    try:
        return version("omnistage")
    except PackageNotFoundError:
        return "unknown"
