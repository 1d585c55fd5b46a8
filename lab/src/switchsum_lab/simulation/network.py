"""A network by names: switches with any program, hosts, links; writers of P4 programs begin here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import UsageError
from switchsum_switch.api.switch import Switch
from switchsum_switch.kernels.loading import address_of

from .conditions import CableConditions, HostCost, HostTiming, SwitchTiming, check_spans
from .log import Noted
from .python_switch import Plane, PythonSwitch
from .records import NEVER, PICOSECONDS, Fate, Stop
from .traffic import Traffic
from .world import MOST_BYTES, NativeHost, NoLink, World

_LARGEST_FRAME = 9216


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A frame that was put on a watched link."""

    at_s: float
    departs_s: float
    """When the link has sent the frame's last bit; if the frame was dropped, when it came."""
    length: int
    dropped: bool
    """The queue was full."""
    lost: bool
    """The frame was lost on its way."""
    frame: bytes
    """Empty unless the link is watched with bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNow:
    """A queue between ingress and egress at an instant; the packet that is being sent has left it."""

    frames: int = 0
    bytes: int = 0
    dropped: int = 0
    """Packets that found the queue full since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """Frames that a switch could not send or take, since the start."""

    no_link: int
    """Number of packets whose program chose a port without a link."""
    too_long: int
    """Number of frames that grew longer than frames may be here, or for whose copies there was no memory."""
    processor: int
    """Number of frames that found too many others waiting for the processor (`SwitchTiming.waiting_frames`)."""


class LinkView:
    """One direction of a cable, and the queues of the port that sends, as they are now.

    Example:
        >>> network.links["h1->s1"].frames  # doctest: +SKIP
        12

    """

    def __init__(
        self, world: World, number: int, name: str, conditions: CableConditions, tail: tuple[int, int]
    ) -> None:
        self.name = name
        """Name of the link, `tail->head`."""
        self.conditions = conditions
        self._home, self.number, self._tail = world, number, tail
        self._outage: npt.NDArray[np.int64] | None = None
        self._outages = np.zeros((0, 2), np.int64)

    def _count(self, name: str) -> int:
        return int(self._home.links[self.number][name])

    @property
    def frames(self) -> int:
        """Frames that were put on it: those that it has sent, and those that wait behind egress."""
        return self._count("entered")

    @property
    def bytes(self) -> int:
        """Their bytes."""
        return self._count("bytes")

    @property
    def dropped(self) -> int:
        """Frames that found the queue full."""
        return self._count("dropped")

    @property
    def lost(self) -> int:
        """Frames that were lost on the way."""
        return self._count("lost")

    @property
    def marked(self) -> int:
        """Frames that were marked (ECN)."""
        return self._count("marked")

    @property
    def most_queued(self) -> int:
        """Most frames that were ever in the queue, the one that is being sent among them."""
        return self._count("most_queued")

    @property
    def most_queued_bytes(self) -> int:
        """Most bytes that were ever in the queue."""
        return self._count("most_queued_bytes")

    @property
    def mean_wait_s(self) -> float:
        """How long its frames have waited until their first bit was sent, on average."""
        return self._count("waited") / PICOSECONDS / max(1, self.frames)

    def queue(self, priority: int = 0) -> QueueNow:
        """Return what waits between ingress and egress in one of the port's queues.

        All is 0 for programs that do not look at their queues, because their packets wait behind egress (`queued`).
        Raises UsageError if there is no such queue.
        """
        return _queue_now(self._home.queue(*self._tail, priority))

    @property
    def queued(self) -> int:
        """Frames in the queue now, the one that is being sent among them."""
        return self._home.queued(self.number)[0]

    @property
    def queued_bytes(self) -> int:
        """Their bytes."""
        return self._home.queued(self.number)[1]

    def take_down(self, at_s: float) -> None:
        """Let the link be down from a time on: what is on the cable then, or comes later, is lost.

        Raises UsageError for a link that has outages already.
        """
        at, record = round(at_s * PICOSECONDS), self._home.links[self.number]
        if self._outage is not None:  # both ends of the cable may fail: it is down from the first time on
            self._outage[0] = min(self._outage[0], at)
            return
        if record["outage_count"]:
            raise UsageError(f"{self.name} already has outages: give all of them at once")
        self._outage = np.array([at, NEVER], np.int64)
        record["outages"], record["outage_count"], record["special"] = address_of(self._outage), 1, 1

    def interrupt(self, *spans: tuple[float, float]) -> None:
        """Let the link be down between times (from, until) in seconds: what is on the cable then is lost.

        Raises UsageError for a link that has outages already, and if one ends before it begins.
        """
        check_spans("an outage", spans)
        record = self._home.links[self.number]
        if record["outage_count"]:
            raise UsageError(f"{self.name} already has outages: give all of them at once")
        self._outages = np.array([[round(at * PICOSECONDS) for at in span] for span in sorted(spans)], np.int64)
        record["outages"], record["outage_count"], record["special"] = address_of(self._outages), len(spans), 1

    def watch(self, *, with_bytes: bool = False) -> None:
        """Note each frame from now on, so that `sent` and `depth` have it; also its bytes, for a capture."""
        self._home.log_link(self.number, with_bytes=with_bytes)

    @property
    def sent(self) -> list[Sent]:
        """The frames that were put on this link since it is watched, in order."""
        self._home.log.read()
        return [_sent(one) for one in self._home.log.noted if one.link == self.number]

    def depth(self) -> list[tuple[float, int]]:
        """Return the bytes in the queue over time, as (seconds, bytes) at each change; the link must be watched."""
        changes = [
            change
            for one in self.sent
            if not one.dropped
            for change in ((one.at_s, 1, one.length), (one.departs_s, 0, -one.length))
        ]
        total, found = 0, []
        for at_s, _, change in sorted(changes):
            total += change
            found.append((at_s, total))
        return found


class Host:
    """A host that Python writes and reads for."""

    def __init__(self, world: World, number: int, name: str) -> None:
        self.name = name
        self._home, self.number = world, number

    def send(self, frame: Any, at: float | None = None) -> None:
        """Send a frame.

        Args:
            frame: Bytes, or a Scapy packet.
            at: When, in seconds of virtual time; None: now.

        Raises:
            UsageError: The frame is too long or empty, or the time is over.

        """
        self._home.send(self.number, bytes(frame), at)

    @property
    def received(self) -> list[tuple[float, bytes]]:
        """The frames that have come, as (seconds, frame)."""
        self._home.log.read()
        return [(one.at_s, one.frame) for one in self._home.log.noted if one.node == self.number]


class Network:
    """Hosts, switches and links in virtual time.

    Example:
        >>> network = Network(seed=1)
        >>> first, second = network.host("h1"), network.host("h2")
        >>> switch = network.switch("s1", Switch.from_file("forward.json"))  # doctest: +SKIP
        >>> network.link("h1", "s1", port=1, conditions=CableConditions(rate_bps=1e9))  # doctest: +SKIP
        >>> network.link("h2", "s1", port=2)  # doctest: +SKIP
        >>> first.send(frame, at=1e-3)  # doctest: +SKIP
        >>> network.run(until=2e-3)  # doctest: +SKIP
        >>> second.received  # doctest: +SKIP
        [(0.00102, b'...')]

    """

    def __init__(
        self,
        *,
        seed: int = 0,
        frame_bytes: int = _LARGEST_FRAME,
        most_bytes: int = MOST_BYTES,
        open_ports: bool = False,
    ) -> None:
        """Make an empty network.

        Args:
            seed: All chance comes from it: the same seed gives the same run.
            frame_bytes: The longest frame.
            most_bytes: Most memory that frames on their way may take.
            open_ports: A frame to a port without a link is dropped and counted (`discarded`), as in BMv2.  Otherwise
                it ends the run.

        """
        self.world = World(seed=seed, frame_bytes=frame_bytes, most_bytes=most_bytes, is_strict=not open_ports)
        self.switches: dict[str, Switch] = {}
        """The switches with a P4 program by name; their tables, registers and counters are those of the moment."""
        self.python_switches: dict[str, PythonSwitch] = {}
        """The switches that are written in Python, by name."""
        self.hosts: dict[str, Host] = {}
        self.links: dict[str, LinkView] = {}
        """Each direction of each link, as `tail->head`."""
        self._numbers: dict[str, int] = {}
        self._ports: dict[str, dict[int, str]] = {}
        self._most_links: dict[str, int] = {}
        """Most links of a host."""

    def host(self, name: str) -> Host:
        """Add a host that sends what Python gives it, and keeps what comes."""
        self._name(name, self.world.add_listener())
        made = self.hosts[name] = Host(self.world, self._numbers[name], name)
        return made

    def native_host(
        self,
        name: str,
        host: NativeHost,
        cost: HostCost = HostCost(),  # noqa: B008 - frozen
        *,
        links: int = 1,
        timing: HostTiming = HostTiming(),  # noqa: B008 - frozen
    ) -> int:
        """Add a host that runs native code, and has so many links; return its number."""
        self._name(name, self.world.add_host(host, cost, links, timing))
        self._most_links[name] = links
        return self._numbers[name]

    def traffic(self, name: str, traffic: Traffic) -> Traffic:
        """Add a host that sends frames by itself, or counts what comes; it begins when it has its link and time passes.

        Raises UsageError if another node is called so.
        """
        self.world.wake(self.native_host(name, traffic))
        return traffic

    def switch(
        self,
        name: str,
        switch: Switch,
        timing: SwitchTiming = SwitchTiming(),  # noqa: B008 - frozen
    ) -> Switch:
        """Add a switch with a program of yours; its clock is the network's from now on.

        Args:
            name: What it is called.
            switch: Its tables, registers and groups may be written at any time between runs.  Rates and lengths that
                `switch.queue(port)` has hold beside those of the port's link.
            timing: How long frames are in it beside the time in queues.

        Raises:
            UsageError: Another node is called so.

        """
        self._name(name, self.world.add_switch(switch.pipeline, switch.traffic_manager, timing))
        self.switches[name] = switch
        switch.clock.stop(at_s=self.now)
        return switch

    def python_switch(
        self,
        name: str,
        plane: Plane,
        timing: SwitchTiming = SwitchTiming(),  # noqa: B008 - frozen
    ) -> PythonSwitch:
        """Add a switch that is a Python object: `plane.process(port, frame)` returns the frames that leave.

        Args:
            name: What it is called.
            plane: The object, a `DataPlane` or a `TimedPlane`.  Frames that it makes wait on their links, and what it
                computes takes no time.
            timing: How long frames are in it beside the time in queues.

        Returns:
            The switch as the network has it.

        Raises:
            UsageError: Another node is called so, or the timing has queues between ingress and egress.

        Example:
            >>> network.python_switch("s1", Hub())  # doctest: +SKIP

        """
        switch = PythonSwitch(plane)
        if timing.has_queues:
            raise UsageError("a switch in Python has no egress, before which packets could wait")
        self._name(name, self.world.add_switch(switch, timing=timing))
        self.python_switches[name] = switch
        switch.on_error = partial(self.world.fail, self._numbers[name])
        switch.now_s = lambda: self.now
        self.world.set_timer(self._numbers[name], switch.timer)
        return switch

    def pause(self, name: str, *spans: tuple[float, float]) -> None:
        """Let a switch or a host do nothing between times (from, until) in seconds; what comes waits for it.

        Links go on: a host's own queue empties.  A second call replaces the first one.

        Raises:
            UsageError: There is no such node, or a pause ends before it begins.

        """
        if name not in self._numbers:
            raise UsageError(f"there is no node {name}")
        self.world.pause(self._numbers[name], spans)

    def _name(self, name: str, number: int) -> None:
        if name in self._numbers:
            raise UsageError(f"two nodes are called {name}")
        self._numbers[name] = number
        self._ports[name] = {}

    def link(
        self,
        one: str,
        other: str,
        conditions: CableConditions = CableConditions(),  # noqa: B008 - frozen
        *,
        port: int | None = None,
        other_port: int | None = None,
        back: CableConditions | None = None,
    ) -> None:
        """Connect two nodes.

        Args:
            one: Name of a node.
            other: Name of another one.
            conditions: What the link is like.
            port: Of the switch, if one of the two is a host; else of `one`.  None: its next free port, from 1.
            other_port: Of `other`, if both are switches.
            back: What the direction from `other` to `one` is like; None: the same.

        Raises:
            UsageError: There is no such node or port, or the port has a link already.

        """
        for name in (one, other):
            if name not in self._numbers:
                raise UsageError(f"there is no node {name}")
        if one == other:
            raise UsageError(f"both ends of a link are {one}")
        if not self._forwards(one) and not self._forwards(other):
            raise UsageError(f"{one} and {other} are hosts, but one end of a link must be a switch")
        if self._forwards(one) and not self._forwards(other):
            ports = self._port(one, port), self._port(other, None)
        elif self._forwards(other) and not self._forwards(one):
            ports = self._port(one, None), self._port(other, port)
        else:
            ports = self._port(one, port), self._port(other, other_port)
        numbers = self._numbers[one], self._numbers[other]
        first, second = zip(numbers, ports, strict=True)
        self._lay(f"{one}->{other}", first, second, conditions)
        self._lay(f"{other}->{one}", second, first, back or conditions)
        self._ports[one][ports[0]], self._ports[other][ports[1]] = other, one

    def _forwards(self, name: str) -> bool:
        """Tell whether a node is a switch."""
        return name in self.switches or name in self.python_switches

    def _port(self, name: str, port: int | None) -> int:
        if not self._forwards(name):
            if (used := len(self._ports[name])) >= self._most_links.get(name, 1):
                raise UsageError(f"{name} has {used} link{'s' * (used > 1)} already, and no more")
            return used
        if port is None:
            port = next(number for number in range(1, 1 << 16) if number not in self._ports[name])
        if port in self._ports[name]:
            raise UsageError(f"port {port} of {name} has a link already, to {self._ports[name][port]}")
        return port

    def _lay(self, name: str, tail: tuple[int, int], head: tuple[int, int], conditions: CableConditions) -> None:
        number = self.world.connect(*tail, *head, conditions)
        while name in self.links:  # parallel links
            name += "'"
        self.links[name] = LinkView(self.world, number, name, conditions, tail)

    def ports(self, name: str) -> Mapping[int, str]:
        """Return the neighbour behind each port of a node."""
        return self._ports[name]

    def port_to(self, name: str, neighbour: str) -> int:
        """Return the port of a node that leads to a neighbour; raises UsageError."""
        for port, far in self._ports[name].items():
            if far == neighbour:
                return port
        raise UsageError(f"no link leads from {name} to {neighbour}")

    def discarded(self, name: str) -> Discarded:
        """Return how many frames a switch could not send or take, by the reason; raises KeyError for no node."""
        node = self.world.nodes[self._numbers[name]]
        return Discarded(no_link=int(node["astray"]), too_long=int(node["overflowed"]), processor=int(node["refused"]))

    def number_of(self, name: str) -> int:
        """Return the number of a node."""
        return self._numbers[name]

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self.world.now_s

    @property
    def digest(self) -> str:
        """Of all frames that have arrived so far, and when: equal runs have equal digests."""
        return self.world.digest

    def run(self, until: float | None = None, *, most_events: int | None = None) -> Stop:
        """Let time pass.

        Args:
            until: A time in seconds; None: until nothing happens any more.
            most_events: So many events are handled at most.

        Returns:
            Why it ended.

        Raises:
            Storm: More frames are on their way than there is memory for, or switches pass frames round for ever.
            UsageError: The time is over, or a program sends frames to a port without a link.
            Exception: Whatever a switch in Python has raised.

        """
        if until is not None and until < self.now:
            raise UsageError(f"cannot run until {until:g} s: the simulation is already at {self.now:g} s")
        for name, python in self.python_switches.items():  # between runs anybody may have set `until`
            if python.error is None and (due := python.due()) != NEVER:
                self.world.wake(self._numbers[name], max(self.now, due / PICOSECONDS))
        try:
            return self.world.run(until, most=most_events)
        except NoLink as error:
            [name] = [name for name, number in self._numbers.items() if number == error.node]
            raise UsageError(
                f"{name} sends frames to port {error.port}, which has no link: Network(open_ports=True) drops them"
            ) from None
        finally:
            for switch in self.switches.values():
                switch.clock.stop(at_s=self.now)
            for made in self.python_switches.values():
                if made.error is not None:
                    raise made.error

    def busiest(self) -> Iterable[LinkView]:
        """Return the links, the one with the longest queue first."""
        return sorted(self.links.values(), key=lambda link: -link.most_queued_bytes)


def _queue_now(record: Any) -> QueueNow:
    if record is None:
        return QueueNow()
    return QueueNow(frames=int(record["count"]), bytes=int(record["bytes"]), dropped=int(record["dropped"]))


def _sent(one: Noted) -> Sent:
    return Sent(
        at_s=one.at_s,
        departs_s=one.departs_s,
        length=one.length,
        dropped=one.fate == Fate.DROPPED,
        lost=one.fate == Fate.LOST,
        frame=one.frame,
    )
