"""A world of switches and hosts: its records, and the time that passes in it."""

from __future__ import annotations

import contextlib
import ctypes
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import LocalError, UsageError
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.outlined import Outlined
from switchsum_switch.queues.parking import LOST
from switchsum_switch.queues.queues import PORTS
from switchsum_switch.queues.traffic_manager import TrafficManager
from switchsum_switch.wires.rows import LEAD_BYTES, row_stride

from . import loop
from .arena import aligned, enlarged
from .conditions import CableConditions, HostCost, HostTiming, SwitchTiming, check_spans
from .events import MOST_INDICES, TAILS
from .log import Log
from .records import FRAME, HEAD_BYTES, LINK, NEVER, NODE, NONE, PICOSECONDS, WORLD, Kind, Stop
from .switches import Places, Program, SwitchNode

EVENTS_AT_ONCE: Final = 500_000
"""Number of events after which the loop returns, so that Ctrl-C and other signals are heard."""
_CHUNKS_WITHOUT_HOSTS: Final = 10
"""Number of returns without work for any host, in a run that has no end. Then it is ended."""
_FEW_NODES: Final = 16
"""Nodes that fit a processor's caches, so that nothing needs to be fetched ahead for them."""
_FIRST_FRAMES: Final = 4096
"""Frames for which there is room at first; it is doubled when it may not be enough."""
MOST_BYTES: Final = 16 << 30
"""Memory of the frames that are on their way, if nothing else is said."""


class Storm(LocalError):
    """Switches flood each other, or pass frames round for ever."""


class NoLink(LocalError):
    """A program sends frames to a port without a link."""

    def __init__(self, node: int, port: int) -> None:
        super().__init__(f"switch {node} sends frames to port {port}, which has no link")
        self.node, self.port = node, port


class NativeHost(Protocol):
    """The native code that runs on a host."""

    most_frames: int
    """Most frames that it may send in one turn."""

    def facts(self) -> Mapping[str, int]:
        """Return the fields of this host's `NodeRecord`."""
        ...


class World:
    """Nodes by number, links by number, and the loop that moves frames between them."""

    def __init__(
        self, *, seed: int = 0, frame_bytes: int = 1514, most_bytes: int = MOST_BYTES, is_strict: bool = False
    ) -> None:
        """Make an empty world for frames of up to `frame_bytes`; chance depends on `seed` alone.

        If it is strict, a frame to a port without a link ends the run.
        """
        self.frame_bytes, self._is_strict = frame_bytes, is_strict
        self._seed, self._most_bytes = seed, most_bytes
        self.nodes: npt.NDArray[Any] = np.zeros(0, NODE)
        self.links: npt.NDArray[Any] = np.zeros(0, LINK)
        self._node_memory, self._link_memory = self.nodes, self.links
        self._ports: list[npt.NDArray[np.int64]] = []
        self._switches: dict[int, SwitchNode] = {}
        self._keep: list[object] = []
        self._record: npt.NDArray[Any] = np.zeros(1, WORLD)
        self._record[["failed", "free_frame", "free_row", "free_event"]] = NONE
        self._record["spare"] = 64
        self._record["frame_bytes"] = frame_bytes
        self._places = Places(self._record)
        self._stride = row_stride(frame_bytes)
        self._frames: npt.NDArray[Any] = np.zeros(0, FRAME)
        self._heads, self._rows = np.zeros(0, np.uint8), np.zeros(0, np.uint8)
        self._holders, self._next_row = (np.zeros(0, np.int64) for _ in range(2))
        self._events, self._heap = (np.zeros((0, 2), np.int64) for _ in range(2))
        self._tails = np.full((TAILS, 2), NONE)
        self._record["tails"] = address_of(self._tails)
        self._scratch = np.zeros(4, np.int64)
        self._assembly = np.zeros(self._stride, np.uint8)
        self.log = Log(self._record)
        self._grow_frames(_FIRST_FRAMES)
        self._grow_events(_FIRST_FRAMES)

    # Building.

    def add_switch(
        self,
        pipeline: Program,
        manager: TrafficManager | None = None,
        timing: SwitchTiming = SwitchTiming(),  # noqa: B008 - frozen
    ) -> int:
        """Add a switch that runs a program, with queues as `manager` has them; return its number."""
        number = self._add_node(Kind.SWITCH, PORTS, timing.cost)
        self._switches[number] = SwitchNode(pipeline, manager, timing)
        node = self.nodes[number]
        node["processing"] = _picoseconds(timing.processing_s)
        if timing.waiting_frames is not None:
            node["inbox_capacity"] = timing.waiting_frames
        return number

    def add_host(
        self,
        host: NativeHost,
        cost: HostCost = HostCost(),  # noqa: B008 - frozen
        links: int = 1,
        timing: HostTiming = HostTiming(),  # noqa: B008 - frozen
    ) -> int:
        """Add a host that runs native code, with so many links; return its number."""
        number = self._add_node(Kind.ENGINE, links, cost)
        node = self.nodes[number]
        if timing.batch_s:
            node["batch"], node["batch_at"], node["is_slow"] = _picoseconds(timing.batch_s), NONE, 1
        if timing.jumps:
            node["jumps"] = self._times(sorted(timing.jumps))
        for name, value in host.facts().items():
            node[name] = value
        self._record["spare"] = max(int(self._record["spare"][0]), host.most_frames + 64)
        self._keep.append(host)
        return number

    def add_listener(self) -> int:
        """Add a host whose frames Python reads; return its number."""
        self.log.is_used = True
        return self._add_node(Kind.LISTENER, 1, HostCost())

    def _add_node(self, kind: Kind, ports: int, cost: HostCost) -> int:
        number = len(self.nodes)
        if number == len(self._node_memory):
            self._node_memory = enlarged(self._node_memory, max(64, 2 * len(self._node_memory)))
        self.nodes = self._node_memory[: number + 1]
        self._ports.append(np.full(ports, NONE, np.int64))
        node = self.nodes[number]
        node["kind"], node["ports"], node["port_count"] = kind, address_of(self._ports[-1]), ports
        node["wakes_at"] = NEVER
        node["frame_cost"], node["byte_cost"] = _picoseconds(cost.frame_s), _picoseconds(cost.byte_s)
        node["is_slow"] = node["frame_cost"] + node["byte_cost"] > 0
        node["inbox_capacity"] = NEVER
        return number

    def pause(self, number: int, pauses: Sequence[tuple[float, float]]) -> None:
        """Let a node do nothing between times (from, until); raises UsageError."""
        check_spans("a pause", pauses)
        node = self.nodes[number]
        node["pauses"], node["is_slow"] = self._times(sorted(pauses)), 1

    def _times(self, pairs: Sequence[tuple[float, float]]) -> int:
        """Return the address of pairs of times, behind which one follows that never comes."""
        found = np.array([*([_picoseconds(at) for at in pair] for pair in pairs), [NEVER, NEVER]], np.int64)
        self._keep.append(found)
        return address_of(found)

    def connect(self, tail: int, port: int, head: int, head_port: int, link: CableConditions) -> int:
        """Lay one direction of a cable from a port of `tail` to a port of `head`; return the link's number."""
        ports = self._ports[tail]
        if not 0 <= port < len(ports):
            raise UsageError(f"there is no port {port}: ports are numbered from 0 to {len(ports) - 1}")
        if ports[port] != NONE:
            raise UsageError(f"port {port} has a link already")
        number = len(self.links)
        if number >= MOST_INDICES:
            raise UsageError(f"a simulation has at most {MOST_INDICES} links")
        if number == len(self._link_memory):
            self._link_memory = enlarged(self._link_memory, max(64, 2 * len(self._link_memory)))
        self.links = self._link_memory[: number + 1]
        record = self.links[number]
        for name, value in self._facts(link, number).items():
            record[name] = value
        if self.nodes[tail]["kind"] != Kind.SWITCH and (link.queue_bytes, link.queue_frames) != (None, None):
            record["special"] = 1
        record["tail"], record["to"], record["to_port"] = tail, head, head_port
        record["first"] = record["last"] = record["departing"] = NONE
        record["serves_at"] = NEVER
        ports[port] = number
        if self.nodes[tail]["kind"] != Kind.SWITCH and port == 0:
            self.nodes[tail]["link"] = number
        return number

    def _facts(self, link: CableConditions, number: int) -> dict[str, int | float]:
        chosen = np.array(sorted(link.lost_frames), np.int64)
        outages = np.array([[_picoseconds(at) for at in pair] for pair in sorted(link.outages)], np.int64)
        steps = np.array([[_picoseconds(at), round(link.rate_bps * by)] for at, by in sorted(link.steps)], np.int64)
        self._keep += [chosen, outages, steps]
        begins, length = link.burst or (0.0, 1.0)
        has_chance = link.loss or begins or link.late or link.twice
        is_plain = not (has_chance or link.bucket_bytes or len(chosen) or len(outages) or len(steps))
        return {
            "special": not is_plain,
            "bits_per_s": round(link.rate_bps),
            "overhead": link.overhead_bytes,
            "delay": _picoseconds(link.delay_s),
            "queue_bytes": NEVER if link.queue_bytes is None else link.queue_bytes,
            "queue_frames": NEVER if link.queue_frames is None else link.queue_frames,
            "mark_bytes": NEVER if link.mark_bytes is None else link.mark_bytes,
            "loss": link.loss,
            "burst_begins": begins,
            "burst_ends": 1.0 / length,
            "late": link.late,
            "late_by": _picoseconds(link.late_by_s),
            "bucket": round(link.bucket_bytes * 8 * PICOSECONDS / link.rate_bps),
            "burst_bits_per_s": round(link.burst_rate_bps) or 1,
            "seed": zlib.crc32(f"{self._seed} {number}".encode()),
            "chosen": address_of(chosen),
            "chosen_count": len(chosen),
            "outages": address_of(outages),
            "outage_count": len(outages),
            "twice": link.twice,
            "steps": address_of(steps) if len(steps) else 0,
            "step_count": len(steps),
        }

    def frame_at(self, start: int, body: int, length: int) -> bytes:
        """Return a frame whose first bytes a host is given at `start`, and the others at `body`."""
        head = int(self._frames[(start - LEAD_BYTES - int(self._record["heads"][0])) // HEAD_BYTES]["head"])
        return ctypes.string_at(start, head) + ctypes.string_at(body, length - head)

    def log_link(self, number: int, *, with_bytes: bool = False) -> None:
        """Note the frames that are put on a link from now on, with their bytes if that was ever asked for."""
        self.links[number]["logged"] = max(int(self.links[number]["logged"]), 2 if with_bytes else 1)
        self.log.is_used = True

    def queue(self, node: int, port: int, priority: int) -> Any:
        """Return the record of a queue between ingress and egress; None if packets do not wait there."""
        return self._switches[node].queue(port, priority) if node in self._switches else None

    # Running.

    @property
    def now_s(self) -> float:
        """The virtual time."""
        return float(self._record["now"][0]) / PICOSECONDS

    @property
    def events(self) -> int:
        """How many events were handled so far."""
        return int(self._record["handled"][0])

    @property
    def digest(self) -> str:
        """Digest of all arrivals so far, 16 hexadecimal digits: runs with the same digest are the same."""
        return f"{int(self._record['digest'][0]) & (1 << 64) - 1:016x}"

    @property
    def failed(self) -> int:
        """Number of the host that has given up; NONE: no host has."""
        return int(self._record["failed"][0])

    @property
    def frames_moved(self) -> int:
        """Frames that links have taken so far."""
        return int(self.links["entered"].sum())

    def queued(self, link: int) -> tuple[int, int]:
        """Return how many frames, and how many bytes, wait for a link now or are being sent."""
        self._share()
        loop.bring_up_to_date(address_of(self._record), link)
        record = self.links[link]
        return int(record["queued"] + record["waiting"]), int(record["queued_bytes"] + record["waiting_bytes"])

    @property
    def unfinished(self) -> int:
        """How many of the hosts that are waited for have not finished; negative: none is waited for."""
        return int(self._record["waiting"][0])

    def awaited(self, hosts: list[int]) -> int:
        """Return how many of some hosts are still waited for."""
        return int(self.nodes["is_waited_for"][hosts].sum())

    def finished_s(self, hosts: list[int]) -> float:
        """Return when the last of some hosts that were waited for finished."""
        return float(self.nodes["finished_at"][hosts].max()) / PICOSECONDS

    def wait_for(self, hosts: list[int], *, first: bool = False) -> None:
        """Let the next runs end when these hosts have finished what they do, or with `first` when one of them has.

        A host that has given up before is forgotten.
        """
        self.nodes["is_waited_for"] = 0
        self.nodes["is_waited_for"][hosts] = 1
        self._record["waiting"] = min(len(hosts), 1) if first else len(hosts)
        self._record["failed"] = NONE

    def set_timer(self, switch: int, timer: npt.NDArray[np.int64]) -> None:
        """Let a switch be called without a frame at the time in `timer`, in picoseconds, whenever it is set there."""
        self.nodes[switch]["own"] = address_of(timer)

    def fail(self, node: int) -> None:
        """End the run, because a node has raised an error that its owner keeps."""
        self._record["failed"] = node

    def wake(self, host: int, at_s: float | None = None) -> None:
        """Let a node look whether it has something to do, now or at a time."""
        at = int(self._record["now"][0]) if at_s is None else _picoseconds(at_s)
        self._share()
        _WAKE(address_of(self._record), host, at)

    def send(self, host: int, frame: bytes, at_s: float | None = None) -> None:
        """Let a host send a frame, now or at a time; raises UsageError for a frame that is too long or in the past."""
        now = int(self._record["now"][0])
        at = now if at_s is None else _picoseconds(at_s)
        if len(frame) > self.frame_bytes or not frame:
            raise UsageError(f"a frame has 1 to {self.frame_bytes} bytes here, not {len(frame)}")
        if at < now:
            raise UsageError(f"cannot send a frame at {at_s:g} s: the simulation is already at {self.now_s:g} s")
        link = int(self._ports[host][0])
        if link == NONE:
            raise UsageError("the host has no link")
        if int(self._record["free_frames"][0]) < int(self._record["spare"][0]) + 1:
            self._grow_frames(2 * len(self._frames))
        used, capacity = (int(self._record[name][0]) for name in ("event_count", "event_capacity"))
        if used + int(self._record["spare"][0]) >= capacity:
            self._grow_events(2 * capacity)
        data = np.frombuffer(frame, np.uint8)
        self._share()
        _SCHEDULE(address_of(self._record), link, at, address_of(data), len(frame))

    def run(self, until_s: float | None = None, *, most: int | None = None) -> Stop:
        """Let time pass until a time, until the hosts that are waited for have finished, or nothing happens any more.

        Returns why it ended.  `most` events are handled at most; None: no limit.  Raises Storm and NoLink.
        """
        until = NEVER if until_s is None else _picoseconds(until_s)
        if not self._record["waiting"][0]:
            self._record["waiting"] = -1  # nobody is waited for
        left, quiet = NEVER if most is None else most, 0
        with self._programs():
            while True:
                self._share()
                before, turns, astray = self.events, int(self._record["host_turns"][0]), self.nodes["astray"].copy()
                stop = Stop(loop.run(address_of(self._record), until, min(left, EVENTS_AT_ONCE)))
                left -= self.events - before
                if self._is_strict:
                    self._check_ports(astray)
                quiet = quiet + 1 if stop == Stop.OVER and self._record["host_turns"][0] == turns else 0
                if until == NEVER and quiet > _CHUNKS_WITHOUT_HOSTS:
                    raise Storm(
                        f"no host has received a frame for {quiet * EVENTS_AT_ONCE:,} events: do frames circulate "
                        "in a loop of links?"
                    )
                if stop == Stop.FULL:
                    self._grow()
                elif stop == Stop.LOG:
                    self.log.read()
                elif stop == Stop.IDLE:
                    if until_s is not None:
                        self._record["now"] = until
                    return stop
                elif stop != Stop.OVER or self._is_over(until) or left <= 0:
                    return stop

    def _check_ports(self, before: npt.NDArray[np.int64]) -> None:
        """Raise NoLink for a switch that has sent frames to a port without a link since there were so many."""
        for node in np.flatnonzero(self.nodes["astray"] > before).tolist():
            raise NoLink(node, int(self.nodes[node]["astray_port"]))

    def _is_over(self, until: int) -> bool:
        return bool(self._record["now"][0] >= until)

    @contextlib.contextmanager
    def _programs(self) -> Iterator[None]:
        """Hold the programs' locks, and tell the loop how to call them."""
        record = self._record
        with contextlib.ExitStack() as stack:
            spare = places = 0
            for number, switch in self._switches.items():
                stack.enter_context(switch.pipeline.lock)
                switch.ask_for_queues(self._ports[number], self.links)
                copies = switch.prepare(self.nodes[number], self.frame_bytes)
                stack.callback(switch.pipeline.park_in, 0)
                spare = max(spare, min(copies, 1 << 16) + 64)
                places = max(places, copies) if switch.holds else places
            record["spare"], record["place_spare"] = max(int(record["spare"][0]), spare), places
            self._places.fit(self._holding, self.frame_bytes)
            yield
            for number, switch in self._switches.items():
                self.nodes[number]["overflowed"] += switch.pool[LOST]
                switch.pool[LOST] = 0

    @property
    def _holding(self) -> list[SwitchNode]:
        """The switches whose packets wait between ingress and egress."""
        return [switch for switch in self._switches.values() if switch.holds]

    def _share(self) -> None:
        """Write the addresses of arrays that may have moved."""
        record = self._record
        spare = int(record["spare"][0])
        if spare * 2 > len(self._frames):
            self._grow_frames(spare * 4)
        if spare * 2 > int(record["event_capacity"][0]):
            self._grow_events(spare * 4)
        record["links"], record["link_count"] = address_of(self.links), len(self.links)
        record["nodes"], record["node_count"] = address_of(self.nodes), len(self.nodes)
        record["looks_ahead"] = len(self.nodes) > _FEW_NODES
        record["scratch"], record["assembly"] = address_of(self._scratch), address_of(self._assembly)
        self.log.share(spare + 1, self.frame_bytes)

    def _grow(self) -> None:
        record = self._record
        if record["free_frames"][0] < record["spare"][0]:
            self._grow_frames(2 * len(self._frames))
        if record["event_capacity"][0] - record["event_count"][0] < record["spare"][0]:
            self._grow_events(2 * int(record["event_capacity"][0]))
        if record["free_places"][0] < record["place_spare"][0]:
            count = int(record["place_count"][0])
            if 2 * self._places.bytes > self._most_bytes or 2 * count > MOST_INDICES:
                self._end_storm(count)
            self._places.grow(self._holding, self.frame_bytes)

    def _end_storm(self, frames: int) -> NoReturn:
        raise Storm(
            f"{frames:,} frames are on their way at {self.now_s:.9f} s, and their memory is limited to "
            f"{self._most_bytes / 1e9:.3g} GB: do switches flood each other?"
        )

    def _grow_frames(self, count: int) -> None:
        """Make room for `count` frames."""
        record, before = self._record, len(self._frames)
        size = count * (self._stride + HEAD_BYTES + FRAME.itemsize + 16)
        if size > self._most_bytes or count > MOST_INDICES:
            self._end_storm(before)
        more = count - before
        behind = np.arange(before + 1, count + 1)  # each free one leads to the next, the last one to those there were
        self._frames = enlarged(self._frames, count)
        self._frames["next"][before:] = behind
        self._frames["next"][-1] = record["free_frame"][0]
        self._next_row = np.concatenate([self._next_row, behind])
        self._next_row[-1] = record["free_row"][0]
        self._heads = enlarged(self._heads, count * HEAD_BYTES)
        self._holders = np.concatenate([self._holders, np.zeros(more, np.int64)])
        self._rows = rows = enlarged(self._rows, count * self._stride)
        record["free_frame"] = record["free_row"] = before
        record["free_frames"] += more
        record["frames"], record["frame_capacity"] = address_of(self._frames), count
        record["heads"], record["rows"], record["stride"] = address_of(self._heads), address_of(rows), self._stride
        record["holders"], record["next_row"] = address_of(self._holders), address_of(self._next_row)

    def _grow_events(self, count: int) -> None:
        """Make room for `count` events."""
        record, before = self._record, len(self._events)
        behind = np.arange(before + 1, count + 1)
        self._events = np.concatenate([self._events, np.stack([behind, behind], 1)])
        self._events[-1, 1] = record["free_event"][0]
        # Four times that are below the same one share a cache line: times 1, 5, 9 begin one.
        heap = aligned(16 * count, 16).view(np.int64).reshape(-1, 2)
        heap[:before] = self._heap
        self._heap = heap
        record["free_event"], record["event_capacity"] = before, count
        record["events"], record["heap"] = address_of(self._events), address_of(heap)


def _picoseconds(seconds: float) -> int:
    return round(seconds * PICOSECONDS)


_WAKE: Final[Outlined] = loop.wake
_SCHEDULE: Final[Outlined] = loop.schedule
