"""Real BMv2 as an engine: simple_switch_grpc on veth pairs, in a network namespace of its own; needs root."""

from __future__ import annotations

import ctypes
import queue
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from switchsum import p4src
from switchsum.launch.wires import hold_namespace, run
from switchsum.testing.rig import CPU_PORT, SWITCH
from switchsum_controller.switches.client import P4RuntimeClient, Pipeline
from switchsum_controller.switches.schema import Schema, encode_group
from switchsum_controller.tables.entries import Entry, Group, Replica
from switchsum_protocol.frame import AT, Kind
from switchsum_switch.bmv2.process import AS_STARTED, End, await_listening, command_line, ring_frames
from switchsum_switch.bmv2.queue_depths import set_queue_depths, set_queue_rates
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError, parse_p4info, v1
from switchsum_switch.process.children import Child, Children
from switchsum_switch.wires.headers import Address, parse_ip
from switchsum_switch.wires.packetsocket import SOL_PACKET, open_packet_socket

PORTS = 4
LOST_S = 0.15
"""Seconds that the answer to a probe may take. Then the drop simulator has lost it."""
ANSWER_S = 0.5
"""Seconds that other answers may take."""
ETHERTYPE_ARP = bytes.fromhex("0806")
ETHERTYPE_IPV4 = bytes.fromhex("0800")
KIND_AT = AT.kind
HELLO = bytes([Kind.HELLO])
PROBER = Address(mac=0x02_00_00_00_99_99, ip=parse_ip("10.0.0.99"), port=0)
"""Sends the ARP requests that show how far BMv2 has come: a port's frames are handled in their order."""
PROBE = (
    bytes.fromhex("ffffffffffff") + PROBER.mac.to_bytes(6) + ETHERTYPE_ARP + bytes.fromhex("0001080006040001")
    + PROBER.mac.to_bytes(6) + PROBER.ip.to_bytes(4) + bytes(6) + SWITCH.ip.to_bytes(4)
)  # fmt: skip
THRIFT_PORT = 9090
"""BMv2's default; nobody else is in its namespace."""
FRAME_BYTES = 1 << 16
PACKET_AUXDATA = 8
AUXDATA = struct.Struct("=IIIHHHH")
"""`struct tpacket_auxdata`: first the status, last a tag that the kernel has taken off, and the tag's EtherType."""
HAS_TAG = 1 << 4
CLONE_NEWNET = 0x4000_0000
OFFLOADS = ("tx", "tso", "gso", "gro", "lro", "ufo")

Result = TypeVar("Result")


def in_namespace(pid: int, action: Callable[[], Result]) -> Result:
    """Call `action` on a thread that is in the network namespace of a process."""
    results: list[Result] = []

    def body() -> None:
        with open(f"/proc/{pid}/ns/net") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        results.append(action())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return results[0]


class Bmv2Program:
    """simple_switch_grpc with a program and ports 1 to 4, whose other ends are raw sockets here.

    `command` may start another switch that takes BMv2's options.
    """

    def __init__(
        self,
        device_config: bytes,
        p4info_text: str,
        *,
        offloads: bool = False,
        command: Sequence[str] = ("simple_switch_grpc",),
    ) -> None:
        self._command = command
        self._children = Children()
        self._scratch = tempfile.TemporaryDirectory(prefix="switchsum-test-")
        self._groups: set[int] = set()
        self._packets_in: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._pid = hold_namespace(self._children, "namespace").process.pid
        self._inside(["ip", "link", "set", "lo", "up"])
        for port in range(1, PORTS + 1):
            self._inside(
                f"ip link add s{port} mtu 9500 type veth peer name h{port} mtu 9500".split(),
            )
            for end in (f"s{port}", f"h{port}"):
                self._inside(["sysctl", "-qw", f"net.ipv6.conf.{end}.disable_ipv6=1"])
                if not offloads:
                    self._inside(["ethtool", "-K", end, *(word for name in OFFLOADS for word in (name, "off"))])
                self._inside(["ip", "link", "set", end, "up"])
        self.sockets = in_namespace(self._pid, self._open_sockets)
        self.child = self._start()
        self._client = P4RuntimeClient(self._address, on_packet=self._packets_in.put)
        self._connect()
        p4info = parse_p4info(p4info_text)
        self.schema = Schema(p4info)
        self._pipeline = Pipeline(p4info=p4info, device_config=device_config, cookie=1)
        self._keys = {table.preamble.name: [field.name for field in table.match_fields] for table in p4info.tables}
        self._params = {action.preamble.name: [param.name for param in action.params] for action in p4info.actions}
        self.load()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End BMv2 and remove the namespace."""
        self._client.close()
        self._children.stop()
        for end in self.sockets:
            end.close()
        self._scratch.cleanup()

    @property
    def _address(self) -> str:
        return f"unix:{self._scratch.name}/p4runtime"

    def _inside(self, command: Sequence[str]) -> None:
        run(["nsenter", f"--net=/proc/{self._pid}/ns/net", "--", *command])

    def _open_sockets(self) -> list[socket.socket]:
        ends = [open_packet_socket(f"h{port}") for port in range(1, PORTS + 1)]
        for end in ends:
            end.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        return ends

    def _start(self) -> Child:
        ends = [End(port, f"s{port}") for port in range(1, PORTS + 1)]
        command = command_line(self._command, self._address, thrift_port=THRIFT_PORT, ends=ends)
        inside = ["nsenter", f"--net=/proc/{self._pid}/ns/net", "--", *AS_STARTED]
        return self._children.start("bmv2", [*inside, *command], prefix=True, quiet=True)

    def _connect(self) -> None:
        await_listening(self.child, self._command[0], self._address)
        self._client.connect()

    def ring_frames(self) -> int:
        """Return how many frames the ring of port 1 holds."""
        [frames] = in_namespace(self._pid, lambda: ring_frames(["s1"]))
        return frames

    def lengthen_queues(self, frames: int) -> None:
        """Have every egress queue hold `frames`."""
        in_namespace(self._pid, lambda: set_queue_depths(THRIFT_PORT, frames))

    def pace_queues(self, frames_per_s: int) -> None:
        """Have every egress queue send so many frames a second."""
        in_namespace(self._pid, lambda: set_queue_rates(THRIFT_PORT, frames_per_s))

    def load(self) -> None:
        """Load the program (again): tables, registers and counters start afresh, groups stay."""
        self._client.set_pipeline(self._pipeline)

    def reset(self) -> None:
        """Make everything as it was after the start."""
        for group in list(self._groups):
            self.delete_group(group)
        self.load()

    def insert(self, table: str, match: Sequence[int], action: str, params: Sequence[int]) -> None:
        """Add an entry of exact matches."""
        self._write("INSERT", table_entry=self.schema.encode_entry(
            Entry(
                table=table,
                match=dict(zip(self._keys[table], match, strict=True)),
                action=action,
                params=dict(zip(self._params[action], params, strict=True)),
            )
        ))  # fmt: skip

    def set_default(self, table: str, action: str, params: Sequence[int]) -> None:
        """Set a table's default action."""
        values = dict(zip(self._params[action], params, strict=True))
        entry = Entry(table=table, action=action, params=values, is_default=True)
        self._write("MODIFY", table_entry=self.schema.encode_entry(entry))

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Make a multicast group."""
        made = Group(group=group, replicas=frozenset(Replica(port=port, instance=rank) for port, rank in replicas))
        self._client.write([v1.Update(type="INSERT", entity=encode_group(made))])
        self._groups.add(group)

    def delete_group(self, group: int) -> None:
        """Delete a multicast group; one that is not there is no error: an answer may have come too late."""
        entity = encode_group(Group(group=group, replicas=frozenset()))
        try:
            self._client.write([v1.Update(type="DELETE", entity=entity)])
        except P4RuntimeError as error:
            if {failure.code for failure in error.failures} != {Code.NOT_FOUND}:
                raise
        self._groups.discard(group)

    def send(self, port: int, frame: bytes) -> None:
        """Send one frame into a port."""
        if port == CPU_PORT:
            metadata = {"egress_port": int.from_bytes(frame[:2]) >> 7, "unused": 0}
            self._client.send_packets([self.schema.encode_packet_out(frame[2:], metadata)])
        else:
            self.sockets[port - 1].send(frame)

    def collect(
        self, is_through: Callable[[list[tuple[int, bytes]]], bool], patience_s: float
    ) -> list[tuple[int, bytes]]:
        """Return the frames that come out until `is_through`, at most for `patience_s`."""
        frames: list[tuple[int, bytes]] = []
        if (code := self.child.process.poll()) is not None:
            raise ChildProcessError(f"simple_switch_grpc ended with {code}")
        deadline = time.monotonic() + patience_s
        while not is_through(frames) and time.monotonic() < deadline:
            time.sleep(0.0003)
            frames += self._receive()
        return frames

    def _receive(self) -> list[tuple[int, bytes]]:
        """Return the frames that have come out."""
        frames = []
        for port, end in enumerate(self.sockets, start=1):
            try:
                while True:
                    frames.append((port, receive_whole(end)))
            except BlockingIOError:
                pass
        while not self._packets_in.empty():
            message = self._packets_in.get()
            ingress_port = self.schema.decode_packet_in(message)["ingress_port"]
            frames.append((CPU_PORT, (ingress_port << 7).to_bytes(2) + message.payload))
        return frames

    def _write(self, kind: str, **entity: Any) -> None:
        self.write([v1.Update(type=kind, entity=v1.Entity(**entity))])

    def write(self, updates: Sequence[Any]) -> None:
        """Carry out p4.v1.Updates."""
        self._client.write(updates)


class Bmv2(Bmv2Program):
    """BMv2 with our own program."""

    def __init__(self, lanes_per_frame: int, *, offloads: bool = False) -> None:
        program = p4src.load(lanes_per_frame)
        self.lanes_per_frame = lanes_per_frame
        super().__init__(program.device_config, program.p4info, offloads=offloads)

    def events(self, counter: str, index: int) -> int:
        """Return how many packets a cell of a counter has counted."""
        [entity] = self._client.read([self.schema.counter_cell(counter, index)])
        return int(entity.counter_entry.data.packet_count)

    def frames(self, table: str, match: Sequence[int]) -> int:
        """Return how many packets an entry of exact matches has counted."""
        wanted = table, dict(zip(self._keys[table], match, strict=True))
        for entity in self._client.read([self.schema.direct_counters(table)]):
            if self.schema.decode_counted(entity.direct_counter_entry) == wanted:
                return int(entity.direct_counter_entry.data.packet_count)
        raise KeyError(wanted)

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Send one frame and return what comes out of it.

        Ingress handles the frames of a port in their order, and so does egress: a probe behind the frame shows that
        ingress is through, further ones at all ports that egress is, too.  What goes to the controller is awaited.
        """
        self.send(port, frame)
        if port == CPU_PORT or (frame[12:14] == ETHERTYPE_IPV4 and frame[KIND_AT : KIND_AT + 1] == HELLO):
            return self.collect(bool, ANSWER_S)
        if frame[12:14] == ETHERTYPE_ARP:  # which the drop simulator's tests send: probes might be lost, too
            return self.collect(bool, LOST_S)
        frames = self._probe([port])
        frames += self._probe(range(1, PORTS + 1))
        return [item for item in frames if not _answers_probe(item)]

    def _probe(self, ports: Iterable[int]) -> list[tuple[int, bytes]]:
        """Send a probe into each port; return all frames that come until each is answered."""
        for port in ports:
            self.send(port, PROBE)
        return self.collect(lambda frames: sum(map(_answers_probe, frames)) == len(list(ports)), ANSWER_S)


def receive_whole(end: socket.socket) -> bytes:
    """Return the next frame with the tag that the kernel has taken off; raises BlockingIOError when there is none."""
    frame: bytes
    frame, ancillary, _, _ = end.recvmsg(FRAME_BYTES, socket.CMSG_SPACE(AUXDATA.size), socket.MSG_DONTWAIT)
    for level, kind, data in ancillary:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, *_, tag, ethertype = AUXDATA.unpack(data)
            if status & HAS_TAG:
                return frame[:12] + struct.pack("!HH", ethertype, tag) + frame[12:]
    return frame


def _answers_probe(item: tuple[int, bytes]) -> bool:
    """Return whether a frame is ARP's answer to the prober."""
    return item[1][12:14] == ETHERTYPE_ARP and item[1][:6] == PROBER.mac.to_bytes(6)
