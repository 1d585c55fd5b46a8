"""Jobs over trees of switches: what each switch gets, carried out by switches that follow the rules of a tree."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from switchsum_controller.tables.entries import Entry, Group, Replica, SwitchState
from switchsum_controller.tables.names import ADMISSION, FROM_ABOVE, UPLINK
from switchsum_controller.trees.branch import Branch
from switchsum_controller.trees.forest import (
    AggregationSwitch,
    AggregationTree,
    AttachedWorker,
    Forest,
    Reserved,
    switches_of,
)
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import Flag, Header, Kind
from switchsum_protocol.tree_rules import TreeSwitch
from switchsum_protocol.wire import build_frame, parse_frame
from switchsum_switch.wires.headers import Address

pytest.importorskip("yaml")
pytest.importorskip("scipy")

from switchsum.planning.trees import plan as plan_trees
from switchsum.testing.tree import carry_out, reserve
from switchsum.topologies import Network, fat_tree, leaf_spine, star, two_spines

LANES = 4
JOB, EPOCH = 7, 3


def network_of(shape: Network, mbit: float = 1000) -> Network:
    return shape.limited(mbit)


def ports_of(network: Network) -> dict[str, dict[str, int]]:
    """Number the ports of each switch by its links."""
    ports: dict[str, dict[str, int]] = {switch: {} for switch in network.switches}
    for cable in network.cables:
        for end, far in (cable.ends, cable.ends[::-1]):
            if end in ports:
                ports[end][far] = len(ports[end]) + 1
    return ports


class World:
    """A network, the trees of a job on all of its hosts, one worker on each, and what the switches get."""

    def __init__(self, network: Network, slots: int = 8, **fields: Any) -> None:
        self.ports = ports_of(network)
        self.switches = {
            switch: AggregationSwitch(
                address=Address(mac=0x02_00_00_00_01_00 + at, ip=0x0A_00_01_00 + at, port=21333),
                ports={far: port for far, port in self.ports[switch].items() if far in network.switches},
                lanes_per_frame=LANES,
                **fields,
            )
            for at, switch in enumerate(network.switches)
        }
        # Each switch has other slots in use.
        self.first_slots = {switch: at % 8 + 1 for at, switch in enumerate(network.switches)}
        self.first_groups = {switch: at % 8 + 2 for at, switch in enumerate(network.switches)}
        self.hosts = network.hosts
        self.trees = plan_trees(network, network.hosts, slots=slots).trees
        self.workers = [self.worker(rank, host) for rank, host in enumerate(network.hosts)]

    def worker(self, rank: int, host: str) -> AttachedWorker:
        leaf = self.trees[0].parents[host]
        return AttachedWorker(
            switch=leaf,
            port=self.ports[leaf][host],
            address=Address(mac=0x02_00_00_00_02_00 + rank, ip=0x0A_00_02_00 + rank, port=5000 + rank),
            cookie=900 + rank,
        )

    def reserve(self) -> dict[str, Reserved]:
        return reserve(self.trees, self.first_slots, self.first_groups)

    def lay_out(self) -> dict[str, list[Branch]]:
        forest = Forest(job=JOB, trees=self.trees, reserved=self.reserve(), switches=self.switches)
        return forest.branches(self.workers, epoch=EPOCH, draw_cookie=itertools.count(5000).__next__)


def run_round(world: World, laid_out: dict[str, list[Branch]], tree: int, slot: int) -> tuple[dict[int, bytes], Any]:
    """Let all workers contribute to a slot of a tree; return the lanes of each one's result, and the sum."""
    switches = {name: TreeSwitch(lanes_per_frame=LANES, address=world.switches[name].address) for name in laid_out}
    for name, branches in laid_out.items():
        for branch in branches:
            carry_out(switches[name], branch)
    far = {name: {port: end for end, port in ports.items()} for name, ports in world.ports.items()}
    ranks = {host: rank for rank, host in enumerate(world.hosts)}
    values = np.random.default_rng(1).integers(-(10**6), 10**6, (len(ranks), LANES))
    under_way: deque[tuple[str, int, bytes]] = deque()
    for rank, worker in enumerate(world.workers):
        [branch] = [one for one in laid_out[worker.switch] if one.tree == tree]
        header = Header(
            kind=Kind.CONTRIBUTION,
            flags=int(Flag.PAYLOAD),
            job=JOB,
            tree=tree,
            epoch=EPOCH,
            rank=rank,
            slot=branch.slots.first + slot,
            number=9,
            cookie=worker.cookie,
        )
        frame = build_frame(
            worker.address, world.switches[worker.switch].address, header, values[rank].astype(">i4").tobytes()
        )
        under_way.append((worker.switch, worker.port, frame))
    results: dict[int, bytes] = {}
    while under_way:
        name, port, frame = under_way.popleft()
        for out, sent in switches[name].process(port, frame):
            end = far[name][out]
            if end in switches:
                under_way.append((end, world.ports[end][name], sent))
                continue
            packet = parse_frame(sent)
            assert packet is not None
            assert packet.header.kind == Kind.RESULT
            assert packet.header.rank == ranks[end]
            results[ranks[end]] = packet.payload
    return results, values.sum(axis=0)


@pytest.mark.parametrize(
    ("shape", "levels"),
    [(star(3), 1), (leaf_spine(2, 2, 2), 2), (fat_tree(4), 3), (two_spines(2, 1000, 400), 2)],
)
def test_every_worker_gets_the_sum_through_every_tree(shape: Any, levels: int) -> None:
    world = World(network_of(shape, 1400))
    laid_out = world.lay_out()
    assert max(tree.levels for tree in world.trees) == levels
    for number, tree in enumerate(world.trees):
        for slot in (0, tree.slots - 1):
            results, wanted = run_round(world, laid_out, number, slot)
            assert results == dict.fromkeys(range(len(world.workers)), wanted.astype(">i4").tobytes())


def test_a_single_switch_has_a_branch_with_nothing_above() -> None:
    world = World(network_of(star(3)))
    [[branch]] = world.lay_out().values()
    assert branch.above is None
    assert [(place.rank, place.bit, place.is_switch) for place in branch.places] == [
        (rank, rank, False) for rank in range(3)
    ]


def test_leaf_and_root_name_each_other() -> None:
    world = World(network_of(leaf_spine(2, 1, 2)))
    [tree] = world.trees
    laid_out = world.lay_out()
    root, *leaves = switches_of(tree)
    [top] = laid_out[root]
    for leaf, place in zip(leaves, top.places, strict=True):
        [branch] = laid_out[leaf]
        above = branch.above
        assert above is not None
        assert (above.rank, above.cookie, above.first_slot) == (place.rank, place.cookie, top.slots.first)
        assert (above.address, above.port) == (world.switches[root].address, world.ports[leaf][root])
        assert (place.address, place.port) == (world.switches[leaf].address, world.ports[root][leaf])
        assert place.rank >= len(world.workers)
        assert [one.bit for one in branch.places] == [0, 1]  # places at this switch, and no ranks
        state = SwitchState.of(branch.items())
        entries = [entry for entry in state.entries.values() if entry.table == ADMISSION]
        assert {entry.params["everybody"] for entry in entries} == {0b11}
        assert {entry.params["member"] for entry in entries} == {1, 2}
        assert state.groups[branch.group] == Group(
            group=branch.group,
            replicas=frozenset(Replica(port=one.port, instance=one.rank) for one in branch.places),
        )
        [uplink] = state.table(UPLINK)
        [from_above] = state.table(FROM_ABOVE)
        assert uplink.match == from_above.match == {"job": JOB, "tree": 0, "epoch": EPOCH}
        here = (branch.slots.first + uplink.params["slot_shift"]) & 0xFFFF_FFFF
        assert here == from_above.params["first_slot_above"] == top.slots.first
        assert from_above.params["first_slot"] == branch.slots.first
        for entry in (uplink, from_above):
            assert (entry.params["ip"], entry.params["udp_port"]) == (above.address.ip, above.address.port)
            assert (entry.params["port"], entry.params["rank"]) == (above.port, above.rank)
            assert entry.params["cookie"] == above.cookie


def test_who_is_a_switch_is_admitted_as_one_and_told_whether_it_ends_here() -> None:
    world = World(network_of(fat_tree(4)))
    ends = set()
    for branches in world.lay_out().values():
        for branch in branches:
            for item in branch.items():
                if isinstance(item, Entry) and item.table == ADMISSION:
                    is_switch = cast("int", item.match["rank"]) >= len(world.workers)
                    assert item.action.endswith(".admit_switch" if is_switch else ".admit")
                    assert ("passes_up" in item.params) == is_switch
                    if is_switch:
                        assert item.params["passes_up"] == (branch.above is not None)
                        ends.add(item.params["passes_up"])
    assert ends == {0, 1}  # inner switches and a root


def test_trees_share_a_switch_in_slots_that_lie_side_by_side() -> None:
    world = World(network_of(two_spines(2, 1000, 400), 1400), slots=14)
    assert len(world.trees) == 2
    reserved = world.reserve()
    leaf = reserved[world.workers[0].switch]
    assert sum(slots.count for slots in leaf.slots.values()) == 14
    assert leaf.slots[0].end == leaf.slots[1].first
    assert leaf.slots[0].count == world.trees[0].slots
    assert len(set(leaf.groups.values())) == 2
    for name, one in reserved.items():
        assert min(one.slots.values()).first == world.first_slots[name]  # behind those of other jobs
        assert min(one.groups.values()) == world.first_groups[name]
    entries = [item for branch in world.lay_out()[world.workers[0].switch] for item in branch.items()]
    admissions = {entry.key for entry in entries if isinstance(entry, Entry) and entry.table == ADMISSION}
    assert len(admissions) == 2 * 2  # a worker is admitted to each tree


def test_the_switch_above_may_limit_how_much_frames_grow() -> None:
    world = World(network_of(leaf_spine(2, 1, 1)))
    for name, switch in world.switches.items():
        world.switches[name] = replace(
            switch, lanes_per_frame=256, growth_bytes=512 if name == world.trees[0].root else 0xFFFF
        )
    leaf = world.lay_out()[world.workers[0].switch][0]
    assert leaf.above is not None
    assert leaf.above.padding == 256 * 4 - 512


def refused(world: World) -> str:
    with pytest.raises(UsageError) as caught:
        world.lay_out()
    return str(caught.value)


def test_more_members_than_bits_are_refused() -> None:
    """A host has several ranks: the planner counts hosts, the bitmap counts members."""
    world = World(network_of(leaf_spine(2, 1, 1)))
    first, second = world.workers
    many = [replace(first, address=replace(first.address, port=6000 + at), cookie=at + 1) for at in range(33)]
    world.workers = [*many[:32], second]
    assert len(world.lay_out()[first.switch][0].places) == 32
    world.workers = [*many, second]
    assert "a bitmap has only 32 bits" in refused(world)


def test_trees_are_laid_out_from_the_root_down() -> None:
    tree = AggregationTree(
        root="a",
        rate_mbit=1.0,
        slots=1,
        levels=3,
        parents={"c": "b", "b": "a", "h1": "c", "h2": "a", "d": "a", "h3": "d"},
    )
    assert switches_of(tree) == ["a", "b", "d", "c"]
