"""Which runtime to use and how: environment variables, then ComfyUI's settings, then defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..runtime.client.address import RuntimeAddress, find_address

_VARIABLES = {
    "OMNISTAGE_ADDRESS": "OmniStage.address",
    "OMNISTAGE_TOKEN": "OmniStage.token",
    "OMNISTAGE_QUEUE_AHEAD": "OmniStage.queueAhead",
    "OMNISTAGE_PYTHON": "OmniStage.python",
}
"""Environment variable of each setting, and its id in ComfyUI (`web/settings.js`)."""
_OFF = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force.

    Attributes:
        values: by environment variable; holds the token, so it is never printed.
    """

    values: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, environ: Mapping[str, str], saved: Mapping[str, Any]) -> Settings:
        """Merge the environment and what ComfyUI saved."""
        values = {}
        for variable, setting in _VARIABLES.items():
            value = environ.get(variable) or saved.get(setting)
            if value is not None and value != "":
                values[variable] = str(value).strip()
        return cls(values)

    def runtime(self, address: str = "") -> RuntimeAddress:
        """The runtime at an address; empty: the configured one.

        Raises:
            InvalidRequest: the address is not one.
        """
        return find_address(address or None, environ=self.values)

    @property
    def queue_ahead(self) -> bool:
        """Whether prompts are submitted while they still wait."""
        return self.values.get("OMNISTAGE_QUEUE_AHEAD", "").lower() not in _OFF

    @property
    def python(self) -> str:
        """Python of the environment that can start a runtime here; empty: start none."""
        return self.values.get("OMNISTAGE_PYTHON", "")
