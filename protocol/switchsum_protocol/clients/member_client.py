"""A client of the controller's gRPC methods that members call; `controller_client` has those of users as well."""

from __future__ import annotations

import os
import queue
import socket
import stat
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from switchsum_protocol import member_rpc, rpc_codec
from switchsum_protocol.errors import RemoteError, SwitchsumError
from switchsum_switch.connections import tls
from switchsum_switch.connections.addresses import is_listening
from switchsum_switch.connections.quiet_grpc import grpc
from switchsum_switch.messages import codec

from .starting import nobody_there, too_busy

if TYPE_CHECKING:
    from switchsum_protocol.reports import WorkerReport

Reply = TypeVar("Reply")

STATE_S: Final = 5.0
"""Seconds that gRPC may take to say whether there is a connection."""
_AWAY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
"""Codes that a controller gives which is away, or ends: it cancels the calls that it has."""
_COMMON: Final = (("grpc.enable_http_proxy", 0),)  # the controller is addressed directly, whatever http_proxy says
_FOR_ONE_CALL: Final = (
    *_COMMON,
    ("grpc.use_local_subchannel_pool", 1),  # a new client must not wait for the backoff of another one
)
_FOR_LONG: Final = (
    *_COMMON,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 20_000),  # a controller's machine that is gone ends the connection, too
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
)
_MAPPED: Final = "::ffff:"
"""Prefix of IPv4 addresses on sockets of IPv6."""
_peers: set[str | tuple[str, int]] = set()
"""Controllers to which no forked child keeps a connection: paths of Unix sockets, or addresses and ports."""


class MemberClient:
    """A connection to a controller, usable in a `with` block.

    Each method sends one message and returns the reply.  It raises the error that the controller has raised, or
    ControllerUnreachable.
    """

    def __init__(self, address: str, *, timeout_s: float = 10.0, waits: bool = False) -> None:
        """Connect at the first call; if `waits`, a call waits for a controller that is away until its time-out."""
        self.address = address
        self._timeout_s = timeout_s
        self._waits = waits
        self._telling: dict[int, Any] = {}
        """Calls of `link_down`, by link: gRPC cancels one under way that nobody holds."""
        self._tells = threading.Lock()
        """Held while `link_down` looks and calls: a heartbeat and the loop that finds the dead link may both ask."""
        self._channel = tls.open_channel(address, tls.HOSTS, _FOR_LONG if waits else _FOR_ONE_CALL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def report(self, request: WorkerReport, timeout_s: float) -> Any:
        """Begin to tell how a worker is; return the call, for which nobody has to wait."""
        return self._tell("Report", request, timeout_s)

    def link_down(self, request: member_rpc.LinkReport, timeout_s: float) -> None:
        """Begin to tell that a link is dead, unless a call that does is under way; nobody has to wait."""
        with self._tells:
            last = self._telling.get(request.link)
            if last is None or last.done():
                self._telling[request.link] = self._tell("LinkDown", request, timeout_s)

    def _tell(self, method: str, request: WorkerReport | member_rpc.LinkReport, timeout_s: float) -> Any:
        call = self._channel.unary_unary(member_rpc.path(method), request_serializer=None, response_deserializer=None)
        return call.future(codec.encode(request), timeout=timeout_s)

    def call(
        self,
        method: str,
        request: Any,
        reply: type[Reply],
        timeout_s: float | None = None,
        patience_s: float = 0.0,
    ) -> Reply:
        """Call a method by its name.

        A controller that is away is given `timeout_s` to come, one that is there `patience_s` to answer, if that is
        longer.  None: the client's.
        """
        call = self._channel.unary_unary(member_rpc.path(method), request_serializer=None, response_deserializer=None)
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            if patience_s > timeout_s:
                data = self._call_patiently(call, method, codec.encode(request), timeout_s, patience_s)
            else:
                data = call(codec.encode(request), timeout=timeout_s, wait_for_ready=self._waits)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and self._is_there():  # no code of the controller's
                raise too_busy(self.address, method, max(timeout_s, patience_s)) from None
            raise self.translate(method, error) from None
        return self.decode(method, reply, data)

    def stream(self, method: str, request: Any, reply: type[Reply], *, waits: bool) -> Replies[Reply]:
        """Begin a call with many replies; with `waits` when the controller is there, else it fails if there is none."""
        call = self._channel.unary_stream(member_rpc.path(method), request_serializer=None, response_deserializer=None)
        return Replies(self, method, call(codec.encode(request), wait_for_ready=waits), reply)

    def decode(self, method: str, reply: type[Reply], data: bytes) -> Reply:
        """Read a reply to a method; raises RemoteError."""
        try:
            return codec.decode(reply, data)
        except ValueError as error:
            raise RemoteError(
                f"the controller at {self.address} sent an answer to {method} that cannot be read, so the "
                f"two versions may differ: {error}"
            ) from error

    def translate(self, method: str, error: grpc.RpcError) -> SwitchsumError:
        """Return the error that the controller has raised, or ControllerUnreachable."""
        details = error.details() or ""
        named = rpc_codec.error_from_details(details)
        if type(named) is not RemoteError:
            return named
        if error.code() in _AWAY:
            return nobody_there(self.address, method, details)
        return RemoteError(f"{method} failed at {self.address}: {error.code().name} {details}")

    def _call_patiently(self, call: Any, method: str, data: bytes, timeout_s: float, patience_s: float) -> bytes:
        """Make a call, and give it up early if nobody is there."""
        future = call.future(data, timeout=patience_s, wait_for_ready=True)
        try:
            try:
                future.exception(timeout=timeout_s)
            except grpc.FutureTimeoutError:
                if not self._is_there():
                    raise nobody_there(self.address, method, f"none has come for {timeout_s:g} s") from None
            answer: bytes = future.result()
            return answer
        finally:
            future.cancel()  # if it has not ended

    def _is_there(self) -> bool:
        """Return whether there is a controller, be it too busy to answer."""
        states: queue.SimpleQueue[grpc.ChannelConnectivity] = queue.SimpleQueue()
        self._channel.subscribe(states.put)
        try:
            state = states.get(timeout=STATE_S)
        except queue.Empty:
            return True
        finally:
            self._channel.unsubscribe(states.put)
        # What is refused, by the kernel or by TLS, is tried again every moment.
        is_refused = state is grpc.ChannelConnectivity.TRANSIENT_FAILURE
        return state is grpc.ChannelConnectivity.READY or (not is_refused and is_listening(self.address))


class Replies(Generic[Reply]):
    """Replies that come one by one; iterating raises what `MemberClient.call` does."""

    def __init__(self, client: MemberClient, method: str, call: Any, reply: type[Reply]) -> None:
        self._client = client
        self._method = method
        self._call = call
        self._reply = reply

    def __iter__(self) -> Iterator[Reply]:
        try:
            for data in self._call:
                yield self._client.decode(self._method, self._reply, data)
        except grpc.RpcError as error:
            raise self._client.translate(self._method, error) from None

    def cancel(self) -> None:
        """End the call; calling it again does nothing."""
        self._call.cancel()


def keep_to_this_process(address: str) -> None:
    """Let no child that is forked from now on keep a connection to this gRPC address, once it has been resolved.

    The connection shows that the parent lives.  gRPC lets go of it by itself where its support for forks is on, which
    depends on its version and environment.
    """
    if not _peers:
        os.register_at_fork(after_in_child=_let_go)
    if address.startswith("unix:"):
        _peers.add(os.path.abspath(address.removeprefix("unix:")))
        return
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return  # then there is no connection, either
    _peers.update((str(name[0]), int(name[1])) for _, _, _, _, name in found)


def _let_go() -> None:
    """Put nothing in place of such connections: to close them would free numbers that gRPC may close once more."""
    for entry in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(entry)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(entry))) as connection:
                is_ours = _peer(connection) in _peers
        except OSError:
            continue  # closed meanwhile, or not connected
        if is_ours:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, int(entry), inheritable=False)
            os.close(nothing)


def _peer(connection: socket.socket) -> str | tuple[str, int] | None:
    name = connection.getpeername()
    if connection.family == socket.AF_UNIX:
        return os.path.abspath(name) if isinstance(name, str) and name else None
    return (str(name[0]).removeprefix(_MAPPED), int(name[1])) if isinstance(name, tuple) else None
