"""Workers, leaves and a root that follow the rules of a tree reach the right sums, whatever the network does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchsum_protocol.frame import NO_BLOCK, Flag, Header, Kind, Operator, Reason
from switchsum_protocol.slot_rules import AdmittedMember, Cell
from switchsum_protocol.tree_rules import TreeMember, TreeSwitch, Upstream
from switchsum_protocol.wire import build_frame, parse_frame
from switchsum_switch.wires.headers import Address

LANES = 4
JOB, EPOCH = 7, 3
FIRST_NUMBER = 0xFFFF_FFFE
UP = 40
"""Port of a switch that leads to the one above."""


def switch_address(number: int) -> Address:
    return Address(mac=0x02_00_00_00_01_00 + number, ip=0x0A_00_01_00 + number, port=21333)


def worker_address(rank: int) -> Address:
    return Address(mac=0x02_00_00_00_02_00 + rank, ip=0x0A_00_02_00 + rank, port=5000 + rank)


def shape(levels: list[int]) -> list[list[int]]:
    """Return the children of each switch, the root first: workers as ranks, switches as -1 less their number."""
    children: list[list[int]] = [[]]
    frontier = [0]
    for width in levels[:-1]:
        below = []
        for parent in frontier:
            for _ in range(width):
                children[parent].append(-len(children))
                below.append(len(children))
                children.append([])
        frontier = below
    for rank in range(len(frontier) * levels[-1]):
        children[frontier[rank // levels[-1]]].append(rank)
    return children


@dataclass(kw_only=True)
class Worker:
    """A worker's half, for one slot: round after round, the last two contributions repeated."""

    rank: int
    workers: int
    rounds: int
    values: np.ndarray[Any, np.dtype[np.int64]]
    """One row of lanes for each round; rows of zeros are skipped."""
    done: int = 0
    is_sending: bool = False
    outstanding: bool = False
    results: list[tuple[int, bytes]] = field(default_factory=list)
    """Flags and lanes."""
    answers: set[Kind] = field(default_factory=set)

    def contribution(self, at: int, leaf: Address, flags: int = 0) -> bytes:
        lanes = self.values[at].astype(">i4").tobytes() if self.values[at].any() else b""
        header = Header(
            kind=Kind.CONTRIBUTION,
            flags=flags | (Flag.PAYLOAD if lanes else 0) | (Flag.RECALL if at < self.done else 0),
            job=JOB,
            epoch=EPOCH,
            rank=self.rank,
            slot=5,
            number=(FIRST_NUMBER + at) & 0xFFFF_FFFF,
            block=at,
            next_block=at + 1 + self.rank if at + 1 < self.rounds else NO_BLOCK,
            next_exponent=100 + self.rank,
            cookie=900 + self.rank,
        )
        return build_frame(worker_address(self.rank), leaf, header, lanes)

    def repeats(self, leaf: Address) -> list[bytes]:
        """Return what it sends again and again."""
        at = [self.done] * self.is_sending + [self.done - 1] * (self.is_sending or self.outstanding)
        return [self.contribution(one, leaf, Flag.REPEAT) for one in at if one >= 0]

    def receive(self, frame: bytes) -> None:
        packet = parse_frame(frame)
        assert packet is not None
        header = packet.header
        assert (header.rank, header.cookie, header.slot) == (self.rank, 900 + self.rank, 5)
        assert not header.flags & (Flag.FINAL | Flag.RECALL)
        self.answers.add(Kind(header.kind))
        if header.kind == Kind.RESULT and self.is_sending and header.number == (FIRST_NUMBER + self.done) & 0xFFFF_FFFF:
            self.results.append((int(header.flags), packet.payload))
            is_last = self.done + 1 == self.rounds
            assert header.next_block == (NO_BLOCK if is_last else self.done + 1)
            assert header.next_exponent == (99 + self.workers if is_last else 100)
            self.done += 1
            self.is_sending = False


class World:
    """A tree of switches, its workers, and all frames that were ever sent."""

    def __init__(self, children: list[list[int]], rounds: int, random: Random, switch: type[TreeSwitch]) -> None:
        self.children, self.random = children, random
        self.switches = [switch(lanes_per_frame=LANES, address=switch_address(at)) for at in range(len(children))]
        self.parent = {child: at for at, ones in enumerate(children) for child in ones}
        ranks = [child for ones in children for child in ones if child >= 0]
        size = (len(ranks), rounds, LANES)
        table = np.random.default_rng(random.randrange(2**32)).integers(-(10**6), 10**6, size)
        table[[[random.random() < 0.5 for _ in range(rounds)] for _ in ranks]] = 0
        self.sums = table.sum(axis=0)
        self.workers = [Worker(rank=at, workers=len(ranks), rounds=rounds, values=table[at]) for at in ranks]
        for at, ones in enumerate(children):
            for place, child in enumerate(ones):
                self._connect(at, place, child)
        self.sent: list[tuple[int, int, bytes]] = []
        """Where to (a worker's rank, or -1 less a switch), the port there, and the frame."""

    def _connect(self, at: int, place: int, child: int) -> None:
        is_switch = child < 0
        rank = 1000 - child if is_switch else child
        member = TreeMember(
            job=JOB,
            rank=rank,
            epoch=EPOCH,
            cookie=900 + rank,
            address=switch_address(-child) if is_switch else worker_address(child),
            port=place,
            workers=len(self.children[at]),
            place=place,
            is_switch=is_switch,
            first_slot=5 + at,
            slot_count=1,
        )
        # Workers name the slots of their own switch, 5 at each: only inner switches number them otherwise.
        self.switches[at].admit(member if is_switch else replace(member, first_slot=5))
        if is_switch:
            leaf_slot = 5 if self.children[-child][0] >= 0 else 5 - child
            self.switches[-child].attach(
                Upstream(
                    job=JOB,
                    epoch=EPOCH,
                    rank=rank,
                    cookie=900 + rank,
                    address=switch_address(at),
                    port=UP,
                    members=len(self.children[-child]),
                    first_slot=leaf_slot,
                    first_slot_above=5 + at,
                    slot_count=1,
                )
            )

    def send(self, worker: Worker, frames: list[bytes]) -> None:
        at = self.parent[worker.rank]
        self.sent += [(-1 - at, self.children[at].index(worker.rank), frame) for frame in frames]

    def deliver(self, target: int, port: int, frame: bytes) -> None:
        if target >= 0:
            self.workers[target].receive(frame)
            return
        at = -1 - target
        for out, reply in self.switches[at].process(port, frame):
            if out == UP:
                parent = self.parent[-at]
                self.sent.append((-1 - parent, self.children[parent].index(-at), reply))
            else:
                child = self.children[at][out]
                self.sent.append((child, 0, reply) if child >= 0 else (-1 + child, UP, reply))

    def leaf(self, worker: Worker) -> Address:
        return switch_address(self.parent[worker.rank])

    def contribute(self, worker: Worker) -> None:
        if not worker.is_sending and worker.done < worker.rounds:
            worker.is_sending, worker.outstanding = True, False
            self.send(worker, [worker.contribution(worker.done, self.leaf(worker))])

    def clear(self, at: int) -> None:
        self.switches[at].clear()
        for worker in self.workers:  # heartbeats tell all
            worker.outstanding = True

    def step(self, clears: int) -> int:
        """Do anything that may happen; return how many clears are left."""
        random = self.random
        choice = random.random()
        worker = random.choice(self.workers)
        if choice < 0.2:
            self.contribute(worker)
        elif choice < 0.35:
            self.send(worker, worker.repeats(self.leaf(worker)))
        elif choice < 0.36 and clears:
            self.clear(random.randrange(len(self.switches)))
            return clears - 1
        elif self.sent:
            # Any frame that was ever sent, of which the latest are likelier; some stay to come once more.
            at = random.choice([random.randrange(len(self.sent)), -1 - random.randrange(min(8, len(self.sent)))])
            frame = self.sent[at]
            if random.random() < 0.6:
                del self.sent[at]
            if random.random() < 0.8:
                self.deliver(*frame)
        return clears

    def finish(self) -> bool:
        """Lose what is under way; from now on nothing is lost.  Tell whether every worker is served."""
        self.sent.clear()
        for _ in range(12 * self.workers[0].rounds):
            for worker in self.workers:
                self.contribute(worker)
                self.send(worker, worker.repeats(self.leaf(worker)))
            self.random.shuffle(self.sent)
            while self.sent:
                self.deliver(*self.sent.pop(self.random.randrange(len(self.sent))))
            if all(worker.done == worker.rounds for worker in self.workers):
                return True
        return False

    def are_results_right(self) -> bool:
        """Tell whether each result that a worker has taken is the sum, and has lanes if any contribution had."""
        return all(
            payload == (self.sums[at].astype(">i4").tobytes() if flags & Flag.PAYLOAD else b"")
            and bool(flags & Flag.PAYLOAD) == any(other.values[at].any() for other in self.workers)
            for worker in self.workers
            for at, (flags, payload) in enumerate(worker.results)
        )


def live(levels: list[int], seed: int, *, rounds: int = 5, clears: int, switch: type[TreeSwitch] = TreeSwitch) -> World:
    """Let a world go its way for a while."""
    world = World(shape(levels), rounds, Random(seed), switch)
    for _ in range(60 * rounds * len(levels)):
        clears = world.step(clears)
    return world


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([[1, 2], [2, 2], [3, 1], [2, 2, 2], [3]]), st.integers(0, 2**32), st.integers(0, 3))
def test_every_worker_gets_the_right_sums_under_loss_duplication_reordering_and_clears(
    levels: list[int], seed: int, clears: int
) -> None:
    world = live(levels, seed, clears=clears)
    assert world.finish()
    assert world.are_results_right()


class AnyNumber(TreeSwitch):
    def is_result_taken(self, cell: Cell, number: int, upstream: Upstream) -> bool:
        return cell.seen == upstream.everybody and not cell.flags & Flag.FINAL


class OpenRound(TreeSwitch):
    def is_result_taken(self, cell: Cell, number: int, upstream: Upstream) -> bool:
        return cell.seen != 0 and cell.number == number and not cell.flags & Flag.FINAL


class PartialAsResult(TreeSwitch):
    def is_settled(self, cell: Cell, everybody: int, upstream: Upstream | None) -> bool:
        return cell.seen == everybody


class NoRecall(TreeSwitch):
    def goes_up_again(self, header: Header) -> bool:
        return False


class OneAlone(TreeSwitch):
    def stands_for_all(self, member: AdmittedMember, cell: Cell, header: Header) -> bool:
        return cell.asked == 0


@pytest.mark.parametrize("broken", [AnyNumber, OpenRound, PartialAsResult, NoRecall, OneAlone])
def test_a_broken_rule_is_noticed(broken: type[TreeSwitch]) -> None:
    for seed in range(400):
        try:
            world = live([2, 2], seed, clears=3, switch=broken)
            if not (world.finish() and world.are_results_right()):
                return
        except AssertionError:
            return
    pytest.fail("all went well")


def contribution(rank: int, leaf: int, lanes: list[int], **fields: int) -> bytes:
    header = Header(kind=Kind.CONTRIBUTION, flags=Flag.PAYLOAD, job=JOB, epoch=EPOCH, rank=rank, slot=5, number=1)
    header = replace(header, cookie=900 + rank, **fields)
    return build_frame(worker_address(rank), switch_address(leaf), header, np.array(lanes, ">i4").tobytes())


def results(contributions: list[bytes], levels: list[int]) -> tuple[World, list[tuple[int, Header, bytes]]]:
    """Send one contribution of each worker, lose nothing; return what the workers get."""
    world = World(shape(levels), 1, Random(1), TreeSwitch)
    for worker, frame in zip(world.workers, contributions, strict=True):
        world.send(worker, [frame])
    got = []
    while world.sent:
        target, port, frame = world.sent.pop(0)
        if target < 0:
            world.deliver(target, port, frame)
        elif packet := parse_frame(frame):
            got.append((target, packet.header, packet.payload))
    return world, got


@pytest.mark.parametrize("operator", Operator)
def test_a_tree_gives_the_same_bits_as_one_switch(operator: Operator) -> None:
    lanes = [[rank * 3 - 5, 2**31 - 1 - rank, -rank, 1 << rank] for rank in range(4)]
    trees = []
    for levels in ([4], [2, 2]):
        leaves = [0] * 4 if levels == [4] else [1, 1, 2, 2]
        frames = [contribution(rank, leaves[rank], lanes[rank], operator=operator, exponent=9) for rank in range(4)]
        _, got = results(frames, levels)
        assert [rank for rank, _, _ in got] == [0, 1, 2, 3]
        trees.append([(replace(header, bitmap=0), payload) for _, header, payload in got])
    assert trees[0] == trees[1]
    assert bool(trees[1][0][0].flags & Flag.OVERFLOW) == (operator is Operator.SUM)


@pytest.mark.parametrize("odd", range(4))
def test_a_mismatch_and_a_mark_reach_every_worker(odd: int) -> None:
    frames = [
        contribution(
            rank, 1 + rank // 2, [rank] * 4, digest=rank == odd, flags=Flag.PAYLOAD | (Flag.MARK if rank == odd else 0)
        )
        for rank in range(4)
    ]
    _, got = results(frames, [2, 2])
    assert len(got) == 4
    assert all(header.flags & Flag.MISMATCH and header.flags & Flag.MARK for _, header, _ in got)


def test_a_worker_cannot_say_that_its_lanes_are_final_or_that_others_differ() -> None:
    flags = Flag.PAYLOAD | Flag.FINAL | Flag.OVERFLOW | Flag.MISMATCH
    frames = [contribution(rank, 1 + rank // 2, [rank] * 4, flags=flags) for rank in range(4)]
    _, got = results(frames, [2, 2])
    assert [(header.flags, payload) for _, header, payload in got] == [(Flag.PAYLOAD, bytes([0, 0, 0, 6] * 4))] * 4


def test_a_result_counts_only_from_the_switch_above() -> None:
    world = World(shape([2, 2]), 1, Random(1), TreeSwitch)
    leaf = world.switches[1]
    for port in (0, 1):
        leaf.process(port, contribution(port, 1, [1] * 4))
    right = Header(kind=Kind.RESULT, flags=Flag.PAYLOAD, job=JOB, epoch=EPOCH, rank=1001, slot=5, number=1, cookie=1901)
    above = switch_address(0)

    def came(header: Header, source: Address, port: int) -> Reason | None:
        before = leaf.events.copy()
        replies = leaf.process(port, build_frame(source, switch_address(1), header, bytes(16)))
        if replies:
            return None
        (reason,) = leaf.events - before
        return reason

    assert came(right, above, 0) == Reason.NOT_ADMITTED  # a member's port
    assert came(right, worker_address(0), 0) == Reason.NOT_ADMITTED
    assert came(right, worker_address(0), UP) == Reason.NOT_ADMITTED
    assert came(replace(right, rank=0), above, UP) == Reason.NOT_ADMITTED
    assert came(replace(right, cookie=5), above, UP) == Reason.COOKIE
    assert came(replace(right, slot=6), above, UP) == Reason.SLOT
    assert came(replace(right, epoch=4), above, UP) == Reason.KIND
    assert came(replace(right, number=3), above, UP) == Reason.STALE
    assert came(replace(right, kind=Kind.QUERY), above, UP) == Reason.KIND
    assert came(right, above, UP) is None
    assert came(right, above, UP) == Reason.STALE  # once


@pytest.mark.parametrize(("kind", "reason"), [(Kind.HELD, 0), (Kind.REJECT, int(Reason.NOT_ADMITTED))])
def test_what_the_switch_above_has_to_say_reaches_all_members(kind: Kind, reason: int) -> None:
    world = World(shape([2, 2]), 1, Random(1), TreeSwitch)
    leaf = world.switches[1]
    for port in (0, 1):
        replies = leaf.process(port, contribution(port, 1, [1] * 4))
    ((out, partial),) = replies
    packet = parse_frame(partial)
    assert out == UP
    assert packet is not None
    header = replace(packet.header, kind=kind, flags=0, reason=reason, bitmap=1)
    reported = leaf.process(UP, build_frame(switch_address(0), switch_address(1), header))
    answers = [parse_frame(frame) for _, frame in reported]
    assert [port for port, _ in reported] == [0, 1]
    for rank, answer in enumerate(answers):
        assert answer is not None
        assert (answer.header.kind, answer.header.reason, answer.header.rank) == (kind, reason, rank)
        assert answer.header.bitmap == 3  # of the leaf's own members, none is missing


def test_a_leaf_of_two_trees_sends_each_slot_to_its_own_root() -> None:
    leaf = TreeSwitch(lanes_per_frame=LANES, address=switch_address(1))
    for tree in (0, 1):
        above = Upstream(
            job=JOB,
            tree=tree,
            epoch=EPOCH,
            rank=1000,
            cookie=5,
            address=switch_address(8 + tree),
            port=UP + tree,
            members=1,
        )
        leaf.attach(above)
        leaf.admit(
            TreeMember(
                job=JOB,
                tree=tree,
                rank=0,
                epoch=EPOCH,
                cookie=900,
                address=worker_address(0),
                port=0,
                workers=1,
                place=0,
                first_slot=5 + tree,
                slot_count=1,
            )
        )
    for tree in (0, 1):
        ((port, frame),) = leaf.process(0, contribution(0, 1, [tree] * 4, tree=tree, slot=5 + tree))
        partial = parse_frame(frame)
        assert port == UP + tree
        assert partial is not None
        assert partial.destination.ip == switch_address(8 + tree).ip
        assert leaf.process(0, contribution(0, 1, [tree] * 4, tree=tree, slot=6 - tree))  # the other tree's: refused
        result = replace(partial.header, kind=Kind.RESULT)
        elsewhere = build_frame(switch_address(9 - tree), switch_address(1), result, bytes(16))
        assert leaf.process(UP + 1 - tree, elsewhere) == []
        reported = leaf.process(UP + tree, build_frame(switch_address(8 + tree), switch_address(1), result, bytes(16)))
        assert [out for out, _ in reported] == [0]
