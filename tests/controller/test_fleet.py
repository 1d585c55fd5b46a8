"""Several switches at once: each kept alone, a change on all or on none, and sums through a leaf, a root and a leaf."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")
pytest.importorskip("scipy")

from switchsum.topologies import leaf_spine
from switchsum_controller.jobs.registry import Jobs
from switchsum_controller.plan.plan import Identity, Settings
from switchsum_controller.switches.connection import SwitchConnection
from switchsum_controller.switches.fleet import UNUSED_S, Fleet
from switchsum_controller.switches.switch_session import Session
from switchsum_controller.tables.entries import Entry, Group, Replica, SwitchState
from switchsum_controller.tables.names import STATIONS, UPLINK
from switchsum_protocol.errors import RemoteError, SwitchLost
from switchsum_protocol.frame import LANE_BYTES, Flag, Header, Kind
from switchsum_protocol.wire import build_frame, parse_frame
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError

from .planned import plan
from .rig import LANES, LONG_S, SWITCH, EmbeddedSwitch, program
from .test_forest import EPOCH, JOB, World, network_of

NAMES = ("s1", "s2", "s3")


class Switches:
    """Embedded switches, and a fleet of connections to them."""

    def __init__(self, scratch: Path) -> None:
        self.ends: queue.SimpleQueue[tuple[str, RemoteError]] = queue.SimpleQueue()
        self.switches = {}
        for name in NAMES:
            (scratch / name).mkdir()
            self.switches[name] = EmbeddedSwitch(scratch / name)
        self.writes: list[str] = []
        self.patience: list[float | None] = []
        self.hangs = ""
        self.loads = dict.fromkeys(NAMES, 0)
        self.desired: dict[str, SwitchState] = {}
        self.fleet = Fleet({name: SwitchConnection(at.address, partial(self._make, name)) for name, at in self.of()})

    def of(self) -> list[tuple[str, EmbeddedSwitch]]:
        return list(self.switches.items())

    def _make(self, name: str) -> Session:
        made = Session(program(), self.switches[name].address, on_end=lambda error: self.ends.put((name, error)))
        write = made.write

        def noted(steps: Any, timeout_s: float | None = None) -> None:
            self.writes.append(name)
            self.patience.append(timeout_s)
            if name == self.hangs:
                raise P4RuntimeError("Write", Code.DEADLINE_EXCEEDED, "Deadline Exceeded")
            write(steps, timeout_s)

        made.write = noted  # type: ignore[method-assign]
        return made

    def restart(self, name: str) -> None:
        self.switches[name].restart()
        ended, error = self.ends.get(timeout=LONG_S)
        assert ended == name
        self.fleet.connections[name].detach(error)

    def keep(self, *names: str) -> None:
        """Connect with switches that are away, and give all that are there what they lack."""
        for name in names:
            switch, was_loaded = self.fleet.connections[name].open()
            self.fleet.connections[name].attach(switch)
            self.loads[name] += was_loaded
        self.fleet.mend({other: self.desired.get(other, self.fleet.connections[other].current) for other in NAMES})

    def change(self, desired: dict[str, SwitchState]) -> None:
        self.fleet.change(desired)
        self.desired = desired

    def on_switch(self, name: str) -> SwitchState:
        return self.fleet.connections[name].need().read_state()

    def close(self) -> None:
        self.fleet.close()
        for switch in self.switches.values():
            switch.close()


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Switches]:
    """Yield three embedded switches that are connected with one another in no way yet."""
    made = Switches(tmp_path)
    yield made
    made.close()


def basic() -> SwitchState:
    """Return what a switch without jobs has."""
    return plan(Jobs(16, int, int), Settings(identity=Identity(address=SWITCH, growth_bytes=0xFFFF)))


def with_station(port: int) -> SwitchState:
    state = basic()
    forward = "SwitchIngress.dispatch.forwarding.forward"
    state.put(Entry(table=STATIONS, match={"mac": 5}, action=forward, params={"port": port}))
    return state


def refused_state() -> SwitchState:
    state = with_station(4)
    state.put(Group(group=0, replicas=frozenset({Replica(port=1, instance=1)})))
    return state


def test_a_change_comes_to_all_switches_or_to_none(network: Switches) -> None:
    fleet = network.fleet
    network.keep("s1", "s2")
    with pytest.raises(SwitchLost):  # the third one is away
        fleet.change(dict.fromkeys(NAMES, with_station(1)))
    assert network.writes == []
    network.keep("s3")
    network.change(dict.fromkeys(NAMES, with_station(1)))
    assert network.writes == list(NAMES)
    fleet.change(dict.fromkeys(NAMES, with_station(1)))
    fleet.mend(network.desired)
    assert network.writes == list(NAMES)  # nothing is written twice
    with pytest.raises(RemoteError):
        fleet.change({"s1": with_station(2), "s2": refused_state(), "s3": with_station(2)})
    for name in NAMES:
        assert [entry.params for entry in network.on_switch(name).table(STATIONS)] == [{"port": 1}]
    assert network.writes.count("s3") == 1


@pytest.mark.parametrize("unused", [(), ("s1",)])
def test_a_switch_that_hangs_has_little_time_where_nobody_needs_it(network: Switches, unused: tuple[str, ...]) -> None:
    network.keep(*NAMES)
    network.change(dict.fromkeys(NAMES, basic()))
    network.hangs, network.writes, network.patience = "s1", [], []
    desired = dict.fromkeys(NAMES, with_station(7))
    if unused:
        network.fleet.change(desired, unused)
        assert (network.writes, network.patience) == (["s2", "s3", "s1"], [None, None, UNUSED_S])
        assert (network.fleet.without, network.fleet.is_settled) == ({"s1"}, True)
    else:
        with pytest.raises(SwitchLost, match="no longer answers"):
            network.fleet.change(desired, unused)
        assert (network.fleet.without, network.patience) == (set(), [None])
    assert not network.fleet.connections["s1"].is_up


def test_a_switch_that_was_restarted_gets_its_own_state_again_and_no_other_is_touched(network: Switches) -> None:
    fleet = network.fleet
    network.keep(*NAMES)
    network.change({name: with_station(port) for port, name in enumerate(NAMES, 1)})
    network.writes.clear()
    network.restart("s2")
    with pytest.raises(SwitchLost):
        fleet.change({"s1": with_station(9), "s2": with_station(9)})
    network.keep("s2")
    assert network.writes == ["s2"]
    assert network.loads == {"s1": 1, "s2": 2, "s3": 1}
    assert [entry.params for entry in network.on_switch("s2").table(STATIONS)] == [{"port": 2}]


def sum_of_round(network: Switches, world: World, states: dict[str, Any], number: int) -> list[list[int]]:
    """Let every worker contribute to the first slot of its leaf; return the first lane of what each host gets."""
    far = {name: {port: end for end, port in ports.items()} for name, ports in world.ports.items()}
    got: dict[str, list[int]] = {host: [] for host in world.hosts}
    for rank, worker in enumerate(world.workers):
        header = Header(
            kind=Kind.CONTRIBUTION,
            flags=int(Flag.PAYLOAD),
            job=JOB,
            epoch=EPOCH,
            rank=rank,
            slot=states[worker.switch][0].slots.first,
            number=number,
            cookie=worker.cookie,
        )
        payload = (number + rank).to_bytes(LANE_BYTES, signed=True) * LANES
        network.switches[worker.switch].send(worker.port, build_frame(worker.address, SWITCH, header, payload))
    waiting = deque(worker.switch for worker in world.workers)
    while waiting:
        name = waiting.popleft()
        for port, frame in network.switches[name].collect():
            end = far[name][port]
            if end in network.switches:
                network.switches[end].send(world.ports[end][name], frame)
                waiting.append(end)
                continue
            packet = parse_frame(frame)
            assert packet is not None
            assert packet.header.kind == Kind.RESULT
            got[end].append(int.from_bytes(packet.payload[:LANE_BYTES], signed=True))
    return list(got.values())


@pytest.mark.skipif(f'"{UPLINK}"' not in program().p4info, reason="the P4 program has no trees yet")
def test_two_leaves_and_a_root_add_and_go_on_after_each_was_restarted(network: Switches) -> None:
    world = World(network_of(leaf_spine(2, 1, 1)))
    assert set(world.ports) == set(NAMES)
    for name, switch in world.switches.items():
        world.switches[name] = replace(switch, address=SWITCH, lanes_per_frame=LANES)
    branches = world.lay_out()
    desired = {}
    for name, ones in branches.items():
        items = [item for branch in ones for item in branch.items()]
        desired[name] = SwitchState.of([*basic().entries.values(), *items])
    network.keep(*NAMES)
    network.change(desired)
    wanted = sum(range(len(world.workers)))
    assert sum_of_round(network, world, branches, 10) == [[20 + wanted]] * 2
    for number, name in enumerate(NAMES, 11):
        network.restart(name)
        network.keep(name)
        assert sum_of_round(network, world, branches, number) == [[2 * number + wanted]] * 2
