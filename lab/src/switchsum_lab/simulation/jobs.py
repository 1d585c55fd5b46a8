"""A job on a network: the trees that the planner finds, the entries that the controller writes, the real workers.

The controller's gRPC and threads stay outside: its pure functions say what each switch gets (`Forest.branches`), and
the entries go straight into the tables of the switches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import numpy.typing as npt

from switchsum import p4src, topologies
from switchsum.planning import trees
from switchsum_controller.jobs.slots import SlotRange
from switchsum_controller.switches.switch_session import Build
from switchsum_controller.tables.entries import Entry, Group, SwitchState
from switchsum_controller.tables.names import FORWARDING, IDENTITY, STATIONS
from switchsum_controller.trees.fabric import MOST_TREES
from switchsum_controller.trees.forest import AggregationSwitch, AttachedWorker, Forest, Reserved, switches_of
from switchsum_host.api.join import SWITCH_TIMEOUT_S
from switchsum_host.engine.config import EngineConfig
from switchsum_host.engine.operation import Operation
from switchsum_host.links.watching import LOOK_S
from switchsum_protocol.errors import SwitchsumError, UsageError
from switchsum_protocol.frame import AGGREGATION_PORT, FRAME_BYTES, MOST_WORKERS, payload_bytes
from switchsum_protocol.member_rpc import DEFAULT_TIMEOUT_S, MOST_IN_FLIGHT
from switchsum_switch.api.switch import Switch
from switchsum_switch.wires.headers import ETHERNET_BYTES, Address

from .arena import Arena
from .conditions import CableConditions, HostCost, HostTiming, SwitchTiming, instant
from .controller import Attachment, Membership, SimulatedController, fabric_of
from .network import Network
from .placement import Placement, behind, host_address, merged, place, rates_bps
from .rails import Rails
from .records import Stop
from .workers import Worker
from .world import MOST_BYTES

Arrays = Sequence[npt.NDArray[Any]]
"""One of each rank."""
SLOTS: Final = 1024
"""Slots of the program."""
TIMING: Final = SwitchTiming(waits_behind=True)
"""Of switches: the program does not see its queues, and links mark frames for it (`CableConditions.mark_bytes`)."""
_LEAST_WINDOW: Final = 64
_MARGIN: Final = 1.25
"""A window is so many times what a round trip holds."""
_SWITCH: Final = Address(mac=0x02_00_00_FF_00_01, ip=0x0A_FF_00_01, port=AGGREGATION_PORT)
_FORWARDER: Final = Address(mac=0x02_00_00_FF_00_02, ip=0x0A_FF_00_02, port=AGGREGATION_PORT)
"""Of switches that only forward what is for another one."""
_GROWTH_BYTES: Final = 0xFFFF
_SLICE_S: Final = 0.1
"""Virtual time after which Python asks the engines whether they have given up."""
_JOB: Final = 7
_EPOCH: Final = 1
_FIRST_GROUP: Final = 2
_PATIENCE: Final = {"timeout_s": DEFAULT_TIMEOUT_S, "switch_timeout_s": SWITCH_TIMEOUT_S}
"""Patience of ranks that a controller looks after, as in `connect`."""


def build(
    planned: topologies.Network,
    conditions: CableConditions,
    *,
    lanes: int,
    mtu: int = 1500,
    seed: int = 0,
    most_bytes: int = MOST_BYTES,
    timing: SwitchTiming = TIMING,
) -> Network:
    """Return a network of a topology's switches, which run our program, and the cables between them; no hosts yet.

    Rates are those of the topology; all else is as `conditions` say.  With `timing=SwitchTiming()` the program marks
    frames by the depth of its queues, as it does elsewhere; the simulation is slower then.
    """
    program = p4src.load(lanes)
    longest = max(FRAME_BYTES + payload_bytes(lanes), mtu + ETHERNET_BYTES)
    network = Network(seed=seed, frame_bytes=longest, most_bytes=most_bytes)
    for name in planned.switches:
        switch = network.switch(name, Switch(program.device_config), timing)
        write(switch, _identity(_SWITCH))
    for cable in merged(planned):
        if set(cable.ends) <= set(planned.switches):
            network.link(*cable.ends, _at_rate(conditions, cable))
    return network


def attach(network: Network, cable: topologies.Cable, conditions: CableConditions, *, port: int | None = None) -> None:
    """Connect a host with its switch."""
    far, host = cable.ends if cable.ends[0] in network.switches else cable.ends[::-1]
    down = _at_rate(conditions, cable)
    up_mbit = cable.mbit if cable.up_mbit is None else cable.up_mbit
    # The host does not mark what it sends, and drops nothing unless its queue has a limit of its own.
    own = replace(
        down,
        rate_bps=up_mbit * 1e6,
        queue_bytes=conditions.host_queue_bytes,
        queue_frames=conditions.host_queue_frames,
        mark_bytes=None,
    )
    network.link(host, far, own, port=port, back=down)


def _at_rate(conditions: CableConditions, cable: topologies.Cable) -> CableConditions:
    delay_s = conditions.delay_s if cable.delay_ms is None else cable.delay_ms / 1e3
    return replace(conditions, rate_bps=cable.mbit * 1e6, delay_s=delay_s)


def _identity(own: Address) -> Entry:
    params = {"mac": own.mac, "ip": own.ip, "port": own.port, "growth_bytes": _GROWTH_BYTES}
    return Entry(table=IDENTITY, action="SwitchIngress.identify", params=params, is_default=True)


def _station(mac: int, port: int) -> Entry:
    return Entry(table=STATIONS, match={"mac": mac}, action=f"{FORWARDING}.forward", params={"port": port})


def write(switch: Switch, item: Entry | Group) -> None:
    """Carry out what the controller would write by P4Runtime."""
    if isinstance(item, Group):
        switch.multicast.set(item.group, sorted((one.port, one.instance) for one in item.replicas))
        return
    table = switch.tables[item.table]
    if item.is_default:
        table.set_default(item.action, **item.params)
    else:
        table.insert(item.match, item.action, **item.params)


def controlled(
    network: Network,
    planned: topologies.Network,
    hosts: Sequence[str],
    *,
    lanes: int,
    seed: int = 0,
    fallback: str = "",
    shared_slots: int = 0,
    root: str = "",
    away_s: float | None = None,
) -> SimulatedController:
    """Return a controller of a network's switches, for jobs on these hosts.

    It waits for a switch for `away_s` before it moves jobs to others; None: as long as a real one.

    The switch `fallback` is an aggregator, and no part of a tree; `shared_slots` of each other one are shared.  With a
    `root`, all jobs are added there, and the switches in between are not the controller's: they only forward.
    """
    switches = tuple(name for name in planned.switches if name != fallback)
    cables = tuple(cable for cable in planned.cables if fallback not in cable.ends)
    adding = replace(planned, switches=switches, cables=cables)
    placed = behind(adding, hosts, root) if root else place(adding, hosts, SLOTS)
    for name, way in placed.ways.items():
        write(network.switches[name], _identity(_FORWARDER))
        write(network.switches[name], _station(_SWITCH.mac, network.port_to(name, way[1])))
    program, fabric = p4src.load(lanes), fabric_of(network, placed, lanes, fallback, shared_slots)
    build = Build(lanes_per_frame=lanes, device_config=program.device_config, p4info=program.p4info)
    return SimulatedController(network, build, _SWITCH, fabric, placed, seed=seed, away_s=away_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a job has of a network beside other jobs: as if it had it alone, by default."""

    number: int = 0
    """Number of the job. As many jobs have their tables' entries in front of it."""
    first_slot: int = 0
    first_host: int = 0
    """Hosts of the jobs in front of it, which have the addresses below."""
    most_slots: int = SLOTS
    controller: SimulatedController | None = None
    """Of all jobs of the network. None: they have none, or this job, which is alone, has its own."""
    shares_slots: bool = False
    """Its slots are the shared ones. The controller has a fallback."""
    own_slots: int = 0
    """Slots that it has beside those."""
    placed: Placement | None = None
    """Where its hosts are, over trees that were planned beside those of the other jobs. None: as if it were alone, or
    as the controller has all jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a collective went."""

    seconds: float
    """Seconds of virtual time."""
    is_complete: bool
    """False: its time was over, or it was interrupted."""
    finished: int
    """Workers that have finished."""
    error: SwitchsumError | None = None
    """What the first of its ranks that gave up raised; None: none has."""


class Job:
    """Real workers on the hosts of a network, over the trees that the planner packs."""

    def __init__(
        self,
        network: Network,
        planned: topologies.Network,
        hosts: Sequence[str],
        conditions: CableConditions,
        *,
        lanes: int,
        window_slots: int | None = None,
        cost: HostCost = HostCost(),  # noqa: B008 - frozen
        timings: Mapping[str, HostTiming] = MappingProxyType({}),
        has_controller: bool = False,
        share: Share = Share(),
        **options: Any,
    ) -> None:
        """Plan the trees, place the workers and write the entries; `options` go to each `EngineConfig`.

        `timings` are those of hosts by name, where they are not as usual.

        With a controller the ranks join it, and it looks after the job as time passes; without, it is as it would be
        then, and nothing is looked after.  Hosts with rails have a controller.  Raises UsageError, and TopologyError
        where no tree serves these hosts.
        """
        if not 2 <= len(hosts) <= MOST_WORKERS:
            raise UsageError(f"a job has 2 to {MOST_WORKERS} workers, not {len(hosts)}")
        self.network, self.lanes, self._share = network, lanes, share
        self.hosts, controller = list(hosts), share.controller
        given = share.placed if controller is None else controller.placed
        placed = self._placed = given or place(planned, hosts, SLOTS)
        self.window_slots = window_slots or min(self._fitting_window(conditions), share.most_slots)
        most = min(share.most_slots, MOST_IN_FLIGHT if placed.shares_mbit else SLOTS)
        if not len(placed.trees) <= self.window_slots <= most:
            raise UsageError(
                f"a window has {len(placed.trees)} slots (one for each tree) to {most}, not {self.window_slots}"
            )
        shares = trees.share(self.window_slots, [tree.rate_mbit for tree in placed.trees])
        self.trees = [replace(tree, slots=slots) for tree, slots in zip(placed.trees, shares, strict=True)]
        """Over which the job is added."""
        self._neighbours: dict[str, list[int]] = {}
        for rank, host in enumerate(hosts):
            self._neighbours.setdefault(self.trees[0].parents[host], []).append(rank)
        ports = self._ports()
        # With rails a slot's cell is on the switches of one of them, and only a controller has a job leave one.
        if controller is None and (has_controller or placed.shares_mbit):
            if share != Share():
                raise UsageError("jobs beside one another that fail, or have rails, have the same controller")
            controller = controlled(network, planned, hosts, lanes=lanes, seed=options.get("seed", 0))
        self.controller = controller
        self._membership = None if controller is None else self._join(controller, ports, options)
        self.workers: list[Worker] = []
        """Workers by rank."""
        self.numbers: list[int] = []
        """Numbers of their nodes."""
        self._rails: list[Rails] = []
        self._looks_s = math.inf
        self._gave_up: tuple[float, SwitchsumError] | None = None
        arena = Arena()
        for rank, host in enumerate(hosts):
            self.workers.append(Worker(self._config(rank, options), arena))
            self._attach(rank, host, conditions, ports[rank], cost, timings.get(host, HostTiming()))
        if self.controller is None:
            self._write_entries([at for [at] in ports])

    def _fitting_window(self, conditions: CableConditions) -> int:
        """Return how many slots keep all links of the hosts busy."""
        levels, rates = self._placed.trees[0].levels, rates_bps(self._placed.rails)
        slots = sum(fitting_window(conditions, rate, self.lanes, levels) for rate in rates)
        return min(slots, MOST_IN_FLIGHT) if len(rates) > 1 else slots

    def _ports(self) -> list[list[int]]:
        """Return the ports at which each rank's host will be attached, behind those that its switches have already."""
        here = {name: len(self.network.ports(name)) for name in self.network.switches}
        found: list[list[int]] = []
        for host in self.hosts:
            found.append([])
            for rail in range(len(self._placed.rails)):
                leaf = self._placed.leaf(rail, host)
                here[leaf] += 1
                found[-1].append(here[leaf])
        return found

    def _attach(
        self,
        rank: int,
        host: str,
        conditions: CableConditions,
        ports: Sequence[int],
        cost: HostCost,
        timing: HostTiming,
    ) -> None:
        """Connect a rank's worker with its switch, or its switches."""
        network, worker, links = self.network, self.workers[rank], len(ports)
        rails = self._rails_of(rank, worker, links) if links > 1 else None
        self.numbers.append(network.native_host(host, rails or worker, cost, links=links, timing=timing))
        for link, port in enumerate(ports):
            attach(network, self._placed.rails[link][host], conditions, port=port)
        near = host
        for name in self._placed.way(0, host)[:-1]:
            write(network.switches[name], _station(self._address(rank).mac, network.port_to(name, near)))
            near = name
        if rails is not None and self._membership is not None:
            names = [f"{host}->{self._placed.leaf(link, host)}" for link in range(links)]
            rails.begin(self._membership.ready(rank), [network.links[name].number for name in names])

    def _rails_of(self, rank: int, worker: Worker, links: int) -> Rails:
        assert self._membership is not None
        addresses = [self._address(rank, link) for link in range(links)]
        self._rails.append(Rails(worker, addresses, self._membership.listeners[rank]))
        self._looks_s = 0.0
        return self._rails[-1]

    def _join(
        self, controller: SimulatedController, ports: Sequence[Sequence[int]], options: Mapping[str, Any]
    ) -> Membership:
        """Have the ranks join a controller."""
        attachments = [
            [self._attachment(link, host, port, self._address(rank, link)) for link, port in enumerate(ports[rank])]
            for rank, host in enumerate(self.hosts)
        ]
        timeout_s = options.get("timeout_s", DEFAULT_TIMEOUT_S)
        return controller.join(
            attachments,
            slots=self.window_slots,
            rates=self._placed.shares_mbit,
            timeout_s=timeout_s,
            shares_slots=self._share.shares_slots,
            own_slots=self._share.own_slots,
        )

    def _attachment(self, link: int, host: str, port: int, address: Address) -> Attachment:
        """Return where a host's hello comes in, which is at a port of its own switch, or where another one forwards."""
        *others, switch = self._placed.way(link, host)
        return Attachment(
            switch=switch, port=self.network.port_to(switch, others[-1]) if others else port, address=address
        )

    def fail(self, name: str, at_s: float) -> None:
        """Let a switch, or a link that is called `tail->head`, fail for good; raises UsageError.

        The job has a controller.
        """
        if self.controller is None:
            raise UsageError("a job without a controller cannot survive failures: pass has_controller=True")
        one, arrow, far = name.partition("->")
        if arrow:
            self.controller.fail_link(one, far, at_s)
        else:
            self.controller.fail_switch(name, at_s)

    @property
    def moved(self) -> tuple[str, ...]:
        """What the controller has changed after failures."""
        return () if self._membership is None else tuple(self._membership.moved)

    @property
    def due_s(self) -> float:
        """When `look_after` is to be called next."""
        return math.inf if self.controller is None else min(self.controller.due_s, self._looks_s)

    def look_after(self) -> None:
        """Let the controller do what is due, and the ranks hear of it and look after their links."""
        now = self.network.now
        if self.controller is None or self._membership is None:
            return
        if self.controller.due_s <= now:
            self.controller.turn()
        brings_back = self._membership.brings_back()
        has_moved = [False] * len(self.workers)
        if self._looks_s <= now:
            self._looks_s = instant(now + LOOK_S)
            has_moved = [rails.look(now) for rails in self._rails]
        for worker, number, is_elsewhere in zip(self.workers, self.numbers, has_moved, strict=True):
            if brings_back or is_elsewhere:
                worker.engine.restarted(now)
                self.network.world.wake(number)

    def _config(self, rank: int, options: Mapping[str, Any]) -> EngineConfig:
        return EngineConfig(
            rank=rank,
            world_size=len(self.hosts),
            lanes_per_frame=self.lanes,
            switch=_SWITCH,
            own=self._address(rank),
            **(self._facts(rank) if self._membership is None else self._membership.facts(rank)),
            **{"granularity_s": 0.0, **({} if self.controller is None else _PATIENCE), **options},
        )

    def _facts(self, rank: int) -> dict[str, Any]:
        """Return what a controller would give to a rank."""
        here = self._neighbours[self.trees[0].parents[self.hosts[rank]]]
        return {
            "places": tuple(here) if len(self.network.switches) > 1 else (),
            "trees": tuple(tree.slots for tree in self.trees) if len(self.trees) > 1 else (),
            "job": _JOB + self._share.number,
            "epoch": _EPOCH,
            "cookie": self._cookie(rank),
            "first_slot": self._share.first_slot,
            "window_slots": self.window_slots,
        }

    def _write_entries(self, ports: Sequence[int]) -> None:
        """Give each switch what the controller would write for this job."""
        network = self.network
        names = list(dict.fromkeys(name for tree in self.trees for name in switches_of(tree)))
        reserved: dict[str, Reserved] = {name: Reserved() for name in names}
        first, group = self._share.first_slot, _FIRST_GROUP + MOST_TREES * self._share.number
        for number, tree in enumerate(self.trees):
            for name in switches_of(tree):
                reserved[name].slots[number] = SlotRange(first=first, count=tree.slots)
                reserved[name].groups[number] = group + number
            first += tree.slots
        switches = {
            name: AggregationSwitch(
                address=_SWITCH,
                ports={far: port for port, far in network.ports(name).items() if far in network.switches},
                lanes_per_frame=self.lanes,
            )
            for name in names
        }
        workers = [
            AttachedWorker(
                switch=self.trees[0].parents[host],
                port=ports[rank],
                address=self._address(rank),
                cookie=self._cookie(rank),
            )
            for rank, host in enumerate(self.hosts)
        ]
        forest = Forest(job=_JOB + self._share.number, trees=self.trees, reserved=reserved, switches=switches)
        cookies = itertools.count(self._cookie(MOST_WORKERS))
        for name, branches in forest.branches(workers, epoch=_EPOCH, draw_cookie=cookies.__next__).items():
            # Branches of several trees share entries: where the results of a member go is one.
            state = SwitchState.of(item for branch in branches for item in branch.items())
            for members in state.groups.values():
                write(network.switches[name], members)
            for entry in state.entries.values():
                write(network.switches[name], entry)

    def _address(self, rank: int, link: int = 0) -> Address:
        return host_address(self._share.first_host + rank, link)

    def _cookie(self, rank: int) -> int:
        return 0xC0FF_EE00_0000_0001 + (rank << 16) + (self._share.number << 48)

    def allreduce(self, arrays: Arrays, *, until_s: float | None = None, **options: Any) -> Ended:
        """Add arrays, one of each rank, in place; let time pass until all have the sum, or it is `until_s`.

        Ranks may have the same array: it has the sum afterwards, and each rank has read its part of it before.
        `options` are those of `begin`.  Raises what an engine gives up with.
        """
        return add_together([self], [arrays], until_s=until_s, **options)[0]

    def begin(self, arrays: Arrays, *, operator: str = "sum", lanes: str = "int32") -> None:
        """Begin to add arrays, one of each rank."""
        now = self.network.now
        known: dict[Any, Operation] = {}
        for worker, number, array in zip(self.workers, self.numbers, arrays, strict=True):
            # An engine copies the record of an operation when it takes it, so that ranks may have the same one.
            alike = array.dtype, array.shape
            if alike not in known:
                known[alike] = Operation.of(array, operator=operator, lanes=lanes)
            worker.begin(known[alike], array.reshape(-1), now)
            self.network.world.wake(number)

    def ended(self, began_s: float) -> Ended:
        """Return how far it is with what was begun at a time."""
        done = self.finished
        if self._gave_up is not None:
            at_s, error = self._gave_up
            return Ended(seconds=at_s - began_s, is_complete=False, finished=done, error=error)
        is_complete = done == len(self.workers)
        end_s = self.network.world.finished_s(self.numbers) if is_complete else self.network.now
        return Ended(seconds=end_s - began_s, is_complete=is_complete, finished=done)

    def note_finished(self) -> int:
        """Return how many workers have finished since this was asked last; raises what one gave up with."""
        return sum(len(worker.finished(self.network.now)) for worker in self.workers)

    def give_up(self, error: SwitchsumError) -> None:
        """Note that the job is over: one of its ranks has given up."""
        self._gave_up = self.network.now, error

    @property
    def finished(self) -> int:
        """How many workers have finished what was begun last."""
        return len(self.workers) - self.network.world.awaited(self.numbers)

    @property
    def repeats(self) -> int:
        """Frames that workers have sent again."""
        return sum(worker.repeats for worker in self.workers)


def add_together(
    jobs: Sequence[Job], arrays: Sequence[Arrays], *, until_s: float | None = None, **options: Any
) -> list[Ended]:
    """Let jobs of one network add at the same time; return how each went.

    See `Job.allreduce`.  All of them have the same controller, or none has one.  If a rank gives up, its job is over,
    and the others go on; where there is one job, what it gave up with is raised.
    """
    until_s = None if until_s is None else instant(until_s)
    first, world = jobs[0], jobs[0].network.world
    began = world.now_s
    world.wait_for([number for job in jobs for number in job.numbers])
    for job, own in zip(jobs, arrays, strict=True):
        job.begin(own, **options)
    left = {job: len(job.workers) for job in jobs}
    while any(left.values()):
        for job in jobs:
            job.look_after()
        end = min(world.now_s + _SLICE_S, *(job.due_s for job in jobs))
        stop = first.network.run(end if until_s is None else min(end, until_s))
        for job in [job for job, count in left.items() if count > 0]:
            try:
                left[job] -= job.note_finished()
            except SwitchsumError as error:
                if len(jobs) == 1:
                    raise
                job.give_up(error)
                left[job] = 0
        if (stop is Stop.IDLE and first.controller is None) or (until_s is not None and world.now_s >= until_s):
            break
    return [job.ended(began) for job in jobs]


def fitting_window(
    conditions: CableConditions, rate_bps: float, lanes: int, levels: int, *, least: int = _LEAST_WINDOW
) -> int:
    """Return how many slots keep links of a rate busy: what a round trip holds, and a quarter more; `least` or more."""
    bits = 8 * (FRAME_BYTES + payload_bytes(lanes) + conditions.overhead_bytes)
    # A frame is sent anew by each switch, up and down; those of a slot's members come one after the other.
    round_trip_s = 2 * levels * (conditions.delay_s + bits / rate_bps)
    return min(SLOTS, max(least, math.ceil(_MARGIN * round_trip_s * rate_bps / bits)))
