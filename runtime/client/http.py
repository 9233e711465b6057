"""HTTP to one runtime: requests, and every failure as an error of the tree."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from ..protocol import PROTOCOL_VERSION
from ..protocol.errors import OmniStageError, RuntimeUnavailable

PROTOCOL_HEADER = "OmniStage-Protocol"
"""Response header that marks an OmniStage runtime and carries its protocol version."""

_CONNECT_TIMEOUT_S = 5.0
_HEARTBEAT_S = 20.0
_MAX_EVENT_BYTES = 16 << 20
_STALE_CONNECTION = (aiohttp.ServerDisconnectedError, ConnectionResetError)
_NETWORK_ERRORS = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


class RuntimeHTTP:
    """One HTTP session with one runtime; opened on first use, on the loop that uses it."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._session: aiohttp.ClientSession | None = None

    async def call(
        self,
        method: str,
        path: str,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> bytes:
        """Send a request and return the body of its answer.

        Raises:
            OmniStageError: the error the runtime answered with.
            RuntimeUnavailable: no answer, or an answer from something else.
        """
        options = {
            "data": data,
            "headers": headers,
            "timeout": aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_TIMEOUT_S),
        }
        try:
            try:
                response, body = await self._request(method, path, options)
            except _STALE_CONNECTION:
                # A kept connection of a runtime that was restarted. Nothing harmful can come of
                # asking twice: equal submissions are one.
                response, body = await self._request(method, path, options)
        except _NETWORK_ERRORS as error:
            raise self.unavailable(error) from error
        self._check_peer(response.headers.get(PROTOCOL_HEADER))
        if response.status >= 400:
            raise _error_of(body, response.status)
        return body

    async def call_json(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """`call` with a JSON body and a JSON answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        answer = await self.call(method, path, data=data, headers=headers, **options)
        try:
            return json.loads(answer)
        except ValueError as error:
            raise self.unavailable(error) from error

    async def websocket(self, path: str) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket.

        Raises:
            aiohttp.WSServerHandshakeError: the runtime refused it.
            RuntimeUnavailable: no answer.
        """
        try:
            return await self._open().ws_connect(
                self.url + path, heartbeat=_HEARTBEAT_S, max_msg_size=_MAX_EVENT_BYTES
            )
        except aiohttp.WSServerHandshakeError:
            raise
        except _NETWORK_ERRORS as error:
            raise self.unavailable(error) from error

    def unavailable(self, error: Exception | str) -> RuntimeUnavailable:
        """The error that says where the runtime was looked for and how to start one."""
        why = error if isinstance(error, str) else (str(error) or type(error).__name__)
        return RuntimeUnavailable(
            f"No OmniStage runtime answers at {self.url} ({why}). Start one with "
            "`omnistage serve`, or set OMNISTAGE_ADDRESS to where it runs.",
            field="address",
            value=self.url,
        )

    async def close(self) -> None:
        """Close the session; the next call would open a new one."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _request(
        self, method: str, path: str, options: dict[str, Any]
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        async with self._open().request(method, self.url + path, **options) as response:
            return response, await response.read()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers)
        return self._session

    def _check_peer(self, version: str | None) -> None:
        if version is None:
            raise self.unavailable("something else answers there")
        if version != str(PROTOCOL_VERSION):
            raise RuntimeUnavailable(
                f"The runtime at {self.url} speaks protocol {version}, this side protocol "
                f"{PROTOCOL_VERSION}. Update the older of the two to the same release.",
                field="address",
                value=self.url,
            )


def _error_of(body: bytes, status: int) -> OmniStageError:
    try:
        return OmniStageError.from_json(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return OmniStageError(f"The runtime answered with HTTP status {status}.")
