"""Real BMv2 as an engine: simple_switch_grpc on veth pairs, in a network namespace of its own; needs root."""

from __future__ import annotations

import ctypes
import os
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from switchsum import p4src
from switchsum.controller.client import P4RuntimeClient, Pipeline
from switchsum.controller.schema import Schema, encode_group
from switchsum.controller.state import Entry, Group, Replica
from switchsum.launch.bmv2 import SEE_INTERFACES
from switchsum.launch.children import Child, Children
from switchsum.launch.wires import run
from switchsum.protocol.p4runtime import parse_p4info, v1
from switchsum.protocol.wire import Reason
from switchsum.testing.rig import CPU_PORT

PORTS = 4
QUIET_S = 0.015
"""How long nothing must come for a frame to be through."""
START_S = 20.0
FRAME_BYTES = 1 << 16
CLONE_NEWNET = 0x4000_0000
ETH_P_ALL = 3
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


class Bmv2:
    """simple_switch_grpc with ports 1 to 4, whose other ends are raw sockets of the test."""

    def __init__(self, lanes: int, *, offloads: bool = False) -> None:
        self._children = Children()
        self._scratch = tempfile.TemporaryDirectory(prefix="switchsum-test-")
        self._groups: set[int] = set()
        self._packets_in: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.lanes = lanes
        holder = self._children.start("namespace", ["unshare", "--net", "sleep", "infinity"])
        self._pid = holder.process.pid
        self._await_namespace()
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
        program = p4src.load(lanes)
        p4info = parse_p4info(program.p4info)
        self.schema = Schema(p4info)
        self._pipeline = Pipeline(p4info=p4info, device_config=program.device_config, cookie=1)
        self._keys = {table.preamble.name: [field.name for field in table.match_fields] for table in p4info.tables}
        self._params = {action.preamble.name: [param.name for param in action.params] for action in p4info.actions}
        self.load()

    def __enter__(self) -> Bmv2:
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

    def _await_namespace(self) -> None:
        deadline = time.monotonic() + START_S
        own = os.readlink("/proc/self/ns/net")
        while time.monotonic() < deadline:
            try:
                if os.readlink(f"/proc/{self._pid}/ns/net") != own:
                    return
            except OSError:
                pass
            time.sleep(0.005)
        raise TimeoutError("no network namespace")

    def _open_sockets(self) -> list[socket.socket]:
        sockets = []
        for port in range(1, PORTS + 1):
            end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            end.bind((f"h{port}", ETH_P_ALL))
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
            sockets.append(end)
        return sockets

    def _start(self) -> Child:
        ports = [word for port in range(1, PORTS + 1) for word in ("-i", f"{port}@s{port}")]
        command = [
            "simple_switch_grpc",
            "--no-p4",
            *ports,
            "--log-level",
            "off",
            "--",
            "--grpc-server-addr",
            self._address,
        ]
        command += ["--cpu-port", str(CPU_PORT)]
        inside = ["nsenter", f"--net=/proc/{self._pid}/ns/net", "--", *SEE_INTERFACES]
        return self._children.start("bmv2", [*inside, *command], prefix=True, quiet=True)

    def _connect(self) -> None:
        deadline = time.monotonic() + START_S
        while not Path(self._scratch.name, "p4runtime").exists():
            if time.monotonic() > deadline or self.child.process.poll() is not None:
                raise TimeoutError("simple_switch_grpc did not start")
            time.sleep(0.02)
        self._client.connect()

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
        """Delete a multicast group."""
        entity = encode_group(Group(group=group, replicas=frozenset()))
        self._client.write([v1.Update(type="DELETE", entity=entity)])
        self._groups.discard(group)

    def events(self, counter: str, reason: Reason) -> int:
        """Return how many packets a counter has for a reason."""
        for entity in self._client.read([self.schema.counter_cells(counter)]):
            if entity.counter_entry.index.index == reason:
                return int(entity.counter_entry.data.packet_count)
        raise KeyError(reason)

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Send one frame and return what comes out until nothing more does."""
        self.send(port, frame)
        return self.collect()

    def send(self, port: int, frame: bytes) -> None:
        """Send one frame into a port."""
        if port == CPU_PORT:
            metadata = {"egress_port": int.from_bytes(frame[:2]) >> 7, "unused": 0}
            self._client.send_packets([self.schema.encode_packet_out(frame[2:], metadata)])
        else:
            self.sockets[port - 1].send(frame)

    def collect(self, quiet_s: float = QUIET_S) -> list[tuple[int, bytes]]:
        """Return the frames that come out of the ports until none has come for a while."""
        frames: list[tuple[int, bytes]] = []
        if (code := self.child.process.poll()) is not None:
            raise ChildProcessError(f"simple_switch_grpc ended with {code}")
        last = time.monotonic()
        while time.monotonic() < last + quiet_s:
            for port, end in enumerate(self.sockets, start=1):
                try:
                    frame, source = end.recvfrom(FRAME_BYTES, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    continue
                if source[2] != socket.PACKET_OUTGOING:
                    frames.append((port, frame))
                    last = time.monotonic()
            while not self._packets_in.empty():
                message = self._packets_in.get()
                ingress_port = self.schema.decode_packet_in(message)["ingress_port"]
                frames.append((CPU_PORT, (ingress_port << 7).to_bytes(2) + message.payload))
                last = time.monotonic()
            time.sleep(0.0005)
        return frames

    def _write(self, kind: str, **entity: Any) -> None:
        self._client.write([v1.Update(type=kind, entity=v1.Entity(**entity))])
