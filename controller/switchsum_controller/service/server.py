"""The controller's gRPC server: it decodes JSON messages, calls the controller, and encodes replies or errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, NoReturn, TypeVar

from switchsum_protocol import agreement_rpc, errors, member_rpc, reports, rpc, rpc_codec
from switchsum_switch.connections import serving, tls
from switchsum_switch.connections.quiet_grpc import grpc
from switchsum_switch.connections.threads import Pool, start_server, stop_server
from switchsum_switch.messages import codec

from .agreements import Agreements
from .controller import Controller
from .members import MAX_ATTENDING, MAX_WAITING, Members
from .users import Users

log = logging.getLogger("switchsum.controller.service.server")

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


Request = TypeVar("Request")


@dataclass(frozen=True, slots=True)
class Method(Generic[Request]):
    """One method of the protocol: the message that it takes, and the function that serves it."""

    request: type[Request]
    serve: Callable[[Request], object]


def methods(members: Members, agreements: Agreements, users: Users) -> dict[str, Method[Any]]:
    """Return what serves each method of `rpc.METHODS`; `Service` adds Attend, whose replies are a stream."""
    return {
        "Join": Method(member_rpc.JoinRequest, members.join),
        "Ready": Method(member_rpc.ReadyRequest, members.ready),
        "Reform": Method(member_rpc.ReformRequest, members.reform),
        "Compare": Method(member_rpc.CompareRequest, members.compare),
        "Agree": Method(agreement_rpc.AgreeRequest, agreements.agree),
        "Leave": Method(member_rpc.LeaveRequest, members.leave),
        "Heartbeat": Method(member_rpc.MemberRequest, members.heartbeat),
        "Report": Method(reports.WorkerReport, members.report),
        "LinkDown": Method(member_rpc.LinkReport, members.link_down),
        "Workers": Method(rpc.JobRequest, users.workers),
        "CreateJob": Method(rpc.CreateJobRequest, users.create_job),
        "ResizeJob": Method(rpc.ResizeJobRequest, users.resize_job),
        "ShowJob": Method(rpc.JobRequest, users.show_job),
        "RemoveJob": Method(rpc.RemoveJobRequest, users.remove_job),
        "ListJobs": Method(member_rpc.Empty, users.list_jobs),
        "Slots": Method(rpc.SlotsRequest, users.slots),
        "Statistics": Method(member_rpc.Empty, users.statistics),
        "Ports": Method(member_rpc.Empty, users.ports),
        "Links": Method(member_rpc.Empty, users.links),
        "Switches": Method(member_rpc.Empty, users.switches),
        "SetLoss": Method(rpc.LossRequest, users.set_loss),
        "Info": Method(member_rpc.Empty, users.info),
    }


class Service:
    """Serves a controller's methods at an address."""

    def __init__(self, controller: Controller, address: str, local: str | None = None) -> None:
        """Listen at `host:port` (port 0: any) or `unix:path`, and at `local`, another `unix:path`.

        Raises UsageError or TransportError.
        """
        self._server = grpc.server(
            Pool(MAX_ATTENDING + MAX_WAITING + SPARE_THREADS, "controller", controller.upkeep.fail),
            options=serving.SERVER_OPTIONS,
        )
        table = methods(controller.members, controller.agreements, controller.users)
        handlers = {name: _handler(name, method, controller.users) for name, method in table.items()}
        handlers["Attend"] = _attendance(controller.members)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(member_rpc.SERVICE, handlers),))
        try:
            port = serving.add_port(self._server, address, tls.HOSTS)
            if local is not None:
                serving.add_port(self._server, local, tls.HOSTS)
        except RuntimeError as error:
            raise errors.UsageError(f"cannot listen at {address}: {error}") from error
        self.address = address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
        """Address at which it listens, with the actual port."""
        start_server(self._server)
        serving.warn_of(self.address)

    def stop(self, grace_s: float = 1.0) -> None:
        """Stop listening, and end calls that still run after `grace_s` seconds."""
        stop_server(self._server, grace_s)


def _handler(name: str, method: Method[Any], users: Users) -> Any:
    def handle(data: bytes, context: grpc.ServicerContext) -> bytes:
        request = None
        try:
            request = _decode(method.request, data)
            return codec.encode(method.serve(request))
        except Exception as error:
            if isinstance(request, member_rpc.JoinRequest | rpc.CreateJobRequest) and isinstance(
                error, errors.SwitchsumError
            ):
                users.note_refusal(request, error)
            _refuse(context, name, error)

    return grpc.unary_unary_rpc_method_handler(handle)


def _attendance(members: Members) -> Any:
    def handle(data: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        try:
            for reply in members.attend(_decode(member_rpc.MemberRequest, data), context.add_callback):
                yield codec.encode(reply)
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
        return codec.decode(kind, data)
    except ValueError as error:
        raise errors.UsageError(str(error)) from error
