"""A P4Runtime server on loopback with a program that has one of each thing, and clients that speak raw messages."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from support.timing import patience
from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.messages.p4runtime import (
    CHANNEL_OPTIONS,
    METHODS,
    Code,
    P4RuntimeError,
    decode_election_id,
    encode_election_id,
    parse_p4info,
    v1,
)
from switchsum_switch.p4runtime.device import Device
from switchsum_switch.p4runtime.server import Server
from switchsum_switch.p4runtime.service import Service
from switchsum_switch.state.clock import Clock

DEVICE_ID = 7
PROGRAM = Path(__file__).parent / "p4runtime" / "entities.json"
P4INFO = parse_p4info((Path(__file__).parent / "p4runtime" / "entities.p4info.txtpb").read_text())
LONG_S = patience(10.0)
"""Longer than anything on loopback takes."""


def identifier(kind: str, name: str) -> int:
    """Return the P4Info id of the table, action, counter, ... of that name."""
    for item in getattr(P4INFO, kind):
        if item.preamble.name.rpartition(".")[2] == name:
            return int(item.preamble.id)
    raise KeyError(name)


def config(**fields: Any) -> Any:
    """Return the test program's forwarding pipeline config, with other fields where given."""
    return v1.ForwardingPipelineConfig(**{"p4info": P4INFO, "p4_device_config": PROGRAM.read_bytes(), **fields})


class Client:
    """One client with one stream."""

    def __init__(self, address: str, election_id: int | None, role: str = "", device_id: int = DEVICE_ID) -> None:
        options = [*CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(address, options=options)
        self.election_id = election_id
        self.role = role
        self.device_id = device_id
        self._out: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._in: queue.SimpleQueue[Any] = queue.SimpleQueue()
        method = METHODS["StreamChannel"]
        self.stream = self.channel.stream_stream(
            method.path, method.request.SerializeToString, method.response.FromString
        )(iter(self._out.get, None))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            for message in self.stream:
                self._in.put(message)
            self._in.put(Code.OK)
        except grpc.RpcError as error:
            self._in.put(P4RuntimeError.from_rpc("StreamChannel", error))

    def send(self, **message: Any) -> None:
        """Send a StreamMessageRequest."""
        self._out.put(v1.StreamMessageRequest(**message))

    def receive(self, timeout_s: float = LONG_S) -> Any:
        """Return the next message of the stream, Code.OK where it ended, or the error that ended it."""
        return self._in.get(timeout=timeout_s)

    def nothing_more(self) -> bool:
        """Whether no message waits."""
        return self._in.empty()

    def arbitrate(self, election_id: int | None = None, **fields: Any) -> Any:
        """Make a bid and return the answer as (highest election id, code), or the error that ended the stream."""
        if election_id is not None:
            self.election_id = election_id
        message = v1.MasterArbitrationUpdate(**{"device_id": self.device_id, **fields})
        if self.election_id is not None:
            message.election_id.CopyFrom(encode_election_id(self.election_id))
        if self.role:
            message.role.name = self.role
        self.send(arbitration=message)
        return self.arbitration()

    def arbitration(self) -> Any:
        """Return the next message, which is to be about arbitration, as (highest election id, code)."""
        answer = self.receive()
        if isinstance(answer, P4RuntimeError):
            return answer
        update = answer.arbitration
        assert answer.WhichOneof("update") == "arbitration"
        assert (update.device_id, update.role.name) == (self.device_id, self.role)
        highest = decode_election_id(update.election_id) if update.HasField("election_id") else None
        return highest, Code(update.status.code)

    def call(self, name: str, sent: Sequence[Any] = (), **fields: Any) -> Any:
        """Make a unary call, as this client; raises P4RuntimeError."""
        method = METHODS[name]
        request = method.request(**{"device_id": self.device_id, **fields})
        known = method.request.DESCRIPTOR.fields_by_name
        if "election_id" in known and self.election_id is not None and "election_id" not in fields:
            request.election_id.CopyFrom(encode_election_id(self.election_id))
        if "role" in known and not request.role:
            request.role = self.role
        make = self.channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
        try:
            return make(request, timeout=LONG_S)
        except grpc.RpcError as error:
            raise P4RuntimeError.from_rpc(name, error, sent) from error

    def write(self, *updates: Any, **fields: Any) -> None:
        """Write updates; raises P4RuntimeError."""
        self.call("Write", updates, updates=updates, **fields)

    def insert(self, **entity: Any) -> None:
        """Insert one entity; raises P4RuntimeError."""
        self.write(update(v1.Update.INSERT, **entity))

    def modify(self, **entity: Any) -> None:
        """Modify one entity; raises P4RuntimeError."""
        self.write(update(v1.Update.MODIFY, **entity))

    def delete(self, **entity: Any) -> None:
        """Delete one entity; raises P4RuntimeError."""
        self.write(update(v1.Update.DELETE, **entity))

    def read(self, *entities: Any, **fields: Any) -> list[Any]:
        """Return the entities that the given ones select; raises P4RuntimeError with what came before it in `args`."""
        method = METHODS["Read"]
        call = self.channel.unary_stream(method.path, method.request.SerializeToString, method.response.FromString)
        request = v1.ReadRequest(**{"device_id": self.device_id, "entities": entities, **fields})
        found: list[Any] = []
        try:
            for response in call(request, timeout=LONG_S):
                found += response.entities
        except grpc.RpcError as error:
            raise PartialRead(P4RuntimeError.from_rpc("Read", error, entities), found) from error
        return found

    def read_one(self, **entity: Any) -> Any:
        """Return what one entity selects, which is to be one."""
        (kind,) = entity
        (found,) = self.read(v1.Entity(**entity))
        return getattr(found, kind)

    def read_all(self, **entity: Any) -> list[Any]:
        """Return what one entity selects."""
        (kind,) = entity
        return [getattr(found, kind) for found in self.read(v1.Entity(**entity))]

    def set_config(self, action: str = "VERIFY_AND_COMMIT", **fields: Any) -> None:
        """Set the forwarding pipeline config; raises P4RuntimeError."""
        self.call("SetForwardingPipelineConfig", action=action, **fields)

    def close(self) -> None:
        """End the stream, wait for the server's end of it, and close the connection."""
        self._out.put(None)
        self._reader.join(LONG_S)
        self.channel.close()


class PartialRead(Exception):
    """A Read that failed for some entities."""

    def __init__(self, error: P4RuntimeError, found: list[Any]) -> None:
        super().__init__(str(error))
        self.error = error
        self.found = found


def update(kind: int, **entity: Any) -> Any:
    """Return an update of one entity."""
    return v1.Update(type=kind, entity=v1.Entity(**entity))


class Rig:
    """The server and its clients."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.stop(at_s=0)
        self.device: Device[Pipeline] = Device(lambda data: Pipeline.load(data, engine="interpreter"), self.clock)
        self.packet_outs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.service = Service(DEVICE_ID, self.device, self.packet_out)
        self.server = Server(self.service, "127.0.0.1:0")
        self._clients: list[Client] = []

    def packet_out(self, frame: bytes) -> None:
        """Keep a frame that a client sends out."""
        self.packet_outs.put(frame)

    def client(self, election_id: int | None = None, role: str = "", device_id: int = DEVICE_ID) -> Client:
        """Return a client that has not made a bid yet."""
        client = Client(self.server.address, election_id, role, device_id)
        self._clients.append(client)
        return client

    def primary(self, election_id: int = 1, role: str = "") -> Client:
        """Return a client that is primary."""
        client = self.client(election_id, role)
        assert client.arbitrate() == (election_id, Code.OK)
        return client

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that packets go through."""
        pipeline = self.device.pipeline
        assert pipeline is not None
        return pipeline

    def close(self) -> None:
        """Close clients and server."""
        for client in self._clients:
            client.close()
        self.server.close()


def rig() -> Iterator[Rig]:
    """Yield a server without a program."""
    made = Rig()
    yield made
    made.close()


def primary(rig: Rig) -> Client:
    """Return the primary of a server that runs the test program; to be made a fixture."""
    client = rig.primary()
    client.set_config(config=config(cookie={"cookie": 11}))
    return client
