"""The controller in virtual time: the real reconciler, upkeep and registry, without gRPC and threads.

`turn` is one turn of the controller's loop (`Upkeep.turn`); the clock is the network's.  What a `Session` says to a
switch over P4Runtime goes straight into the switch here, and takes no time.  So a switch or a link that fails at a
chosen time is noticed, waited for and gone around by the code that does it in a real network, the same way in each run.

Two things are simplified.  A controller hears of a link that fails at its next turn, and not by missing LLDP frames.
And the ranks hear its news at that turn, with no network between.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from switchsum_controller.jobs.slots import Cell
from switchsum_controller.service.config import Config
from switchsum_controller.service.controller import Controller
from switchsum_controller.service.upkeep import TICK_S
from switchsum_controller.switches.switch_session import CPU_SOURCE, Build, Limits, Session, cell_of
from switchsum_controller.tables.entries import Change, Group, SwitchState, Write
from switchsum_controller.tables.names import CPU_PORT
from switchsum_controller.trees import moves
from switchsum_controller.trees.fabric import Fabric, FabricSwitch
from switchsum_protocol import member_rpc
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import Header, Kind
from switchsum_protocol.wire import build_frame, parse_frame
from switchsum_switch.api.switch import Switch
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError
from switchsum_switch.wires.headers import Address

from .conditions import instant
from .network import Network
from .placement import Placement

_PACKET_BYTES: Final = 2
"""Bytes of the headers `packet_in` and `packet_out`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Where a rank's hello comes in."""

    switch: str
    port: int
    address: Address


class SwitchSession:
    """What a `Session` does, on a switch of this process."""

    def __init__(self, name: str, switch: Switch, own: Address, state: SwitchState) -> None:
        self._name, self._switch, self._own, self._state = name, switch, own, state
        self.is_connected = False
        self.has_failed = False

    def connect(self) -> bool:
        """Connect; raises P4RuntimeError once the switch has failed."""
        if self.has_failed:
            raise P4RuntimeError("StreamChannel", Code.UNAVAILABLE, f"switch {self._name} has failed")
        self.is_connected = True
        return not self._state.entries

    def close(self) -> None:
        """Hang up; the entries stay."""
        self.is_connected = False

    def find_limits(self) -> Limits:
        """Return the limits of an embedded switch: none."""
        return Limits()

    def read_state(self) -> SwitchState:
        """Return what was written."""
        return SwitchState.of([*self._state.entries.values(), *self._state.groups.values()])

    def keeps_metadata(self, state: SwitchState) -> bool:
        """Whether entries are kept whole: they are, in this process."""
        return True

    def write(self, steps: Sequence[Sequence[Write]], timeout_s: float | None = None) -> None:
        """Carry writes out."""
        for step in steps:
            for one in step:
                write(self._switch, one)
                if one.change is Change.DELETE:
                    self._state.drop(one.item)
                else:
                    self._state.put(one.item)

    def read_numbers(self, cells: Sequence[tuple[int, int]]) -> list[Cell]:
        """Read cells, given as (slot, version), by query frames: nobody waits for them in virtual time."""
        return [self._exchange(Kind.QUERY, slot, version) for slot, version in cells]

    def clear(self, cells: Sequence[Cell]) -> None:
        """Set cells to the state of cells that were never used."""
        for cell in cells:
            self._exchange(Kind.SET, cell.slot, cell.version)

    def clear_reasons(self, group: int, ranks: int) -> None:
        """Do nothing: nobody asks for counts here."""

    def _exchange(self, kind: Kind, slot: int, version: int) -> Cell:
        header = Header(kind=kind, tree=version, slot=slot, number=version)
        frame = bytes(_PACKET_BYTES) + build_frame(CPU_SOURCE, self._own, header)
        for port, answer in self._switch.process(CPU_PORT, frame):
            packet = parse_frame(answer[_PACKET_BYTES:]) if port == CPU_PORT else None
            if packet is not None and packet.header.kind == Kind.STATE:
                return cell_of(packet.header)
        raise P4RuntimeError("query", Code.INTERNAL, f"switch {self._name} does not answer about slot {slot}")


def write(switch: Switch, one: Write) -> None:
    """Carry out on a switch what a controller writes by P4Runtime."""
    item, is_gone = one.item, one.change is Change.DELETE
    if isinstance(item, Group):
        if is_gone:
            switch.multicast.delete(item.group)
        else:
            switch.multicast.set(item.group, sorted((copy.port, copy.instance) for copy in item.replicas))
        return
    table = switch.tables[item.table]
    if is_gone:
        table.delete(item.match, priority=item.priority)
    elif item.is_default:
        table.set_default(item.action, **item.params)
    elif one.change is Change.MODIFY:
        table.modify(item.match, item.action, priority=item.priority, **item.params)
    else:
        table.insert(item.match, item.action, priority=item.priority, **item.params)


class RankListener:
    """What a rank hears from the controller, and tells it, of its links (a `LinkListener`)."""

    def __init__(self, controller: Controller, job: str, nonce: int) -> None:
        self._controller, self._job, self._nonce = controller, job, nonce
        self.links_down: frozenset[int] = frozenset()

    def tell_down(self, link: int, reason: str) -> None:
        """Have all ranks do without a link."""
        reason = reason[: member_rpc.MOST_TEXT]
        report = member_rpc.LinkReport(job=self._job, nonce=self._nonce, link=link, reason=reason)
        self._controller.members.link_down(report)


class Membership:
    """A job of a controller's: its ranks have joined, and hear the controller's news together."""

    def __init__(
        self,
        controller: Controller,
        job: str,
        attachments: Sequence[Sequence[Attachment]],
        *,
        slots: int,
        rates: Sequence[float] = (),
        timeout_s: float,
        shares_slots: bool = False,
        own_slots: int = 0,
    ) -> None:
        """Let a job's ranks join at their attachments; `rates` are those of several links."""
        self._controller, self.job = controller, job
        reconciler, size = controller.reconciler, len(attachments)
        with reconciler.changed:
            reconciler.jobs.create(
                job, workers=size, slots=slots, timeout_s=timeout_s, shares_slots=shares_slots, own_slots=own_slots
            )
        self._places = [
            controller.members.join(member_rpc.JoinRequest(job=job, rank=rank, world_size=size, rates=list(rates)))
            for rank in range(size)
        ]
        with reconciler.changed:
            for rank, place in enumerate(self._places):
                reconciler.jobs.attend(place.nonce, reconciler.clock())
                for link, attachment in enumerate(attachments[rank]):
                    known = reconciler.jobs.hello(
                        place.nonce,
                        rank,
                        attachment.address,
                        attachment.port,
                        reconciler.clock(),
                        switch=attachment.switch,
                        link=link,
                    )
                    assert known
        self.listeners = [RankListener(controller, job, place.nonce) for place in self._places]
        """Links that each rank has been told of."""
        self.moved: list[str] = []
        """Where the job has gone, when and why."""
        self._loads = self._brought = 0

    def ready(self, rank: int) -> member_rpc.ReadyReply:
        """Return what the controller tells an admitted rank; raises UsageError if it does not admit it."""
        nonce = self._places[rank].nonce
        ready = self._controller.members.ready(member_rpc.ReadyRequest(job=self.job, nonce=nonce, wait_s=0.0))
        if not ready.admitted:
            raise UsageError(f"the controller does not admit rank {rank}: {ready.lost_switch or ready.missing}")
        return ready

    def facts(self, rank: int) -> dict[str, Any]:
        """Return the arguments of a rank's `EngineConfig` that a controller gives; raises UsageError if it does not."""
        place, ready = self._places[rank], self.ready(rank)
        return {
            "job": place.job_number,
            "epoch": place.epoch,
            "cookie": place.cookie,
            "first_slot": ready.first_slot,
            "shares_slots": ready.shares_slots,
            "first_shared_slot": ready.first_shared_slot,
            "first_number": ready.first_number,
            "window_slots": ready.window_slots,
            "places": tuple(ready.places),
            "trees": tuple(ready.trees),
        }

    def hear(self, now: float) -> None:
        """Hear what the controller has for the ranks: the same for all of them."""
        live = self._controller.reconciler.jobs.find(self.job).live
        if live is not None and live.moves > len(self.moved):
            self.moved.append(f"at {now:.6g} s, {live.moved[-1]}")
        request = member_rpc.MemberRequest(job=self.job, nonce=self._places[0].nonce)
        reply = self._controller.members.heartbeat(request)
        self._loads = reply.loads
        for one in self.listeners:
            one.links_down = frozenset(reply.down)

    def brings_back(self) -> bool:
        """Tell whether a switch has lost contributions since this was asked last, so that ranks bring them back."""
        before, self._brought = self._brought, self._loads
        return self._loads > before


class SimulatedController:
    """The controller of a network's switches, and of the jobs on it."""

    def __init__(
        self,
        network: Network,
        program: Build,
        address: Address,
        fabric: Fabric,
        placed: Placement,
        *,
        seed: int,
        away_s: float | None = None,
    ) -> None:
        """Begin without a job; `placed` is where the hosts of all jobs are."""
        self._network, self._address = network, address
        self.placed = placed
        """Where the hosts of all jobs are."""
        self._sessions: dict[str, SwitchSession] = {}
        self._failed: set[str] = set()
        self._cut: set[frozenset[str]] = set()
        self._to_come: list[tuple[float, Callable[[], None]]] = []
        self._jobs: list[Membership] = []
        self._next_s = 0.0
        self._states = {name: SwitchState() for name in network.switches}
        self._real = Controller(
            Config(program=program, switch_address="", address=address, fabric=fabric),
            lambda: network.now,
            sessions=lambda name: cast("Session", self._open(name)),
            draw=random.Random(seed).getrandbits,
        )
        if away_s is not None:
            self._real.reconciler.absences = moves.Absences(away_s)
        self._turn()

    def _open(self, name: str) -> SwitchSession:
        session = SwitchSession(name, self._network.switches[name], self._address, self._states[name])
        session.has_failed = name in self._failed
        self._sessions[name] = session
        return session

    def join(self, attachments: Sequence[Sequence[Attachment]], **facts: Any) -> Membership:
        """Have a job join whose ranks have these attachments, one for each of their links; `facts` as `Membership`.

        Raises what a controller refuses.
        """
        job = f"simulated{len(self._jobs)}"
        found = Membership(self._real, job, attachments, **facts)
        self._jobs.append(found)
        self._turn()
        found.hear(self._network.now)
        found.brings_back()
        return found

    # What fails.

    def fail_switch(self, name: str, at_s: float) -> None:
        """Let a switch, with all of its links, fail at a time; raises UsageError if there is none of that name."""
        if name not in self._network.switches:
            raise UsageError(f"there is no switch {name}: {', '.join(self._network.switches)}")
        for link in self._network.links.values():
            if name in link.name.rstrip("'").split("->"):
                link.take_down(at_s)
        self._at(at_s, lambda: self._lose(name))

    def fail_link(self, one: str, far: str, at_s: float) -> None:
        """Let both directions of the link between two nodes fail at a time; raises UsageError if there is none."""
        names = {f"{one}->{far}", f"{far}->{one}"}
        found = [link for link in self._network.links.values() if link.name.rstrip("'") in names]
        if not found:
            raise UsageError(f"there is no link between {one} and {far}")
        for link in found:
            link.take_down(at_s)
        self._at(at_s, lambda: self._cut.add(frozenset((one, far))))

    def _at(self, at_s: float, happens: Callable[[], None]) -> None:
        self._to_come.append((instant(at_s), happens))
        self._to_come.sort(key=lambda one: one[0])

    def _lose(self, name: str) -> None:
        self._failed.add(name)
        self._sessions[name].has_failed = True
        error = P4RuntimeError("StreamChannel", Code.UNAVAILABLE, f"switch {name} has failed")
        reconciler = self._real.reconciler
        with reconciler.changed:
            reconciler.fleet.connections[name].detach(error)
            reconciler.note_absence(name, error)

    # As time passes.

    @property
    def due_s(self) -> float:
        """When `turn` is to be called next."""
        return min([self._next_s, *(at_s for at_s, _ in self._to_come[:1])])

    def turn(self) -> None:
        """Do what is due now, and tell the jobs."""
        now = self._network.now
        while self._to_come and self._to_come[0][0] <= now:
            self._to_come.pop(0)[1]()
        self._turn()
        for job in self._jobs:
            job.hear(now)

    def _turn(self) -> None:
        """Have the controller's loop go round once."""
        reconciler = self._real.reconciler
        now = self._network.now
        with reconciler.changed:
            found = {pair for pair in map(frozenset, _pairs(reconciler.fabric)) if pair not in self._cut}
            moves.note_links(reconciler.cuts, reconciler.fabric, found, reconciler.fleet.away(), now)
        self._real.upkeep.turn(lambda: [reconciler.events.get() for _ in range(reconciler.events.qsize())])
        self._next_s = instant(now + TICK_S)


def fabric_of(network: Network, placed: Placement, lanes: int, fallback: str = "", shared_slots: int = 0) -> Fabric:
    """Return a network's switches, and those above them in each tree, as a controller's file has them, a root first."""
    trees, parents = placed.trees, placed.parents
    adding = (name for name in network.switches if name != fallback and name not in placed.ways)
    names = dict.fromkeys([trees[0].root, *adding])
    names |= {fallback: None} if fallback else {}
    switches = {
        name: FabricSwitch(
            p4runtime=f"simulated:{name}",
            ports={far: port for port, far in network.ports(name).items() if far in names},
        )
        for name in names
    }
    shares = [tree.slots for tree in trees] if len(parents) == len(trees) else [1.0]
    return Fabric(
        switches=switches,
        parents=parents[0],
        others=parents[1:],
        shares=shares,
        lanes_per_frame=lanes,
        fallback=fallback,
        shared_slots=shared_slots,
        spreads_jobs=len(trees) == 1 and not fallback,
    )


def _pairs(fabric: Fabric) -> Iterator[tuple[str, str]]:
    for name, ports in fabric.links().items():
        yield from ((name, far) for far in ports)
