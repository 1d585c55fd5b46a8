"""All that a slot of a switch can do: each state that a few workers can bring it into, and what each frame does there.

A *switch* is the P4 program on one of our engines, or its definition in plain Python (`protocol.slot_rules`).  The
network may do what it likes: any contribution of a worker may arrive in any state, any number of times or never, before
and after the slot passes to the next incarnation.  So two switches with the same relation cannot be told apart by
workers, whatever is lost, repeated, delayed or handed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from switchsum_controller.jobs import slots
from switchsum_protocol.frame import NO_BLOCK, Flag, Header, Kind, Reason
from switchsum_protocol.slot_rules import SWITCH_ADDRESS, AdmittedMember
from switchsum_protocol.wire import Packet, build_frame, parse_frame
from switchsum_switch.wires.headers import Address

from .switches import (
    BIG_LANE,
    BLOCKS,
    CPU_PORT,
    JOB,
    LANES,
    MOST,
    NONE,
    NUMBERS,
    OPERATIONS,
    ROUND_LANE,
    ROUNDS,
    SLOT,
    State,
    Switch,
    abstract,
)

FIRST_NUMBER: Final = 0xFFFF_FFFE
"""Of the first round, so that numbers wrap on the way; the model's is 30."""
OTHER_OPERATION: Final = 4
"""Added to the digest of a worker that issues another operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What the workers want added, as data.pml chooses it."""

    workers: int
    blocks: tuple[int, ...]
    """Bit b: block b is not zero; by worker of the first incarnation, then by worker of the second."""
    odd_worker: int = MOST
    """Issues another operation than the others; MOST: none does."""
    odd_operation: int = 0
    is_big: bool = False
    """Sums of two workers' lanes overflow."""
    hands_over: bool = False
    """The slot passes to the second incarnation at any moment."""

    def of(self, incarnation: int, rank: int) -> int:
        """Return a worker's blocks."""
        return self.blocks[incarnation * self.workers + rank]

    def all_blocks(self, incarnation: int) -> int:
        """Return the blocks that are not zero at some worker."""
        return int(np.bitwise_or.reduce(self.blocks[incarnation * self.workers : (incarnation + 1) * self.workers]))

    def rounds(self, incarnation: int) -> list[tuple[int, int]]:
        """Return operation and block of each round."""
        blocks = [NONE, *(block for block in range(BLOCKS) if self.all_blocks(incarnation) >> block & 1)]
        return [(operation, block) for operation in range(OPERATIONS) for block in blocks]


class Contribution(NamedTuple):
    """Which one has arrived: of which incarnation, worker and round."""

    incarnation: int
    rank: int
    round: int


CONTROLLER: Final = 2
"""In the place of an incarnation: the controller does something, to the cell of number `round` or to the slot."""
QUERIES: Final = tuple(Contribution(CONTROLLER, int(Kind.QUERY), version) for version in (0, 1))
CLEARS: Final = tuple(Contribution(CONTROLLER, int(Kind.SET), version) for version in (0, 1))
HAND_OVER: Final = Contribution(CONTROLLER, 0, 0)
"""The slot passes to the second incarnation."""


class Decision(IntEnum):
    """What became of a contribution, as seen from outside: by the frames that left and by the cells."""

    REFUSED = 0
    """The sender alone got REJECT."""
    DROPPED = 1
    JOINED = 2
    """The cells changed, and no frame left."""
    HELD = 3
    REPEATED = 4
    """The sender alone got a RESULT."""
    COMPLETED = 5
    """Each member got a RESULT."""
    ANSWERED = 6
    """The controller got STATE."""
    HANDED_OVER = 7
    OTHER = 8
    """None of the above."""


class Slot(NamedTuple):
    """A state of the slot as a whole."""

    cells: tuple[State, State]
    base: int = -1
    """Number of the second incarnation's first round, or -1: the first one's members are admitted."""


class Step(NamedTuple):
    """One element of the relation."""

    data: Data
    before: Slot
    what: Contribution
    decision: Decision
    replies: tuple[tuple[int, int, State], ...]
    """Port, kind and contents of the frames that left."""
    counted: tuple[Reason, ...]
    """What it was counted as."""
    after: Slot


Relation = dict[tuple[Slot, Contribution], Step]
"""Steps by the state and by what happens in it."""


def member(data: Data, incarnation: int, rank: int) -> AdmittedMember:
    """Return a member's entry."""
    return AdmittedMember(
        job=JOB,
        rank=rank,
        epoch=1 + incarnation,
        cookie=0xC0FF_EE00 + rank,
        address=Address(mac=0x02_00_00_00_01_00 + rank, ip=0x0A_00_00_64 + rank, port=40_000 + rank),
        port=rank + 1,
        workers=data.workers,
        first_slot=SLOT,
        slot_count=1,
    )


def frame_of(data: Data, what: Contribution, base: int) -> bytes:
    """Return a worker's contribution to a round; `base` is the number of its incarnation's first one."""
    incarnation, rank, place = what
    sender, own = member(data, incarnation, rank), data.of(incarnation, rank)
    operation, block = data.rounds(incarnation)[place]
    pays = block != NONE and own >> block & 1
    is_odd = incarnation == 0 and rank == data.odd_worker and operation == data.odd_operation
    first = 0 if block == NONE else block + 1
    named = next((b for b in range(first, BLOCKS) if own >> b & 1), NONE)
    lanes = np.zeros(LANES, ">i4")
    lanes[rank] = lanes[ROUND_LANE + incarnation * ROUNDS + place] = 1
    lanes[BIG_LANE] = data.is_big << 30
    members = range(data.workers)
    header = Header(
        kind=Kind.CONTRIBUTION,
        flags=Flag.PAYLOAD if pays else Flag(0),
        job=JOB,
        epoch=sender.epoch,
        rank=rank,
        cookie=sender.cookie,
        slot=SLOT,
        number=(base + place) & 0xFFFF_FFFF,
        block=NO_BLOCK if block == NONE else block,
        exponent=0 if block == NONE else max(_exponent(data, incarnation, other, block) for other in members),
        next_block=NO_BLOCK if named == NONE else named,
        next_exponent=_exponent(data, incarnation, rank, named),
        digest=operation + (OTHER_OPERATION if is_odd else 0),
    )
    return build_frame(sender.address, SWITCH_ADDRESS, header, lanes.tobytes() if pays else b"")


def _exponent(data: Data, incarnation: int, rank: int, block: int) -> int:
    if block == NONE or not data.of(incarnation, rank) >> block & 1:
        return 0
    return 1 + (rank + block & 1)


def relation(switch: Switch, data: Data) -> Relation:
    """Return each step from each state that can be reached."""
    return {(step.before, step.what): step for step in steps(switch, data)}


def difference(switch: Switch, data: Data, expected: Relation) -> tuple[Step, Step | None] | None:
    """Return the first step that another relation does not have, with the one that it has; None: there is none."""
    count = 0
    for step in steps(switch, data):
        count += 1
        if (other := expected.get((step.before, step.what))) != step:
            return step, other
    assert count == len(expected)  # the same steps lead to the same states
    return None


def steps(switch: Switch, data: Data) -> Iterator[Step]:
    """Yield each step from each state that can be reached, nearest states first."""
    start = Slot((State(), State()))
    switch.load(None)
    waiting, saved = deque([start]), {start: switch.save()}
    admitted = None
    while waiting:
        before = waiting.popleft()
        if admitted != (before.base >= 0):
            admitted = before.base >= 0
            switch.admit([member(data, int(admitted), rank) for rank in range(data.workers)])
        for what in _possible(data, before):
            switch.load(saved[before])
            step = _step(switch, data, before, what)
            if step.after not in saved:
                saved[step.after] = switch.save()
                waiting.append(step.after)
            yield step


def _possible(data: Data, before: Slot) -> Iterator[Contribution]:
    for incarnation in range(2 if before.base >= 0 else 1):
        for rank in range(data.workers):
            for place in range(len(data.rounds(incarnation))):
                yield Contribution(incarnation, rank, place)
    if data.hands_over and before.base < 0:
        yield HAND_OVER
    if not data.hands_over:
        yield from QUERIES
        yield from CLEARS


def _step(switch: Switch, data: Data, before: Slot, what: Contribution) -> Step:
    if what == HAND_OVER:
        after = Slot(before.cells, _first_number(before.cells))
        return Step(data, before, what, Decision.HANDED_OVER, (), (), after)
    counts = switch.counts()
    if what.incarnation == CONTROLLER:
        request = Header(kind=Kind(what.rank), job=JOB, slot=SLOT, number=what.round)
        answer = switch.ask(request)
        replies: tuple[tuple[int, int, State], ...] = ()
        if answer is not None:
            replies = ((CPU_PORT, int(answer.kind), _described(answer, b"")),)
        decision = Decision.ANSWERED if answer is not None else Decision.OTHER
        after = Slot(switch.cells(), before.base)
    else:
        base = before.base if what.incarnation else FIRST_NUMBER
        frames = switch.process(what.rank + 1, frame_of(data, what, base))
        after = Slot(switch.cells(), before.base)
        replies = tuple(sorted(_reply(port, parse_frame(frame)) for port, frame in frames))
        decision = _decision(data, what, replies, after != before)
    counted = tuple(
        reason for reason, then, now in zip(Reason, counts, switch.counts(), strict=True) for _ in range(now - then)
    )
    return Step(data, before, what, decision, replies, counted, after)


def _first_number(cells: tuple[State, State]) -> int:
    """Return the number that the controller chooses; the model's are those modulo 32 that are nearest to the first."""
    read = [
        slots.Cell(
            slot=SLOT,
            version=version,
            number=(FIRST_NUMBER + (cell.number - FIRST_NUMBER) % NUMBERS) & 0xFFFF_FFFF,
            seen=cell.seen,
        )
        for version, cell in enumerate(cells)
    ]
    number, _ = slots.plan_numbers(read)
    return number if any(cell.seen for cell in cells) else FIRST_NUMBER


def _reply(port: int, packet: Packet | None) -> tuple[int, int, State]:
    if packet is None:
        return port, -1, State()
    return port, int(packet.header.kind), _described(packet.header, packet.payload)


def _described(header: Header, lanes: bytes) -> State:
    return abstract(
        number=header.number,
        seen=header.bitmap,
        exponent=header.exponent,
        block=header.block,
        digest=header.digest,
        next_block=header.next_block,
        next_exponent=header.next_exponent,
        flags=header.flags,
        lanes=lanes,
    )


def _decision(
    data: Data, what: Contribution, replies: tuple[tuple[int, int, State], ...], is_changed: bool
) -> Decision:
    seen = [(port, kind) for port, kind, _ in replies]
    sender = what.rank + 1
    if not seen:
        return Decision.JOINED if is_changed else Decision.DROPPED
    if is_changed and seen == [(rank + 1, Kind.RESULT) for rank in range(data.workers)]:
        return Decision.COMPLETED
    alone = {Kind.REJECT: Decision.REFUSED, Kind.HELD: Decision.HELD, Kind.RESULT: Decision.REPEATED}
    if is_changed or len(seen) != 1 or seen[0][0] != sender:
        return Decision.OTHER
    return alone.get(Kind(seen[0][1]), Decision.OTHER)


QUICK: Final = (
    Data(workers=2, blocks=(1, 1, 0, 0), is_big=True),
    Data(workers=2, blocks=(2, 3, 0, 0)),
    Data(workers=2, blocks=(1, 0, 0, 0), odd_worker=1),
    Data(workers=2, blocks=(0, 1, 0, 0), hands_over=True),
    Data(workers=3, blocks=(1, 0, 1, 0, 0, 0)),
)
"""With these each row of the slot's rules applies."""
