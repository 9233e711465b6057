"""Device time that each client has had lately, for the policy `fair`."""

from __future__ import annotations

from typing import Final

_HALF_LIFE_S: Final = 30.0
_CLIENTS: Final = 1000


class ServedTime:
    """Seconds of device time by client, halved every 30 s, so that history fades."""

    def __init__(self) -> None:
        self._served: dict[str, tuple[float, float]] = {}

    def of(self, client: str, now_s: float) -> float:
        """Seconds of device time, faded to `now_s`."""
        seconds, since_s = self._served.get(client, (0.0, now_s))
        return float(seconds * 0.5 ** ((now_s - since_s) / _HALF_LIFE_S))

    def add(self, client: str, seconds: float, now_s: float) -> None:
        """Charge a client; of very many, the one that had least is forgotten."""
        self._served[client] = (self.of(client, now_s) + seconds, now_s)
        if len(self._served) > _CLIENTS:
            least = min(self._served, key=lambda c: self.of(c, now_s))
            del self._served[least]
