"""Who wants which jobs, and until when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Lease:
    """One owner's keys."""

    expires_s: float
    keys: dict[str, None] = field(default_factory=dict)


class Leases:
    """Leases by owner, and holders by key; the two always say the same.

    Args:
        ttl_s: how long a lease lasts without being renewed.
        clock: seconds, monotonic.
    """

    def __init__(self, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._leases: dict[str, Lease] = {}
        self._holders: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def grant(self, owner: str, keys: Iterable[str]) -> None:
        """Add keys to an owner's lease, and renew it."""
        lease = self._leases.setdefault(owner, Lease(0.0))
        lease.expires_s = self._clock() + self._ttl_s
        for key in keys:
            lease.keys[key] = None
            self._holders.setdefault(key, set()).add(owner)

    def renew(self, owner: str) -> bool:
        """Extend a lease; False if there is none."""
        lease = self._leases.get(owner)
        if lease is None:
            return False
        lease.expires_s = self._clock() + self._ttl_s
        return True

    def release(self, owner: str) -> list[str]:
        """End a lease; returns the keys that nobody holds any more, in the order granted."""
        lease = self._leases.pop(owner, None)
        freed = []
        for key in lease.keys if lease else ():
            holders = self._holders[key]
            holders.discard(owner)
            if not holders:
                del self._holders[key]
                freed.append(key)
        return freed

    def expired(self) -> list[str]:
        """Owners whose time is up."""
        now_s = self._clock()
        return [owner for owner, lease in self._leases.items() if lease.expires_s <= now_s]

    def holds(self, key: str) -> bool:
        """Whether anyone holds the key."""
        return key in self._holders

    def keys(self) -> set[str]:
        """All keys that someone holds."""
        return set(self._holders)

    def check_integrity(self) -> None:
        """Raise AssertionError if the two tables disagree."""
        pairs = {(o, k) for o, lease in self._leases.items() for k in lease.keys}
        assert pairs == {(o, k) for k, owners in self._holders.items() for o in owners}
        assert all(self._holders.values()), "a key is held by nobody"
