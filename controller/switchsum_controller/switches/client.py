"""A P4Runtime client: one connection to one switch, as its primary controller.

Calls block and raise P4RuntimeError, which names the updates that the switch refused.  The client uses gRPC's generic
calls with the messages of `switchsum_switch.messages.p4runtime`, and only features that BMv2 has.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from switchsum_switch.connections import tls
from switchsum_switch.connections.quiet_grpc import grpc
from switchsum_switch.messages import codec
from switchsum_switch.messages.p4runtime import (
    CHANNEL_OPTIONS,
    METHODS,
    Code,
    P4RuntimeError,
    decode_election_id,
    encode_election_id,
    v1,
)
from switchsum_switch.messages.samples import METHOD, SERVICE, SampleReply, SampleRequest

DEFAULT_ELECTION_ID: Final = 1 << 16
"""Higher than the 1 that shells and scripts use, so that a shell beside the controller may only read."""
MAX_ELECTION_ID: Final = (1 << 128) - 1

ANSWER_S: Final = 5.0
"""Longest time that a switch takes for an answer, unless the caller says another."""
PIPELINE_TIMEOUT_S: Final = 60.0
"""Longest time for loading a program: the switch may compile it."""

CLOSE_S: Final = 0.5

_CHANNEL_OPTIONS: Final = (
    *CHANNEL_OPTIONS,
    ("grpc.enable_http_proxy", 0),  # http_proxy in the environment must not divert connections on the loopback
    ("grpc.use_local_subchannel_pool", 1),  # a new connection must not wait for the backoff of a failed one
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The forwarding pipeline configuration of a switch."""

    p4info: Any
    """p4.config.v1.P4Info."""
    device_config: bytes
    """The program in the form of the target; for BMv2 its JSON."""
    cookie: int
    """64 bits by which the controller recognises the program."""


class P4RuntimeClient:
    """One connection to one switch.

    If no election id is given, the client bids DEFAULT_ELECTION_ID.  A switch remembers the highest id that it was ever
    sent (specification, section 5.3).  So a client that came and went with a high id would lock out all others.  If
    nobody is primary then, this client bids one more than that id.  It never outbids a client that is primary, and
    never bids another id than the one that was given.

    `on_packet` is called with every p4.v1.PacketIn, and `on_end` with a reason when the stream ends or another client
    becomes primary.  Both run on the thread that reads the stream, and must not wait for this client.
    """

    def __init__(
        self,
        address: str,
        *,
        device_id: int = 0,
        election_id: int | None = None,
        timeout_s: float | None = None,
        on_packet: Callable[[Any], None] = lambda packet: None,
        on_end: Callable[[P4RuntimeError], None] = lambda error: None,
    ) -> None:
        self.address = address
        self._device_id = device_id
        self._election_id = DEFAULT_ELECTION_ID if election_id is None else election_id
        self._may_raise = election_id is None
        self._timeout_s = ANSWER_S if timeout_s is None else timeout_s
        self._on_packet = on_packet
        self._on_end = on_end
        # What the stream sends and what it answers cross threads by queues; `_connected` and `_ended` belong to its
        # reader.
        self._channel = tls.open_channel(address, tls.P4RUNTIME, _CHANNEL_OPTIONS)
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._arbitrated: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stream: Any = None
        self._reader: threading.Thread | None = None
        self._connected = False
        self._ended = False
        self._closed = False

    def connect(self) -> None:
        """Open the stream and become primary; raises P4RuntimeError if the switch is away or has another primary."""
        method = METHODS["StreamChannel"]
        self._stream = self._channel.stream_stream(
            method.path, method.request.SerializeToString, method.response.FromString
        )(self._requests())
        self._reader = threading.Thread(target=self._read_stream, name="p4runtime stream", daemon=True)
        self._reader.start()
        self._bid()
        try:
            answer = self._arbitrated.get(timeout=self._timeout_s)
        except queue.Empty:
            answer = P4RuntimeError("StreamChannel", Code.DEADLINE_EXCEEDED, "the switch does not answer arbitration")
        if isinstance(answer, P4RuntimeError):
            self.close()
            raise answer

    @property
    def is_connected(self) -> bool:
        """Whether the stream is open, and this client primary."""
        return self._connected and not self._ended

    def close(self) -> None:
        """Close the stream and the connection; when this returns, another client can become primary."""
        self._closed = True
        self._outgoing.put(None)
        if self._stream is not None and self._reader is not None:
            self._reader.join(CLOSE_S)  # the switch closes its side when it has seen that ours is closed
            self._stream.cancel()
            self._reader.join()
        self._channel.close()

    def set_pipeline(self, pipeline: Pipeline) -> None:
        """Load a program; tables and registers are cleared."""
        config = v1.ForwardingPipelineConfig(p4info=pipeline.p4info, p4_device_config=pipeline.device_config)
        config.cookie.cookie = pipeline.cookie
        request = v1.SetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            election_id=encode_election_id(self._election_id),
            action="VERIFY_AND_COMMIT",
            config=config,
        )
        self._call("SetForwardingPipelineConfig", request, timeout_s=PIPELINE_TIMEOUT_S)

    def get_pipeline(self) -> Pipeline | None:
        """Return the program that the switch runs; None if there is none, or P4Runtime has not loaded it."""
        request = v1.GetForwardingPipelineConfigRequest(device_id=self._device_id, response_type="ALL")
        try:
            config = self._call("GetForwardingPipelineConfig", request).config
        except P4RuntimeError as error:
            if error.code is Code.FAILED_PRECONDITION:
                return None
            raise
        if not config.p4_device_config:
            return None
        return Pipeline(p4info=config.p4info, device_config=config.p4_device_config, cookie=int(config.cookie.cookie))

    def write(self, updates: Sequence[Any], timeout_s: float | None = None) -> None:
        """Carry out p4.v1.Updates in order; one that fails does not stop the others, and P4RuntimeError names it.

        `timeout_s` is how long the switch has for its answer; None: as long as for any other.
        """
        request = v1.WriteRequest(
            device_id=self._device_id, election_id=encode_election_id(self._election_id), updates=updates
        )
        self._call("Write", request, updates, timeout_s)

    def read(self, entities: Iterable[Any]) -> list[Any]:
        """Return the p4.v1.Entities that match the given ones; a field that is not set matches everything."""
        method = METHODS["Read"]
        call = self._channel.unary_stream(method.path, method.request.SerializeToString, method.response.FromString)
        request = v1.ReadRequest(device_id=self._device_id, entities=entities)
        try:
            return [entity for response in call(request, timeout=self._timeout_s) for entity in response.entities]
        except grpc.RpcError as error:
            raise P4RuntimeError.from_rpc("Read", error) from error
        except ValueError as error:  # what gRPC says of a connection that another thread has closed
            if not self._closed:
                raise
            raise P4RuntimeError("Read", Code.CANCELLED, "the connection was closed meanwhile") from error

    def send_packets(self, packets: Iterable[Any]) -> None:
        """Send p4.v1.PacketOuts; the switch confirms none of them."""
        for packet in packets:
            self._outgoing.put(v1.StreamMessageRequest(packet=packet))

    def sample(self, request: SampleRequest) -> SampleReply:
        """Return frames that pass; of a switch that is not the embedded one P4RuntimeError has code UNIMPLEMENTED."""
        call = self._channel.unary_unary(f"/{SERVICE}/{METHOD}", None, None)
        try:
            reply = call(codec.encode(request), timeout=self._timeout_s + request.seconds)
            return codec.decode(SampleReply, reply)
        except grpc.RpcError as error:
            raise P4RuntimeError.from_rpc(METHOD, error) from error
        except ValueError as error:
            raise P4RuntimeError(METHOD, Code.INTERNAL, str(error)) from error

    def _call(self, name: str, request: Any, updates: Sequence[Any] = (), timeout_s: float | None = None) -> Any:
        method = METHODS[name]
        call = self._channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
        try:
            return call(request, timeout=timeout_s or self._timeout_s)
        except grpc.RpcError as error:
            raise P4RuntimeError.from_rpc(name, error, updates) from error

    def _requests(self) -> Iterator[Any]:
        """Yield the messages that the stream sends."""
        while (message := self._outgoing.get()) is not None:
            yield message

    def _read_stream(self) -> None:
        """Handle the messages of the stream until it ends; runs on a thread of its own."""
        try:
            for message in self._stream:
                kind = message.WhichOneof("update")
                if kind == "packet":
                    self._on_packet(message.packet)
                elif kind == "arbitration":
                    self._arbitrate(message.arbitration)
            self._end(P4RuntimeError("StreamChannel", Code.UNAVAILABLE, "the switch ended the stream"))
        except grpc.RpcError as error:
            failure = P4RuntimeError.from_rpc("StreamChannel", error)
            # The answer to an election id that another client has (specification, section 5.3).
            if failure.code is Code.INVALID_ARGUMENT and not self._connected:
                text = f"{failure.message}: end that controller, --standby until it ends, or bid more by --election-id"
                failure = P4RuntimeError("StreamChannel", failure.code, text)
            self._end(failure)

    def _bid(self) -> None:
        arbitration = v1.MasterArbitrationUpdate(
            device_id=self._device_id, election_id=encode_election_id(self._election_id)
        )
        self._outgoing.put(v1.StreamMessageRequest(arbitration=arbitration))

    def _arbitrate(self, update: Any) -> None:
        if self._ended:  # after another client was primary, this one must not become primary again unnoticed
            return
        # OK: this client is primary.  NOT_FOUND: there is none, and ours is too low.  ALREADY_EXISTS: another one is.
        if update.status.code == Code.OK:
            self._connected = True
            self._arbitrated.put(update)
            return
        highest = decode_election_id(update.election_id)
        if update.status.code != Code.NOT_FOUND:
            text = f"controller {highest} is primary: end it, or take its place by a higher --election-id"
            self._end(P4RuntimeError("StreamChannel", Code.ALREADY_EXISTS, text))
        elif self._connected or not self._may_raise:
            text = f"nobody is primary, and only who bids at least {highest} can be: --election-id {highest}"
            self._end(P4RuntimeError("StreamChannel", Code.NOT_FOUND, text))
        elif highest >= self._election_id:  # otherwise the switch sent this before our last bid arrived
            self._election_id = min(highest + 1, MAX_ELECTION_ID)
            self._bid()

    def _end(self, error: P4RuntimeError) -> None:
        """Fail the arbitration if it is not over yet; otherwise report the end of the connection, once."""
        self._ended = True
        if not self._connected:
            self._arbitrated.put(error)
        elif not self._closed:
            self._connected = False
            self._on_end(error)
