"""A client of the controller's gRPC methods, for the command line and the launcher.

Workers have a client of their own in the host's floor, since floors do not import each other.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, TypeVar

import grpc

from switchsum.native import tls
from switchsum.native.sockets import is_listening
from switchsum.native.starting import nobody_there, too_busy
from switchsum.protocol import rpc
from switchsum.protocol.errors import RemoteError

Reply = TypeVar("Reply")

AWAY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),  # http_proxy in the environment must not divert connections on the loopback
    ("grpc.use_local_subchannel_pool", 1),  # a new client must not wait for the backoff of another one
)


class ControllerClient:
    """A connection to a controller, usable in a `with` block.

    Each method sends one message and returns the reply.  It raises the error that the controller has raised, or
    ControllerUnreachable.
    """

    def __init__(self, address: str, *, timeout_s: float = 10.0) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._channel = tls.open_channel(address, tls.HOSTS, OPTIONS)

    def __enter__(self) -> ControllerClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def join(self, request: rpc.JoinRequest) -> rpc.JoinReply:
        """Ask to become a member."""
        return self._call("Join", request, rpc.JoinReply)

    def ready(self, request: rpc.ReadyRequest) -> rpc.ReadyReply:
        """Wait for the admission of all members."""
        return self._call("Ready", request, rpc.ReadyReply, wait_s=request.wait_s)

    def reform(self, request: rpc.ReformRequest) -> rpc.ReformReply:
        """Ask that the job continues without the members that are lost."""
        return self._call("Reform", request, rpc.ReformReply, wait_s=request.wait_s)

    def leave(self, request: rpc.MemberRequest) -> None:
        """End a membership."""
        self._call("Leave", request, rpc.Empty)

    def heartbeat(self, request: rpc.MemberRequest) -> rpc.HeartbeatReply:
        """Say that a member is alive."""
        return self._call("Heartbeat", request, rpc.HeartbeatReply)

    def compare(self, request: rpc.CompareRequest) -> rpc.CompareReply:
        """Tell the operation that a member has issued; return those of all members."""
        return self._call("Compare", request, rpc.CompareReply, wait_s=request.wait_s)

    def create_job(self, request: rpc.CreateJobRequest) -> rpc.JobInfo:
        """Reserve slots for a new job."""
        return self._call("CreateJob", request, rpc.JobInfo)

    def resize_job(self, request: rpc.ResizeJobRequest) -> rpc.JobInfo:
        """Change the size of a job; its members have to join again."""
        return self._call("ResizeJob", request, rpc.JobInfo)

    def show_job(self, request: rpc.JobRequest) -> rpc.JobInfo:
        """Describe a job."""
        return self._call("ShowJob", request, rpc.JobInfo)

    def remove_job(self, request: rpc.RemoveJobRequest) -> None:
        """Remove a job."""
        self._call("RemoveJob", request, rpc.Empty)

    def list_jobs(self) -> rpc.JobList:
        """Describe all jobs."""
        return self._call("ListJobs", rpc.Empty(), rpc.JobList)

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        """Read the cells of slots from the switch."""
        return self._call("Slots", request, rpc.SlotList)

    def statistics(self) -> rpc.Statistics:
        """Read the switch's counters."""
        return self._call("Statistics", rpc.Empty(), rpc.Statistics)

    def ports(self) -> rpc.PortList:
        """Describe all ports of which something is known."""
        return self._call("Ports", rpc.Empty(), rpc.PortList)

    def set_loss(self, request: rpc.LossRequest) -> rpc.PortList:
        """Set the drop simulator."""
        return self._call("SetLoss", request, rpc.PortList)

    def info(self) -> rpc.ControllerInfo:
        """Describe the controller."""
        return self._call("Info", rpc.Empty(), rpc.ControllerInfo)

    def _call(self, method: str, request: Any, reply: type[Reply], *, wait_s: float = 0.0) -> Reply:
        call = self._channel.unary_unary(rpc.path(method), None, None)
        try:
            data = call(rpc.encode(request), timeout=self._timeout_s + wait_s)
        except grpc.RpcError as error:
            details = error.details() or ""
            found = rpc.error_from_details(details)
            if type(found) is RemoteError and error.code() in AWAY:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and is_listening(self._address):
                    raise too_busy(self._address, method, self._timeout_s + wait_s) from error
                raise nobody_there(self._address, method, details) from error
            raise found from error
        try:
            return rpc.decode(reply, data)
        except ValueError as error:
            raise RemoteError(f"{self._address} answered {method} with what is no reply to it: {error}") from error
