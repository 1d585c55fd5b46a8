"""HTTP requests in bounded time: uvicorn waits for the rest of a request as long as the sender likes."""

from __future__ import annotations

import asyncio
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S: Final = 10.0
"""A request that has not come in whole by then ends its connection, which gives its place back."""


class TimedRequests(H11Protocol):
    """Ends connections over which a request does not come in whole; those that are silent after one uvicorn ends."""

    request_s = REQUEST_S
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request from now on."""
        super().connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Take data, and wait no longer if a request is whole."""
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._await_request()
        else:
            self._forget()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._forget()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.request_s, self.transport.abort)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
