"""How much memory what a request brings may take up once it is decoded."""

from __future__ import annotations

from ...protocol.errors import TooLarge


class Budget:
    """Bytes that are left; a small file can hold an enormous picture."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.left_bytes = limit_bytes

    def take(self, nbytes: int) -> None:
        """Use some, before they are filled.

        Raises:
            TooLarge: there are not so many left.
        """
        if nbytes > self.left_bytes:
            raise TooLarge(
                f"The media of a request may have {self._limit_bytes} bytes in all once they are "
                "decoded, and these have more. Send fewer or smaller ones, or raise "
                "server.max_body_mb.",
                allowed=f"at most {self._limit_bytes} bytes",
            )
        self.left_bytes -= nbytes
