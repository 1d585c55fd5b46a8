"""Switches and hosts that run now, in one process and without root: real frames over UDP on this machine.

    h1 ---- 1 s1 2 ---- 1 s2 2 ---- h2          each line is a pair of UDP sockets (ports/peers.py)

Each switch runs on a thread of its own and serves P4Runtime, so that controllers can connect.  A host is a Python
object with one socket, a capture file or a TAP device (ends.py), or any program that uses the host's end of the cable.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from switchsum_switch.errors import TransportError, UsageError
from switchsum_switch.wires.messages import grow_buffers

from ..api.switch import Switch
from ..daemon.daemon import Config, SwitchProcess
from ..ports.base import CPU_PORT, MAX_FRAME_BYTES, PortCounter, PortCounters, PortGroup, PortTable
from ..ports.packet import PacketPorts
from ..ports.peers import SCHEME, PeerPorts, read_peer
from ..program.v1model import DROP_PORT
from ..queues.queues import PORTS
from .ends import End

ANY: Final = "127.0.0.1:0"
"""Address of a P4Runtime server on any free TCP port of the loopback."""
Cables = Mapping[int, socket.socket | str]
"""Of a switch, by port: the socket of our end, or the name of a UDP peer or an interface."""


class LiveHost:
    """A host of a network: it sends frames, and keeps those that come.

    Example:
        >>> host.send(frame)  # doctest: +SKIP
        >>> [answer] = host.receive()  # doctest: +SKIP

    """

    def __init__(self, name: str) -> None:
        self.name = name
        """Its name in the network."""
        self.link: socket.socket | None = None
        """The host's end of its cable; None: it has no link yet, or another program has this end."""
        self.end: End | None = None
        """A capture file or a TAP device, which sends and takes the host's frames; None: your program does."""

    def send(self, *frames: bytes) -> None:
        """Send frames.

        Args:
            frames: Whole Ethernet frames of 14 to 10,240 bytes.

        Raises:
            UsageError: The host has no link, or another program has its end.
            TransportError: A frame is too long for a datagram.

        """
        link = self._linked()
        for frame in frames:
            try:
                link.send(frame)
            except ConnectionRefusedError:  # about an earlier frame: the switch has ended
                continue
            except OSError as error:
                raise TransportError(f"{self.name} cannot send {len(frame)} bytes: {error.strerror}") from error

    def receive(self, count: int = 1, timeout_s: float = 5.0) -> list[bytes]:
        """Wait for frames.

        Args:
            count: How many to wait for.
            timeout_s: How long to wait for all of them, in seconds.

        Returns:
            The frames in the order in which they came; fewer than `count` if the time is over.

        Raises:
            UsageError: The host has no link, or another program has its end.

        """
        link, frames, until = self._linked(), list[bytes](), time.monotonic() + timeout_s
        while len(frames) < count and select.select([link], [], [], max(0.0, until - time.monotonic()))[0]:
            try:
                frames.append(link.recv(MAX_FRAME_BYTES))
            except ConnectionRefusedError:
                continue
        return frames

    def _linked(self) -> socket.socket:
        if self.link is None:
            raise UsageError(f"host {self.name} has no link here")
        if self.end is not None:
            raise UsageError(f"host {self.name} is {self.end.text}, which sends and takes its frames")
        return self.link


class _LiveSwitch(SwitchProcess):
    """A switch whose ports are ends of cables."""

    def __init__(self, config: Config, cables: Cables) -> None:
        self._cables = cables
        super().__init__(config)

    def open_groups(self, config: Config, table: PortTable) -> Iterator[PortGroup]:
        """Yield the group of the cables."""
        interfaces = {
            port: end for port, end in self._cables.items() if isinstance(end, str) and not end.startswith(SCHEME)
        }
        if interfaces:
            yield PacketPorts(table, interfaces, deep=config.deep_buffers)
        if peers := {port: end for port, end in self._cables.items() if port not in interfaces}:
            yield PeerPorts(table, peers)


@dataclass(slots=True, kw_only=True)
class _Node:
    """A switch before and while it runs."""

    switch: Switch | None
    """None: a controller loads a program."""
    listen: str
    device_id: int
    cpu_port: int
    cables: dict[int, socket.socket | str] = field(default_factory=dict)
    counters: PortCounters | None = None
    """Those of the ports, also when the switch has ended; None: it has not run."""
    process: _LiveSwitch | None = None
    thread: threading.Thread | None = None
    failure: BaseException | None = None

    def run(self) -> None:
        """Move frames until the network ends."""
        assert self.process is not None
        try:
            self.process.run()
        except BaseException as error:  # `close` raises it
            self.failure = error


class LiveNetwork:
    """A network that runs in this process; use it in a `with` statement.

    Example:
        >>> with LiveNetwork() as network:  # doctest: +SKIP
        ...     s1 = network.switch("s1", Switch.from_file("router.json", "router.p4info.txtpb"))
        ...     h1, h2 = network.host("h1"), network.host("h2")
        ...     network.link("h1", "s1", port=1)
        ...     network.link("h2", "s1", port=2)
        ...     s1.tables["ipv4"].insert({"hdr.ipv4.dst": "10.0.0.0/8"}, "forward", port=2)
        ...     network.start()
        ...     h1.send(frame)
        ...     assert h2.receive() == [routed_frame]

    """

    def __init__(self) -> None:
        self.hosts: dict[str, LiveHost] = {}
        """The hosts by name."""
        self.outside: dict[str, str] = {}
        """The hosts that are other programs, and the link of each: an interface, or `udp:HOST:PORT/HOST:PORT` with the
        host's end last."""
        self._beyond: dict[tuple[str, int], str] = {}
        self._nodes: dict[str, _Node] = {}
        self._running = False
        self._threads: list[threading.Thread] = []
        """Those of hosts."""
        self._stopped = -1
        """Descriptor that these threads watch."""
        self._failures: list[BaseException] = []

    @property
    def switches(self) -> dict[str, Switch]:
        """The switches that were given a program, by name; their tables may be written while the network runs."""
        return {name: node.switch for name, node in self._nodes.items() if node.switch is not None}

    def switch(
        self, name: str, switch: Switch, *, listen: str = ANY, device_id: int | None = None, cpu_port: int = CPU_PORT
    ) -> Switch:
        """Add a switch.  Its clock runs from now on.

        Args:
            name: Name in the network.
            switch: A switch with its program, as tests use it.
            listen: Address of its P4Runtime server, `host:port` (port 0: any) or `unix:path`.
            device_id: P4Runtime's device id; None: 0 for the first switch, 1 for the next.
            cpu_port: Port of packet-ins and packet-outs, which gets no link.

        Returns:
            The switch.

        Raises:
            UsageError: The name is taken, or the network runs already.

        """
        self._add(name, switch, listen, device_id, cpu_port)
        switch.clock.run()
        return switch

    def bare_switch(
        self, name: str, *, listen: str = ANY, device_id: int | None = None, cpu_port: int = CPU_PORT
    ) -> None:
        """Add a switch without a program: a controller loads one by P4Runtime.

        Args:
            name: Name in the network.
            listen: As in `switch`.
            device_id: As in `switch`.
            cpu_port: As in `switch`.

        Raises:
            UsageError: As in `switch`.

        """
        self._add(name, None, listen, device_id, cpu_port)

    def _add(self, name: str, switch: Switch | None, listen: str, device_id: int | None, cpu_port: int) -> None:
        self._check_name(name)
        device_id = len(self._nodes) if device_id is None else device_id
        self._nodes[name] = _Node(switch=switch, listen=listen, device_id=device_id, cpu_port=cpu_port)

    def host(self, name: str) -> LiveHost:
        """Add a host, which gets one link.

        Args:
            name: Name in the network.

        Returns:
            The host.

        Raises:
            UsageError: The name is taken, or the network runs already.

        """
        self._check_name(name)
        self.hosts[name] = LiveHost(name)
        return self.hosts[name]

    def attach(self, host: str, end: End) -> None:
        """Let a capture file or a TAP device send and take the frames of a host.

        Args:
            host: Name of the host, whose link is one of this process.
            end: A `PcapEnd` or a `TapEnd` of `switchsum_switch.live.ends`, which belongs to the network from then on.

        Raises:
            UsageError: There is no such host, it has an end already, or the network runs.

        Example:
            >>> network.attach("h1", PcapEnd(Path("frames.pcap")))  # doctest: +SKIP

        """
        self._check_open()
        if host not in self.hosts:
            raise UsageError(f"there is no host {host}")
        if self.hosts[host].end is not None:
            raise UsageError(f"host {host} has two ends")
        self.hosts[host].end = end

    def link(
        self,
        one: str,
        other: str,
        *,
        port: int | None = None,
        other_port: int | None = None,
        through: str | None = None,
    ) -> None:
        """Connect two nodes, one of which is a switch.

        Args:
            one: Name of a node.
            other: Name of another one.
            port: Of the switch, if one of the two is a host; else of `one`.  None: its next free port, from 1.
            other_port: Of `other`, if both are switches.
            through: For a host that is another program: `udp:HOST:PORT/HOST:PORT`, the switch's end and the
                host's; or an interface, which needs CAP_NET_RAW.  None: the host is this Python object.

        Raises:
            UsageError: There is no such node or port, the port or the host has a link already, both are hosts, or the
                network runs.
            TransportError: There is no socket for the link.

        """
        self._check_open()
        for name in (one, other):
            if name not in self._nodes and name not in self.hosts:
                raise UsageError(f"there is no node {name}")
        if one == other:
            raise UsageError(f"both ends of a link are {one}")
        if one in self.hosts and other in self.hosts:
            raise UsageError(f"{one} and {other} are hosts, but one end of a link must be a switch")
        if one in self.hosts:
            one, other = other, one
        taken = self._free_port(one, port)
        if other in self._nodes:
            if through is not None:
                raise UsageError(f"{one} and {other} are switches of this network: their link has no address")
            others = self._free_port(other, other_port)
            self._nodes[one].cables[taken], self._nodes[other].cables[others] = _cable()
            self._beyond[one, taken], self._beyond[other, others] = other, one
            return
        host = self.hosts[other]
        if other in self._beyond.values():
            raise UsageError(f"host {other} has a link already")
        if through is not None and through.startswith(SCHEME):
            read_peer(through)
        self._beyond[one, taken] = other
        if through is None:
            self._nodes[one].cables[taken], host.link = _cable()
        else:
            self._nodes[one].cables[taken] = self.outside[other] = through

    def start(self) -> None:
        """Open the P4Runtime servers and let frames pass.

        Raises:
            UsageError: The network runs already.
            SwitchsumError: An address cannot be used; nothing is left open.

        """
        self._check_open()
        self._running = True
        try:
            for node in self._nodes.values():
                config = Config(
                    listen=node.listen, device_id=node.device_id, switch=node.switch, cpu_port=node.cpu_port
                )
                node.process = _LiveSwitch(config, node.cables)
                node.counters = node.process.ports.table.counters
            for name, node in self._nodes.items():
                node.thread = threading.Thread(target=node.run, name=f"switch {name}", daemon=True)
                node.thread.start()
            self._start_hosts()
        except BaseException:
            self.close()
            raise

    @property
    def nodes(self) -> list[str]:
        """The names of all switches."""
        return list(self._nodes)

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each switch's P4Runtime server, while the network runs."""
        return {name: node.process.address for name, node in self._nodes.items() if node.process is not None}

    def counts(self) -> dict[str, dict[int, dict[str, int]]]:
        """Return the counts of each port.  They are final when the network has ended.

        Returns:
            For each switch and port, a dict with `rx_frames`, `rx_bytes`, `rx_drops`, `tx_frames`, `tx_bytes` and
            `tx_drops`.

        """
        found: dict[str, dict[int, dict[str, int]]] = {}
        for name, node in self._nodes.items():
            found[name] = {
                port: {
                    one.name.lower(): 0 if node.counters is None else int(node.counters[port, one])
                    for one in PortCounter
                }
                for port in sorted(node.cables)
            }
        return found

    def beyond(self, switch: str, port: int) -> str:
        """Return the node at the other end of a switch's port.

        Args:
            switch: Name of the switch.
            port: One of its ports.

        Returns:
            The name of the node.

        Raises:
            UsageError: The port has no link.

        """
        if (switch, port) not in self._beyond:
            raise UsageError(f"port {port} of {switch} has no link")
        return self._beyond[switch, port]

    def close(self) -> None:
        """End the switches and hosts.  A second call does nothing.

        Raises:
            SwitchsumError: A switch or host had ended with this error before.

        """
        failures = self._end_hosts()
        for node in self._nodes.values():
            if node.process is not None and node.thread is not None:
                node.process.stop()
        for node in self._nodes.values():
            if node.thread is not None:
                node.thread.join()
            if node.process is not None:
                node.process.close()
            for cable in node.cables.values():
                if isinstance(cable, socket.socket):
                    cable.close()
            failures += [] if node.failure is None else [node.failure]
            node.process = node.thread = node.failure = None
        if failures:
            raise failures[0]

    def _start_hosts(self) -> None:
        """Start the threads of capture files and TAP devices."""
        self._stopped = os.eventfd(0, os.EFD_CLOEXEC)
        for host in self.hosts.values():
            if host.end is None:
                continue
            if host.link is None:
                raise UsageError(f"host {host.name}, {host.end.text}, has no link here")
            thread = threading.Thread(target=self._run_end, args=(host.end, host.link), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _end_hosts(self) -> list[BaseException]:
        """End the threads of hosts, and close what hosts have; return why threads have ended before."""
        if self._threads:
            os.eventfd_write(self._stopped, 1)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        if self._stopped >= 0:
            os.close(self._stopped)
            self._stopped = -1
        for host in self.hosts.values():
            if host.link is not None:
                host.link.close()
            if host.end is not None:
                host.end.close()
        failures, self._failures = self._failures, []
        return failures

    def _run_end(self, end: End, link: socket.socket) -> None:
        try:
            end.run(link, self._stopped)
        except BaseException as error:  # `close` raises it
            self._failures.append(error)

    def __enter__(self) -> LiveNetwork:
        """Return the network, which does not run yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the network."""
        self.close()

    def _check_open(self) -> None:
        if self._running:
            raise UsageError("the network runs already: add nodes and links before `start`")

    def _check_name(self, name: str) -> None:
        self._check_open()
        if name in self._nodes or name in self.hosts:
            raise UsageError(f"two nodes have the name {name}")

    def _free_port(self, name: str, port: int | None) -> int:
        """Return a port of a switch that has no link yet; raises UsageError."""
        cables, reserved = self._nodes[name].cables, (self._nodes[name].cpu_port, DROP_PORT)
        if port is None:
            port = next((number for number in range(1, PORTS) if number not in (*cables, *reserved)), PORTS)
        if port in cables:
            raise UsageError(f"port {port} of {name} has two links")
        if not 0 <= port < PORTS or port in reserved:
            raise UsageError(f"{name} has no port {port} for a link")
        return port


def _cable() -> tuple[socket.socket, socket.socket]:
    """Return two sockets that are connected to each other; raises TransportError."""
    made = list[socket.socket]()
    try:
        for _ in range(2):
            made.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            made[-1].bind(("127.0.0.1", 0))
        made[0].connect(made[1].getsockname())
        made[1].connect(made[0].getsockname())
    except OSError as error:
        for end in made:
            end.close()
        raise TransportError(f"cannot open a UDP socket: {error.strerror}") from error
    for end in made:
        grow_buffers(end)
    return made[0], made[1]
