"""A job on a network: the trees that the planner finds, the entries that the controller writes, the real workers.

The controller's gRPC and threads stay outside: its pure functions say what each switch gets (`Forest.branches`), and
the entries go straight into the tables of the switches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy.typing as npt

from switchsum import p4src
from switchsum.controller.jobs.slots import SlotRange
from switchsum.controller.switches.session import Build
from switchsum.controller.tables.entries import Entry, Group, SwitchState
from switchsum.controller.tables.names import IDENTITY
from switchsum.controller.trees.forest import Forest, Reserved, Seat, Site, switches_of
from switchsum.host.api.join import SWITCH_TIMEOUT_S
from switchsum.host.engine.config import EngineConfig
from switchsum.host.engine.operation import Operation
from switchsum.planning import topology, trees
from switchsum.protocol.errors import UsageError
from switchsum.protocol.frame import AGGREGATION_PORT, ETHERNET_BYTES, FRAME_BYTES, MOST_WORKERS, payload_bytes
from switchsum.protocol.member_rpc import DEFAULT_TIMEOUT_S
from switchsum.protocol.wire import Address
from switchsum.switch.switch import Switch

from .arena import Arena
from .conditions import HostCost, Link, instant
from .controller import Door, SimulatedController
from .network import Network
from .records import Stop
from .workers import Worker
from .world import MOST_BYTES

SLOTS: Final = 1024
"""Of the program."""
_LEAST_WINDOW: Final = 64
_MARGIN: Final = 1.25
"""A window is so many times what a round trip holds."""
_SWITCH: Final = Address(mac=0x02_00_00_FF_00_01, ip=0x0A_FF_00_01, port=AGGREGATION_PORT)
_GROWTH_BYTES: Final = 0xFFFF
_SLICE_S: Final = 0.1
"""Virtual time after which Python asks the engines whether they have given up."""
_JOB: Final = 7
_EPOCH: Final = 1
_FIRST_GROUP: Final = 2
_PATIENCE: Final = {"timeout_s": DEFAULT_TIMEOUT_S, "switch_timeout_s": SWITCH_TIMEOUT_S}
"""Of ranks that a controller looks after, as `connect` has it."""


def host_address(rank: int) -> Address:
    """Return the address of the host of a rank."""
    return Address(mac=0x02_00_00_00_00_00 + rank + 1, ip=0x0A_00_00_00 + rank + 1, port=40_000)


def build(
    planned: topology.Network,
    conditions: Link,
    *,
    lanes: int,
    mtu: int = 1500,
    seed: int = 0,
    most_bytes: int = MOST_BYTES,
) -> Network:
    """Return a network of a topology's switches, which run our program, and the cables between them; no hosts yet.

    Rates are those of the topology; all else is as `conditions` say.
    """
    program = p4src.load(lanes)
    longest = max(FRAME_BYTES + payload_bytes(lanes), mtu + ETHERNET_BYTES)
    network = Network(seed=seed, frame_bytes=longest, most_bytes=most_bytes)
    for name in planned.switches:
        switch = network.switch(name, Switch(program.device_config))
        write(switch, Entry(table=IDENTITY, action="SwitchIngress.identify", params=_identity(), is_default=True))
    for cable in _merged(planned):
        if set(cable.ends) <= set(planned.switches):
            network.link(*cable.ends, _at_rate(conditions, cable))
    return network


def access_links(planned: topology.Network, hosts: Sequence[str]) -> dict[str, topology.Cable]:
    """Return the cable of each host; raises UsageError for a host that has not one."""
    near: dict[str, list[topology.Cable]] = {host: [] for host in hosts}
    for cable in _merged(planned):
        for end in cable.ends:
            if end in near:
                near[end].append(cable)
    for host, found in near.items():
        if len(found) != 1:
            raise UsageError(f"host {host} has {len(found)} links, but a simulated host has one")
    return {host: found[0] for host, found in near.items()}


def attach(network: Network, cable: topology.Cable, conditions: Link, *, port: int | None = None) -> None:
    """Connect a host with its switch."""
    far, host = cable.ends if cable.ends[0] in network.switches else cable.ends[::-1]
    # The host itself does not drop what it sends: it waits for its own link.
    down = _at_rate(conditions, cable)
    network.link(host, far, replace(down, queue_bytes=None, queue_frames=None), port=port, back=down)


def _merged(planned: topology.Network) -> list[topology.Cable]:
    """Return the cables, those between the same two nodes as one."""
    found: dict[frozenset[str], topology.Cable] = {}
    for cable in planned.cables:
        key = frozenset(cable.ends)
        before = found.get(key)
        mbit = cable.free_mbit + (before.mbit if before else 0.0)
        found[key] = topology.Cable(ends=before.ends if before else cable.ends, mbit=mbit)
    return list(found.values())


def _at_rate(conditions: Link, cable: topology.Cable) -> Link:
    return replace(conditions, rate_bps=cable.mbit * 1e6)


def _identity() -> dict[str, int]:
    return {"mac": _SWITCH.mac, "ip": _SWITCH.ip, "port": _SWITCH.port, "growth_bytes": _GROWTH_BYTES}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a collective went."""

    seconds: float
    """Of virtual time."""
    is_complete: bool
    """False: its time was over, or it was interrupted."""
    finished: int
    """Workers that have finished."""


class Job:
    """Real workers on the hosts of a network, over the trees that the planner packs."""

    def __init__(
        self,
        network: Network,
        planned: topology.Network,
        hosts: Sequence[str],
        conditions: Link,
        *,
        lanes: int,
        window_slots: int | None = None,
        cost: HostCost = HostCost(),  # noqa: B008 - frozen
        has_controller: bool = False,
        **options: Any,
    ) -> None:
        """Plan the trees, place the workers and write the entries; `options` go to each `EngineConfig`.

        With a controller the ranks join it, and it looks after the job as time passes; without, it is as it would be
        then, and nothing is looked after.  Raises UsageError, and TopologyError where no tree serves these hosts.
        """
        if not 2 <= len(hosts) <= MOST_WORKERS:
            raise UsageError(f"a job has 2 to {MOST_WORKERS} workers, not {len(hosts)}")
        self.network, self.lanes = network, lanes
        self.hosts = list(hosts)
        found = trees.plan(planned, hosts, slots=SLOTS).trees
        self.window_slots = window_slots or fitting_window(conditions, planned, hosts, lanes, found[0].levels)
        if not len(found) <= self.window_slots <= SLOTS:
            raise UsageError(f"a window has {len(found)} slots (one for each tree) to {SLOTS}, not {self.window_slots}")
        shares = trees.share(self.window_slots, [tree.rate_mbit for tree in found])
        self.trees = [replace(tree, slots=slots) for tree, slots in zip(found, shares, strict=True)]
        """Over which the job is added."""
        self._neighbours: dict[str, list[int]] = {}
        for rank, host in enumerate(hosts):
            self._neighbours.setdefault(self.trees[0].parents[host], []).append(rank)
        ports = self._ports()
        self.controller = self._controlled(ports, options) if has_controller else None
        self.workers: list[Worker] = []
        """By rank."""
        self.numbers: list[int] = []
        """Of their nodes."""
        arena, cables = Arena(), access_links(planned, hosts)
        for rank, host in enumerate(hosts):
            worker = Worker(self._config(rank, options), arena)
            self.workers.append(worker)
            self.numbers.append(network.native_host(host, worker, cost))
            attach(network, cables[host], conditions, port=ports[rank])
        if self.controller is None:
            self._write_entries(ports)

    def _ports(self) -> list[int]:
        """Return the port at which each rank's host will be attached, behind those that its switch has already."""
        here = {name: len(self.network.ports(name)) for name in self.network.switches}
        found = []
        for host in self.hosts:
            leaf = self.trees[0].parents[host]
            here[leaf] += 1
            found.append(here[leaf])
        return found

    def _controlled(self, ports: Sequence[int], options: Mapping[str, Any]) -> SimulatedController:
        """Return a controller that the ranks have joined."""
        program = p4src.load(self.lanes)
        return SimulatedController(
            self.network,
            Build(lanes_per_frame=self.lanes, device_config=program.device_config, p4info=program.p4info),
            _SWITCH,
            self.trees,
            [
                Door(switch=self.trees[0].parents[host], port=ports[rank], address=host_address(rank))
                for rank, host in enumerate(self.hosts)
            ],
            timeout_s=options.get("timeout_s", DEFAULT_TIMEOUT_S),
            seed=options.get("seed", 0),
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
        return () if self.controller is None else self.controller.moved

    @property
    def due_s(self) -> float:
        """When `look_after` is to be called next."""
        return math.inf if self.controller is None else self.controller.due_s

    def look_after(self) -> None:
        """Let the controller do what is due, and the ranks hear of it."""
        now = self.network.now
        if self.controller is not None and self.controller.due_s <= now and self.controller.turn():
            for worker, number in zip(self.workers, self.numbers, strict=True):
                worker.engine.restarted(now)
                self.network.world.wake(number)

    def _config(self, rank: int, options: Mapping[str, Any]) -> EngineConfig:
        return EngineConfig(
            rank=rank,
            world_size=len(self.hosts),
            lanes_per_frame=self.lanes,
            switch=_SWITCH,
            own=host_address(rank),
            **(self._facts(rank) if self.controller is None else self.controller.facts(rank)),
            **{"granularity_s": 0.0, **({} if self.controller is None else _PATIENCE), **options},
        )

    def _facts(self, rank: int) -> dict[str, Any]:
        """Return what a controller would give to a rank."""
        here = self._neighbours[self.trees[0].parents[self.hosts[rank]]]
        return {
            "places": tuple(here) if len(self.network.switches) > 1 else (),
            "trees": tuple(tree.slots for tree in self.trees) if len(self.trees) > 1 else (),
            "job": _JOB,
            "epoch": _EPOCH,
            "cookie": _cookie(rank),
            "window_slots": self.window_slots,
        }

    def _write_entries(self, ports: Sequence[int]) -> None:
        """Give each switch what the controller would write for this job."""
        network = self.network
        names = list(dict.fromkeys(name for tree in self.trees for name in switches_of(tree)))
        reserved: dict[str, Reserved] = {name: Reserved() for name in names}
        first = 0
        for number, tree in enumerate(self.trees):
            for name in switches_of(tree):
                reserved[name].slots[number] = SlotRange(first=first, count=tree.slots)
                reserved[name].groups[number] = _FIRST_GROUP + number
            first += tree.slots
        sites = {
            name: Site(
                address=_SWITCH,
                ports={far: port for port, far in network.ports(name).items() if far in network.switches},
                lanes_per_frame=self.lanes,
            )
            for name in names
        }
        seats = [
            Seat(
                switch=self.trees[0].parents[host],
                port=ports[rank],
                address=host_address(rank),
                cookie=_cookie(rank),
            )
            for rank, host in enumerate(self.hosts)
        ]
        forest = Forest(job=_JOB, trees=self.trees, reserved=reserved, sites=sites)
        cookies = itertools.count(_cookie(MOST_WORKERS))
        for name, branches in forest.branches(seats, epoch=_EPOCH, draw_cookie=cookies.__next__).items():
            # Branches of several trees share entries: where the results of a member go is one.
            state = SwitchState.of(item for branch in branches for item in branch.items())
            for group in state.groups.values():
                write(network.switches[name], group)
            for entry in state.entries.values():
                write(network.switches[name], entry)

    def allreduce(
        self,
        arrays: Sequence[npt.NDArray[Any]],
        *,
        operator: str = "sum",
        lanes: str = "int32",
        until_s: float | None = None,
    ) -> Ended:
        """Add arrays, one of each rank, in place; let time pass until all have the sum, or it is `until_s`.

        Ranks may have the same array: it has the sum afterwards, and each rank has read its part of it before.  Raises
        what an engine gives up with.
        """
        until_s = None if until_s is None else instant(until_s)
        world = self.network.world
        began = world.now_s
        world.wait_for(self.numbers)
        for worker, number, array in zip(self.workers, self.numbers, arrays, strict=True):
            worker.begin(Operation.of(array, operator=operator, lanes=lanes), array.reshape(-1), began)
            world.wake(number)
        done = 0
        while done < len(self.workers):
            self.look_after()
            end = min(world.now_s + _SLICE_S, self.due_s)
            stop = self.network.run(end if until_s is None else min(end, until_s))
            done += sum(len(worker.finished(world.now_s)) for worker in self.workers)
            if (stop is Stop.IDLE and self.controller is None) or (until_s is not None and world.now_s >= until_s):
                break
        return Ended(seconds=world.now_s - began, is_complete=done == len(self.workers), finished=done)

    @property
    def finished(self) -> int:
        """How many workers have finished what was begun last."""
        return len(self.workers) - max(0, self.network.world.unfinished)

    @property
    def repeats(self) -> int:
        """Frames that workers have sent again."""
        return sum(worker.repeats for worker in self.workers)


def fitting_window(conditions: Link, planned: topology.Network, hosts: Sequence[str], lanes: int, levels: int) -> int:
    """Return how many slots keep the links of the hosts busy: what a round trip holds, and a quarter more."""
    rate = min(cable.free_mbit for cable in planned.cables if set(cable.ends) & set(hosts)) * 1e6
    bits = 8 * (FRAME_BYTES + payload_bytes(lanes) + conditions.overhead_bytes)
    # A frame is sent anew by each switch, up and down; those of a slot's members come one after the other.
    round_trip_s = 2 * levels * (conditions.delay_s + bits / rate)
    return min(SLOTS, max(_LEAST_WINDOW, math.ceil(_MARGIN * round_trip_s * rate / bits)))


def _cookie(rank: int) -> int:
    return 0xC0FF_EE00_0000_0001 + (rank << 16)
