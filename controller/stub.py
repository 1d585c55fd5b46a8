"""A caller of the controller's gRPC methods, for people's tools."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import grpc

from switchsum.protocol import rpc
from switchsum.protocol.errors import ControllerUnreachable, RemoteError


class ControllerStub:
    """A connection to a controller; every call is one JSON message each way.

    Calls raise the error that the controller raised, or ControllerUnreachable.
    """

    def __init__(self, address: str, *, timeout_s: float = 10.0) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._channel = grpc.insecure_channel(
            address, options=[("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
        )

    def __enter__(self) -> ControllerStub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def call(self, method: str, request: Any) -> Any:
        """Call a method of `rpc.METHODS` with its request; return its reply."""
        _, reply_type = rpc.METHODS[method]
        try:
            data = self._channel.unary_unary(rpc.path(method), None, None)(rpc.encode(request), timeout=self._timeout_s)
        except grpc.RpcError as error:
            details = error.details() or ""
            found = rpc.error_from_details(details)
            if type(found) is RemoteError and error.code() in (
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.DEADLINE_EXCEEDED,
            ):
                raise ControllerUnreachable(f"no controller answers at {self._address}: {details}") from error
            raise found from error
        try:
            return rpc.decode(reply_type, data)
        except ValueError as error:
            raise RemoteError(
                f"the controller at {self._address} answered {method} with something else: {error}"
            ) from error
