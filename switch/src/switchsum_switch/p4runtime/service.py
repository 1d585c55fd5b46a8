"""The P4Runtime service: the gRPC methods, on top of arbitration and the device.

Methods run on gRPC's threads, under one lock.  A stream has two threads: gRPC's sends what is queued for the client
(`stream.py`), and a thread of ours reads what the client sends (`_listen`).  Packet-ins come from the data plane's
thread, which must never wait: it only queues them, and drops them if a client is slow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock, Thread
from typing import Any, Final, Generic

from google.protobuf.message import DecodeError

from switchsum_switch.connections.quiet_grpc import grpc
from switchsum_switch.connections.threads import Exhausted, start
from switchsum_switch.messages.p4runtime import (
    METHODS,
    SERVICE,
    STATUS_DETAILS_KEY,
    Code,
    Outcome,
    decode_election_id,
    encode_details,
    encode_election_id,
    v1,
)

from .arbitration import DEFAULT_ROLE, Arbitration, Bid, Notification
from .device import Device, Pipeline
from .refusal import Refused, invalid
from .roles import RoleConfig, decode_role_config
from .stream import MAX_STREAMS, Stream

API_VERSION: Final = "1.5.0"
"""Version of P4Runtime whose messages are understood, with any release of the protobuf definitions."""

RESPONSE_BYTES: Final = 1 << 20
"""Approximate size of the messages of a Read's answer; gRPC clients take messages of 4 MB by default."""

MOST_READS: Final = 8
"""Answers to Reads that are sent at a time.  Each holds a thread of unary calls until its client has taken it, or until
another client needs its place: then the one ends that has waited longest."""

_log = logging.getLogger("switchsum.switch.p4runtime.service")
_STATUS: Final = {code.value[0]: code for code in grpc.StatusCode}
_GARBAGE: Final = object()
"""Stands for a request that could not be parsed."""
_REASONS: Final = {Code.OK: "primary", Code.ALREADY_EXISTS: "another client is primary", Code.NOT_FOUND: "no primary"}


class Service(Generic[Pipeline]):
    """One device as a P4Runtime service; gRPC's threads call its methods."""

    def __init__(
        self,
        device_id: int,
        device: Device[Pipeline],
        packet_out: Callable[[bytes], None],
        exhausted: Exhausted = _log.error,
    ) -> None:
        self.device = device
        self.exhausted = exhausted
        self._device_id = device_id
        self._packet_out = packet_out
        """Takes a frame that is to arrive at the CPU port, with its controller header in front."""
        self._lock = RLock()
        """Held during a Write, so that no client becomes primary before the old primary's writes are done."""
        self._arbitration: Arbitration[Stream] = Arbitration(device_id)
        self._streams: set[Stream] = set()
        self._primaries: tuple[tuple[Stream, RoleConfig | None], ...] = ()
        self._reading: list[grpc.ServicerContext] = []
        """Reads whose answers are being sent, the oldest first."""
        self.on_change: Callable[[Any], object] | None = None
        """Told each request that was carried out, before another packet runs."""

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """Return the service as gRPC wants it."""
        behaviours: dict[str, Callable[..., Any]] = {
            "Write": self._answering(self.write),
            "Read": self.read,
            "SetForwardingPipelineConfig": self._answering(self.set_config),
            "GetForwardingPipelineConfig": self._answering(self.get_config),
            "StreamChannel": self.stream_channel,
            "Capabilities": self._answering(self.capabilities),
        }
        makers: dict[tuple[bool, bool], Callable[..., Any]] = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                name: makers[method.client_streams, method.server_streams](
                    behaviours[name],
                    request_deserializer=_reader(method.request),
                    response_serializer=method.response.SerializeToString,
                )
                for name, method in METHODS.items()
            },
        )

    def packet_in(self, frame: bytes) -> None:
        """Queue a frame that left through the CPU port for all primaries; called on the data plane's thread."""
        program = self.device.committed
        message = program.schema.packet_in.packet_in(frame) if program else None
        if message is not None:
            self._tell_primaries(v1.StreamMessageResponse(packet=message))

    @property
    def tells(self) -> bool:
        """Whether `tell_due` may ever have something to do for the program that runs."""
        program = self.device.committed
        return program is not None and program.tells

    def tell_due(self) -> None:
        """Send the primaries the digests and idle timeouts that are due; any thread may call it, at any time."""
        program = self.device.committed
        for message in program.due() if program else ():
            self._tell_primaries(message)

    def _tell_primaries(self, message: Any) -> None:
        """Queue a message for the primary of each role that hears it."""
        for stream, config in self._primaries:
            heard = message if config is None else config.heard(message)
            if heard is not None:
                stream.offer(heard)

    def write(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Serve Write."""
        with self._lock:
            self._require_primary(request)
            config = self._arbitration.config_of(request.role)
            with self._change(request):
                permits = None if config is None else config.permits
                outcomes = self.device.current.write(request.updates, request.atomicity, permits)
        _report("updates", outcomes, context)
        return v1.WriteResponse()

    def _change(self, request: Any) -> AbstractContextManager[object]:
        return nullcontext() if self.on_change is None else self._announced(request, self.on_change)

    @contextmanager
    def _announced(self, request: Any, on_change: Callable[[Any], object]) -> Iterator[None]:
        """Let no packet run until a request is carried out and told."""
        running = self.device.committed
        with nullcontext() if running is None else running.state.lock:
            yield
            on_change(request)

    def read(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """Serve Read."""
        # All entities are read before the first is sent: the answer is one state, and the lock is not held for a slow
        # client.
        entities: list[Any] = []
        outcomes = []
        try:
            _require_message(request)
            with self._lock:
                self._require_device(request.device_id)
                program = self.device.current
                config = self._arbitration.config_of(request.role)
                for query in request.entities:
                    try:
                        found = program.read(query)
                        entities += found if config is None else filter(config.permits, found)
                        outcomes.append(Outcome())
                    except Refused as refused:
                        outcomes.append(Outcome(code=refused.code, message=refused.message))
        except Refused as refused:
            context.abort(_STATUS[refused.code], refused.message)
        with self._lock:
            if len(self._reading) >= MOST_READS:
                self._reading.pop(0).cancel()  # type: ignore[no-untyped-call]
            self._reading.append(context)
        try:
            yield from _responses(entities)
        finally:
            with self._lock:
                if context in self._reading:
                    self._reading.remove(context)
        _report("entities", outcomes, context)

    def set_config(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Serve SetForwardingPipelineConfig; other calls go on while a program is compiled."""
        with self._lock:
            self._require_primary(request)
            config = self._arbitration.config_of(request.role)
            if config is not None and not config.can_push_pipeline:
                raise Refused(Code.PERMISSION_DENIED, f"the role {request.role!r} may not set the program")
        # Without the lock, for seconds.  Another client may have become primary meanwhile, so that is checked again.
        prepared = self.device.prepare(request.action, request.config)
        with self._lock:
            self._require_primary(request)
            with self._change(request):
                self.device.apply(request.action, request.config, prepared)
        return v1.SetForwardingPipelineConfigResponse()

    def get_config(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Serve GetForwardingPipelineConfig."""
        with self._lock:
            self._require_device(request.device_id)
            return v1.GetForwardingPipelineConfigResponse(config=self.device.config(request.response_type))

    def capabilities(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Serve Capabilities."""
        if request.device_id:  # clients of P4Runtime before 1.5 name none
            self._require_device(request.device_id)
        return v1.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def stream_channel(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """Serve StreamChannel: this thread sends, another one receives."""
        stream = Stream(context.cancel)
        with self._lock:
            is_full = len(self._streams) >= MAX_STREAMS
            if not is_full:
                self._streams.add(stream)
        if is_full:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS} streams are open already")
        if not context.add_callback(lambda: self._end(stream)):
            self._end(stream)
            return
        reader = Thread(target=self._listen, args=(stream, requests), name="p4runtime-stream", daemon=True)
        if not start(reader, self.exhausted):
            return
        try:
            yield from stream
        except Refused as refused:
            context.abort(_STATUS[refused.code], refused.message)

    def _listen(self, stream: Stream, requests: Iterator[Any]) -> None:
        reason = None
        try:
            for request in requests:
                self._receive(stream, request)
        except Refused as refused:
            reason = refused
        except grpc.RpcError:
            pass  # the client has disconnected
        self._end(stream, reason)

    def _end(self, stream: Stream, reason: Refused | None = None) -> None:
        """Forget a client, then end its stream: another client can take its election id at once."""
        with self._lock:
            self._streams.discard(stream)
            self._tell(self._arbitration.leave(stream))
        stream.close(reason)

    def _receive(self, stream: Stream, request: Any) -> None:
        _require_message(request)
        match request.WhichOneof("update"):
            case "arbitration":
                self._arbitrate(stream, request.arbitration)
            case "packet":
                self._send_out(stream, request.packet)
            case "digest_ack":
                self._acknowledge(stream, request.digest_ack)
            case _:
                error = v1.StreamError(canonical_code=Code.UNIMPLEMENTED, message="no such message is known here")
                error.other.other.CopyFrom(request.other)
                stream.offer(v1.StreamMessageResponse(error=error))

    def _arbitrate(self, stream: Stream, message: Any) -> None:
        if message.role.id:
            raise invalid("roles have names since P4Runtime 1.4, numbers are not supported")
        bid = Bid(
            device_id=message.device_id,
            role=message.role.name,
            election_id=_election_id(message),
            config=decode_role_config(message.role.config) if message.role.HasField("config") else None,
        )
        with self._lock:
            self._tell(self._arbitration.update(stream, bid))

    def _tell(self, notifications: Iterable[Notification[Stream]]) -> None:
        arbitration = self._arbitration
        self._primaries = tuple(
            (stream, arbitration.config_of(arbitration.role_of(stream))) for stream in arbitration.primaries()
        )
        for notification in notifications:
            notification.stream.send(v1.StreamMessageResponse(arbitration=self._encode(notification)))

    def _encode(self, notification: Notification[Stream]) -> Any:
        message = v1.MasterArbitrationUpdate(device_id=self._device_id)
        if notification.role != DEFAULT_ROLE:
            message.role.name = notification.role
        if notification.config is not None:
            message.role.config.CopyFrom(notification.config.message)
        if notification.highest is not None:
            message.election_id.CopyFrom(encode_election_id(notification.highest))
        message.status.code, message.status.message = notification.code, _REASONS[notification.code]
        return message

    def _send_out(self, stream: Stream, message: Any) -> None:
        try:
            with self._lock:
                if not self._arbitration.is_primary(stream):
                    raise Refused(Code.PERMISSION_DENIED, "only the primary may send packets")
            program = self.device.committed
            if program is None:
                raise Refused(Code.FAILED_PRECONDITION, "no forwarding pipeline config has been set")
            self._packet_out(program.schema.packet_out.packet_out(message))
        except Refused as refused:
            error = v1.StreamError(canonical_code=refused.code, message=refused.message)
            error.packet_out.packet_out.CopyFrom(message)
            stream.offer(v1.StreamMessageResponse(error=error))

    def _acknowledge(self, stream: Stream, message: Any) -> None:
        try:
            with self._lock:
                if not self._arbitration.is_primary(stream):
                    raise Refused(Code.PERMISSION_DENIED, "only the primary may acknowledge digests")
            program = self.device.committed
            if program is None:
                raise Refused(Code.FAILED_PRECONDITION, "no forwarding pipeline config has been set")
            program.acknowledge(message)
        except Refused as refused:
            error = v1.StreamError(canonical_code=refused.code, message=refused.message)
            error.digest_list_ack.digest_list_ack.CopyFrom(message)
            stream.offer(v1.StreamMessageResponse(error=error))

    def _require_primary(self, request: Any) -> None:
        if request.role_id:
            raise invalid("roles have names since P4Runtime 1.4, numbers are not supported")
        self._arbitration.require_primary(request.device_id, request.role, _election_id(request))

    def _answering(
        self, method: Callable[[Any, grpc.ServicerContext], Any]
    ) -> Callable[[Any, grpc.ServicerContext], Any]:
        """Return `method`, so changed that Refused ends the call with its status, and a lack of memory the switch."""

        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                _require_message(request)
                return method(request, context)
            except Refused as refused:
                context.abort(_STATUS[refused.code], refused.message)
            except MemoryError as error:
                self.exhausted(error)
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the switch has no memory left, and ends")

        return answer

    def _require_device(self, device_id: int) -> None:
        if device_id != self._device_id:
            raise Refused(Code.NOT_FOUND, f"this is device {self._device_id}, not {device_id}")


def _reader(message: Any) -> Callable[[bytes], Any]:
    """Return a function that parses a request, and returns _GARBAGE where gRPC would log a traceback."""

    def read(data: bytes) -> Any:
        try:
            return message.FromString(data)
        except DecodeError:
            return _GARBAGE

    return read


def _require_message(request: Any) -> None:
    if request is _GARBAGE:
        raise invalid("the request is no message of P4Runtime")


def _election_id(message: Any) -> int | None:
    return decode_election_id(message.election_id) if message.HasField("election_id") else None


def _responses(entities: Iterable[Any]) -> Iterator[Any]:
    """Pack entities into ReadResponse messages of bounded size."""
    response, size = v1.ReadResponse(), 0
    for entity in entities:
        response.entities.append(entity)
        size += entity.ByteSize()
        if size > RESPONSE_BYTES:
            yield response
            response, size = v1.ReadResponse(), 0
    if response.entities:
        yield response


def _report(what: str, outcomes: list[Outcome], context: grpc.ServicerContext) -> None:
    """If updates or entities have failed, end the call with a status that has the outcome of each (section 10)."""
    failed = sum(outcome.code is not Code.OK for outcome in outcomes)
    if failed:
        message = f"{failed} of {len(outcomes)} {what} failed"
        details = encode_details(Code.UNKNOWN, message, outcomes)
        context.set_trailing_metadata(((STATUS_DETAILS_KEY, details),))
        context.abort(grpc.StatusCode.UNKNOWN, message)
