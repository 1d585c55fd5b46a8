"""Switches for the controller's tests, embedded and BMv2, seen as ports, and workers that are frames."""

from __future__ import annotations

import functools
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from support.timing import patience
from switchsum import p4src
from switchsum_controller.service.config import Config
from switchsum_controller.service.controller import Controller
from switchsum_controller.service.server import Service
from switchsum_controller.switches.switch_session import Build
from switchsum_protocol import member_rpc, rpc, wire
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.frame import (
    AGGREGATION_PORT,
    LANE_BYTES,
    Flag,
    Header,
    Kind,
    Reason,
    padding_bytes,
    payload_bytes,
)
from switchsum_switch.bmv2.process import PROGRAM, command_line, free_port
from switchsum_switch.daemon import daemon as embedded
from switchsum_switch.ports.base import PortGroup, PortTable
from switchsum_switch.ports.memory import MemoryPorts
from switchsum_switch.ports.sampling import serve_samples
from switchsum_switch.wires import headers
from switchsum_switch.wires.headers import Address

LANES = 128
SLOTS = 4
PORTS = (1, 2, 3, 4)
SWITCH = Address(mac=0x02_00_00_00_00_FE, ip=headers.parse_ip("10.0.0.254"), port=AGGREGATION_PORT)
LONG_S = patience(10.0)
"""Longer than anything on loopback takes."""
QUIET_S = patience(0.1)
"""After such a pause nothing more is on its way."""


def program(lanes: int = LANES) -> Build:
    """Return a lane build as the controller takes it."""
    compiled = p4src.load(lanes)
    return Build(lanes_per_frame=lanes, device_config=compiled.device_config, p4info=compiled.p4info)


class AnySwitch(Protocol):
    """A switch without a program, with ports 1 to 4."""

    address: str
    """Of its P4Runtime server."""

    def send(self, port: int, frame: bytes) -> None:
        """Let a frame come in."""

    def collect(self, at_least: int = 0) -> list[tuple[int, bytes]]:
        """Return what has gone out, as (port, frame), once so much has come and nothing more does for a while."""

    def restart(self) -> None:
        """Kill the switch and start it anew, without a program."""

    def close(self) -> None:
        """End it."""


class _MemorySwitch(embedded.SwitchProcess):
    """The embedded switch with ports that are queues."""

    def open_groups(self, config: embedded.Config, table: PortTable) -> Iterator[PortGroup]:
        self.memory = MemoryPorts(table, list(PORTS))
        yield self.memory


class EmbeddedSwitch:
    """The embedded switch on a thread."""

    def __init__(self, scratch: Path) -> None:
        self.address = f"unix:{scratch}/p4runtime"
        self._start()

    def _start(self) -> None:
        self._switch = _MemorySwitch(
            embedded.Config(listen=self.address, engine="interpreter", services=(serve_samples,))
        )
        self._thread = threading.Thread(target=self._switch.run)
        self._thread.start()

    def send(self, port: int, frame: bytes) -> None:
        self._switch.memory.inject(port, frame)
        self._switch.ports.wake()

    def collect(self, at_least: int = 0) -> list[tuple[int, bytes]]:
        sent, seen, last = self._switch.memory.sent, -1, time.monotonic()
        while time.monotonic() < last + (QUIET_S if len(sent) >= at_least else LONG_S):
            if len(sent) != seen or not self._switch.memory.prepare_sleep():
                seen, last = len(sent), time.monotonic()
            time.sleep(0.001)
        taken = sent[:]
        del sent[: len(taken)]
        return taken

    def restart(self) -> None:
        self.close()
        self._start()

    def close(self) -> None:
        self._switch.stop()
        self._thread.join()
        self._switch.close()


@functools.cache
def _takes_notifications() -> bool:
    """Whether BMv2 was built with nanomsg: else it has none of these sockets, and does not know the option."""
    said = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=False)
    return "--notifications-addr" in said.stdout + said.stderr


class Bmv2Switch:
    """BMv2; its ports are a gRPC stream, so that it needs neither root nor interfaces."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self.address = f"unix:{scratch}/p4runtime"
        self._start()

    def _start(self) -> None:
        notifications = ["--notifications-addr", f"ipc://{self._scratch}/notifications"]
        command = command_line(
            [PROGRAM],
            self.address,
            thrift_port=free_port(),
            options=notifications if _takes_notifications() else (),
            server_options=["--dp-grpc-server-addr", f"unix:{self._scratch}/wires"],
        )
        log = self._scratch / "bmv2.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        deadline = time.monotonic() + LONG_S
        while not all((self._scratch / name).exists() for name in ("p4runtime", "wires")):
            if time.monotonic() > deadline or self._process.poll() is not None:
                self._kill()
                raise TimeoutError(f"simple_switch_grpc did not start: {log.read_text()}")
            time.sleep(0.02)

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @functools.cached_property
    def _wires(self) -> Bmv2Wires:
        """BMv2 has no wires before it has a program."""
        return Bmv2Wires(f"unix:{self._scratch}/wires")

    def send(self, port: int, frame: bytes) -> None:
        self._wires.send(port, frame)

    def collect(self, at_least: int = 0) -> list[tuple[int, bytes]]:
        taken: list[tuple[int, bytes]] = []
        try:
            while True:
                taken.append(self._wires.received.get(timeout=QUIET_S if len(taken) >= at_least else LONG_S))
        except queue.Empty:
            return taken

    def restart(self) -> None:
        self.close()
        self._start()

    def close(self) -> None:
        self._kill()
        if "_wires" in self.__dict__:
            self.__dict__.pop("_wires").close()
        for name in ("p4runtime", "wires"):
            (self._scratch / name).unlink()


class Bmv2Wires:
    """Frames into and out of BMv2's ports, by its service `p4.bm.DataplaneInterface`, once BMv2 has a program."""

    def __init__(self, address: str) -> None:
        self.received: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self._channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._open = self._channel.stream_stream(
            "/p4.bm.DataplaneInterface/PacketStream", FRAME_MESSAGE.SerializeToString, FRAME_MESSAGE.FromString
        )
        self._out, self._stream = self._connect()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _connect(self) -> tuple[queue.SimpleQueue[Any], Any]:
        """Open the stream; it refuses clients for a moment after the program has come, and a second one always."""
        deadline = time.monotonic() + LONG_S
        while time.monotonic() < deadline:
            outs: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue(), queue.SimpleQueue()]
            stream: Any = self._open(iter(outs[0].get, None))
            probe: Any = self._open(iter(outs[1].get, None))
            while not stream.done() and not probe.done():
                time.sleep(0.001)
            outs[1].put(None)
            if probe.done() and probe.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                return outs[0], stream
            outs[0].put(None)
            stream.cancel()
            probe.cancel()
            time.sleep(0.01)
        raise TimeoutError("BMv2 takes no frames")

    def send(self, port: int, frame: bytes) -> None:
        self._out.put(FRAME_MESSAGE(port=port, packet=frame))

    def _read(self) -> None:
        try:
            for message in self._stream:
                self.received.put((message.port, message.packet))
        except grpc.RpcError:
            pass  # the switch is gone

    def close(self) -> None:
        self._out.put(None)
        self._stream.cancel()
        self._reader.join()
        self._channel.close()


def _make_frame_message() -> Any:
    """Return the class of PacketStreamRequest, which PacketStreamResponse looks the same as."""
    kinds = descriptor_pb2.FieldDescriptorProto
    proto = descriptor_pb2.FileDescriptorProto(name="bmv2_wires.proto", package="p4.bm", syntax="proto3")
    message = proto.message_type.add(name="PacketStreamRequest")
    message.field.add(name="port", number=3, type=kinds.TYPE_UINT32, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="packet", number=4, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
    pool: Any = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(proto.SerializeToString())
    descriptor = pool.FindMessageTypeByName("p4.bm.PacketStreamRequest")
    factory: Any = message_factory
    if hasattr(factory, "GetMessageClass"):
        return factory.GetMessageClass(descriptor)
    return factory.MessageFactory(pool).GetPrototype(descriptor)  # protobuf before 4.22


FRAME_MESSAGE = _make_frame_message()


class MemberCalls(ControllerClient):
    """A client with members' calls by name."""

    def join(self, request: member_rpc.JoinRequest) -> member_rpc.JoinReply:
        """Ask to become a member."""
        return self.call("Join", request, member_rpc.JoinReply)

    def ready(self, request: member_rpc.ReadyRequest) -> member_rpc.ReadyReply:
        """Wait for the admission of all members."""
        return self.call("Ready", request, member_rpc.ReadyReply, LONG_S + request.wait_s)

    def reform(self, request: member_rpc.ReformRequest) -> member_rpc.ReformReply:
        """Ask that the job continues without the members that are lost."""
        return self.call("Reform", request, member_rpc.ReformReply, LONG_S + request.wait_s)

    def leave(self, request: member_rpc.MemberRequest) -> None:
        """End a membership."""
        self.call("Leave", request, member_rpc.Empty)

    def heartbeat(self, request: member_rpc.MemberRequest) -> member_rpc.HeartbeatReply:
        """Say that a member is alive."""
        return self.call("Heartbeat", request, member_rpc.HeartbeatReply)

    def compare(self, request: member_rpc.CompareRequest) -> member_rpc.CompareReply:
        """Tell the operation that a member has issued; return those of all members."""
        return self.call("Compare", request, member_rpc.CompareReply, LONG_S + request.wait_s)


class RunningController:
    """A controller on a thread, its service, and a client of it."""

    def __init__(self, switch: str, listen: str, **config: object) -> None:
        values = {"program": program(), "switch_address": switch, "address": SWITCH, **config}
        self.controller = Controller(Config(**values))  # type: ignore[arg-type]
        self.service = Service(self.controller, listen)
        self.connected = threading.Event()
        self._thread = threading.Thread(target=self.controller.upkeep.run, args=(self.connected.set,))
        self._thread.start()
        self.client = MemberCalls(self.service.address, timeout_s=LONG_S)

    def stop(self) -> None:
        """End everything; what is on the switch stays there."""
        self.client.close()
        self.controller.upkeep.stop()
        self._thread.join()
        self.service.stop()


class Worker:
    """A member that is made of RPCs and frames."""

    def __init__(self, client: MemberCalls, switch: AnySwitch, rank: int, *, job: str = "a", size: int = 2) -> None:
        self.client = client
        self.switch = switch
        self.rank = rank
        self.port = rank + 1
        self.address = Address(
            mac=0x02_00_00_00_01_00 + rank, ip=headers.parse_ip("10.0.0.1") + rank, port=40_000 + rank
        )
        self.joined = client.join(member_rpc.JoinRequest(job=job, rank=rank, world_size=size))
        self.request = member_rpc.MemberRequest(job=job, nonce=self.joined.nonce)
        self.first_slot = 0

    def frame(self, kind: Kind, payload: bytes = b"", **fields: int) -> bytes:
        """Build a frame of this member."""
        values = {"job": self.joined.job_number, "epoch": self.joined.epoch, "rank": self.rank, **fields}
        if kind is Kind.CONTRIBUTION:
            values = {"cookie": self.joined.cookie, **values}
        if kind is Kind.CONTRIBUTION and not payload:
            payload = bytes(padding_bytes(LANES, self.joined.growth_bytes))
        return wire.build_frame(self.address, SWITCH, Header(kind=kind, **values), payload)

    def hello(self, *, whole: bool = True) -> None:
        """Show this member to the switch, in a frame that is as long as its contributions or a short one."""
        number, digest = wire.nonce_fields(self.joined.nonce)
        payload, flags = (bytes(payload_bytes(LANES)), int(Flag.PAYLOAD)) if whole else (b"", 0)
        self.switch.send(self.port, self.frame(Kind.HELLO, payload, number=number, digest=digest, flags=flags))

    def ready(self, wait_s: float = LONG_S) -> member_rpc.ReadyReply:
        """Wait for admission."""
        reply = self.client.ready(
            member_rpc.ReadyRequest(job=self.request.job, nonce=self.request.nonce, wait_s=wait_s)
        )
        self.first_slot = reply.first_slot
        return reply

    def contribute(self, number: int, value: int, slot: int = 0) -> None:
        """Send lanes that all have one value to one of the job's slots, counted from its first."""
        payload = value.to_bytes(LANE_BYTES, signed=True) * LANES
        fields = {"number": number, "slot": self.first_slot + slot, "flags": int(Flag.PAYLOAD)}
        self.switch.send(self.port, self.frame(Kind.CONTRIBUTION, payload, **fields))


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is true; fails when it takes too long."""
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def answers(switch: AnySwitch, at_least: int = 0) -> list[wire.Packet]:
    """Return the frames of ours that have gone out."""
    packets = [wire.parse_frame(frame) for _, frame in switch.collect(at_least)]
    return [packet for packet in packets if packet is not None]


def admit(workers: list[Worker]) -> member_rpc.ReadyReply:
    """Let workers say hello and wait for their admission; return what the last one is told."""
    for worker in workers:
        worker.hello()
    replies = [worker.ready() for worker in workers]
    assert all(reply.admitted for reply in replies)
    return replies[-1]


def sum_of_round(workers: list[Worker], number: int, *, slot: int = 0, results: int | None = None) -> list[int]:
    """Run one round of one slot; return the lanes' value in each result, of which so many are expected (None: all)."""
    switch = workers[0].switch
    switch.collect()
    for worker in workers:
        worker.contribute(number, worker.rank + 1, slot)
    found = answers(switch, len(workers) if results is None else results)
    payloads = [packet.payload for packet in found if packet.header.kind == Kind.RESULT]
    assert all(payload == payload[:LANE_BYTES] * LANES for payload in payloads)
    return [int.from_bytes(payload[:LANE_BYTES], signed=True) for payload in payloads]


def create(running: RunningController, job: str = "a", workers: int = 2, timeout_s: float = 60 * LONG_S) -> rpc.JobInfo:
    """Create a job whose members may be silent for a minute: they have no connections, and a switch takes its time."""
    return running.client.create_job(rpc.CreateJobRequest(job=job, workers=workers, slots=SLOTS, timeout_s=timeout_s))


def show(running: RunningController, job: str = "a") -> rpc.JobInfo:
    return running.client.show_job(rpc.JobRequest(job=job))


def join_all(running: RunningController, switch: AnySwitch, size: int = 2, job: str = "a") -> list[Worker]:
    return [Worker(running.client, switch, rank, job=job, size=size) for rank in range(size)]


def count(running: RunningController, reason: Reason) -> int:
    [counter] = [one for one in running.client.statistics().counters if one.reason == reason.name.lower()]
    return counter.packets


def following(epoch: int, steps: int = 1) -> int:
    """Return the epoch after one; the first is drawn at random."""
    return (epoch + steps) & 0xFFFF
