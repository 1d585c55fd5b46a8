"""The controller's gRPC server: it decodes JSON messages, calls the controller, and encodes replies or errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

import grpc

from switchsum.connections import serving, tls
from switchsum.connections.threads import Pool, stop_server
from switchsum.protocol import errors, member_rpc, rpc, rpc_codec

from .daemon import Controller
from .member_calls import MAX_ATTENDING, MAX_WAITING

log = logging.getLogger(__name__)

SPARE_THREADS: Final = 32
"""Threads for calls that do not wait, beside the threads of those that may wait."""

STATUS_CODES: Final[tuple[tuple[type[errors.SwitchsumError], grpc.StatusCode], ...]] = (
    (errors.UsageError, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.UnknownJob, grpc.StatusCode.NOT_FOUND),
    (errors.RankTaken, grpc.StatusCode.ALREADY_EXISTS),
    (errors.NoCapacity, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.NotAdmitted, grpc.StatusCode.PERMISSION_DENIED),
    (errors.SwitchLost, grpc.StatusCode.UNAVAILABLE),
    (errors.ControllerUnreachable, grpc.StatusCode.UNAVAILABLE),
    (errors.SwitchsumError, grpc.StatusCode.FAILED_PRECONDITION),
)
"""Status of each class of errors; the first class that an error belongs to counts.  The details name the class
itself."""


class Service:
    """Serves the methods of a controller at an address."""

    def __init__(self, controller: Controller, address: str) -> None:
        """Listen at `host:port` (port 0: any) or `unix:path`; raises UsageError or TransportError."""
        self._server = grpc.server(
            Pool(MAX_ATTENDING + MAX_WAITING + SPARE_THREADS, "controller", controller.fail),
            options=serving.SERVER_OPTIONS,
        )
        handlers = {name: _handler(controller, name) for name in rpc.METHODS}
        handlers["Attend"] = _attendance(controller)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(member_rpc.SERVICE, handlers),))
        try:
            port = serving.add_port(self._server, address, tls.HOSTS)
        except RuntimeError as error:
            raise errors.UsageError(f"cannot listen at {address}: {error}") from error
        self.address = address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
        """Address at which it listens, with the actual port."""
        self._server.start()
        serving.warn_of(self.address)

    def stop(self, grace_s: float = 1.0) -> None:
        """Stop listening, and end calls that still run after `grace_s` seconds."""
        stop_server(self._server, grace_s)


def method_name(name: str) -> str:
    """Return the name of the controller's method for a method of the protocol: for `CreateJob`, `create_job`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _handler(controller: Controller, name: str) -> Any:
    request_type, _ = rpc.METHODS[name]
    method: Callable[[Any], Any] = getattr(controller, method_name(name))

    def handle(data: bytes, context: grpc.ServicerContext) -> bytes:
        request = None
        try:
            request = _decode(request_type, data)
            return rpc_codec.encode(method(request))
        except Exception as error:
            if isinstance(request, member_rpc.JoinRequest | rpc.CreateJobRequest) and isinstance(
                error, errors.SwitchsumError
            ):
                controller.note_refusal(request, error)
            _refuse(context, name, error)

    return grpc.unary_unary_rpc_method_handler(handle)


def _attendance(controller: Controller) -> Any:
    request_type, _ = rpc.STREAMS["Attend"]

    def handle(data: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        try:
            for reply in controller.attend(_decode(request_type, data), context.add_callback):
                yield rpc_codec.encode(reply)
        except Exception as error:
            _refuse(context, "Attend", error)

    return grpc.unary_stream_rpc_method_handler(handle)


def _refuse(context: grpc.ServicerContext, name: str, error: Exception) -> NoReturn:
    """End a call with an error."""
    if isinstance(error, errors.SwitchsumError):
        code = next(code for kind, code in STATUS_CODES if isinstance(error, kind))
        context.abort(code, rpc_codec.details_of(error))
    # A mistake of ours: the caller gets no traceback of the controller, but its log has it.
    log.error("%s failed", name, exc_info=error)
    context.abort(grpc.StatusCode.INTERNAL, f"RemoteError: {name} failed in the controller, see its log")
    raise AssertionError("abort raises")


def _decode(kind: type[Any], data: bytes) -> Any:
    try:
        return rpc_codec.decode(kind, data)
    except ValueError as error:
        raise errors.UsageError(str(error)) from error
