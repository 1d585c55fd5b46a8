"""Shared slots in the P4 program, at the switch and at the fallback: frame for frame `protocol.shared_rules`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Set
from typing import Any

import numpy as np
import pytest

from support.beside import Beside
from switchsum.testing.bmv2 import Bmv2
from switchsum.testing.embedded import Embedded
from switchsum.testing.rig import CPU_PORT, Engine
from switchsum_protocol.frame import NO_BLOCK, Flag, Header, Kind, Reason
from switchsum_protocol.shared_rules import AGE_US, ORPHAN_AGE, Fallback, SharedMember, SharedSwitch
from switchsum_protocol.slot_rules import Replies
from switchsum_protocol.tree_rules import TreeMember
from switchsum_protocol.wire import build_frame, parse_frame
from switchsum_switch.wires.headers import Address

LANES = 128
EPOCH, MEMBERS = 3, 2
THERE = 4
"""Port of the switch that leads to the fallback, and of the fallback that leads to the switch."""
RELAY = 2
"""Rank of the switch as a member of the fallback."""
SLOTS = 4
FIRST = 16
"""The first slot that jobs share."""
MIXED = 9
"""A job that has a slot of its own, too: as its first tree; the shared ones are the second one."""
JOBS = (7, 8, MIXED)
OWN = 24
HERE_ADDRESS = Address(mac=0x02_00_00_00_01_01, ip=0x0A_00_01_01, port=21333)
THERE_ADDRESS = Address(mac=0x02_00_00_00_01_02, ip=0x0A_00_01_02, port=21333)
ADMISSION = "SwitchIngress.validate.admission"
CONTROL = "SwitchIngress.dispatch.cells.fallback"


def first_there(job: int) -> int:
    """Return the first of a job's own slots at the fallback."""
    return 40 + 8 * (job - JOBS[0])


def tree(job: int) -> int:
    """Return the tree of a job that has the shared slots."""
    return int(job == MIXED)


def cookie(job: int, rank: int) -> int:
    return 1000 * job + rank


def address(job: int, rank: int) -> Address:
    return Address(mac=0x02_00_00_00_02_00 + 16 * job + rank, ip=0x0A_00_02_00 + 16 * job + rank, port=5000 + rank)


def group(job: int) -> int:
    return 10 + job


def program(engine: Engine, *, is_fallback: bool) -> Engine:
    """Write the entries that a controller would write."""
    own = THERE_ADDRESS if is_fallback else HERE_ADDRESS
    engine.set_default("SwitchIngress.identity", "SwitchIngress.identify", (own.mac, own.ip, own.port, 65535))
    everybody = (1 << MEMBERS) - 1
    for job in JOBS:
        first = first_there(job) if is_fallback else FIRST
        replicas = [(THERE, RELAY)] if is_fallback else [(rank + 1, rank) for rank in range(MEMBERS)]
        engine.set_group(group(job), replicas)
        for rank in range(MEMBERS):
            source, port = (HERE_ADDRESS, THERE) if is_fallback else (address(job, rank), rank + 1)
            engine.insert(
                f"{ADMISSION}.admission",
                (job, tree(job), rank, EPOCH, source.ip, source.port, port),
                f"{ADMISSION}.admit_shared",
                (1 << rank, everybody, first, SLOTS, group(job), cookie(job, rank), int(is_fallback)),
            )
            if job == MIXED and not is_fallback:
                engine.insert(
                    f"{ADMISSION}.admission",
                    (job, 0, rank, EPOCH, source.ip, source.port, port),
                    f"{ADMISSION}.admit",
                    (1 << rank, everybody, OWN, 1, group(job), cookie(job, rank)),
                )
        for _, rank in replicas:
            place = HERE_ADDRESS if is_fallback else address(job, rank)
            where = (place.mac, place.ip, place.port, cookie(job, rank))
            engine.insert("SwitchEgress.result_address", (job, rank), "SwitchEgress.address", where)
        if is_fallback:
            engine.insert(
                f"{ADMISSION}.admission",
                (job, tree(job), RELAY, EPOCH, HERE_ADDRESS.ip, HERE_ADDRESS.port, THERE),
                f"{ADMISSION}.admit_switch",
                (1, everybody, first, SLOTS, group(job), cookie(job, RELAY), 0),
            )
            continue
        far, who = THERE_ADDRESS, (RELAY, cookie(job, RELAY))
        shift = first_there(job) - FIRST
        there = (THERE, far.mac, far.ip, far.port, *who, shift, 0)
        engine.insert(f"{CONTROL}.fallback", (job, tree(job), EPOCH), f"{CONTROL}.pass", there)
        above = (far.ip, far.port, THERE, *who, first_there(job), SLOTS, FIRST, group(job))
        engine.insert(
            "SwitchIngress.validate.above.above", (job, tree(job), EPOCH), "SwitchIngress.validate.above.relay", above
        )
    return engine


def definition(*, is_fallback: bool) -> SharedSwitch:
    switch = SharedSwitch(lanes_per_frame=LANES, address=THERE_ADDRESS if is_fallback else HERE_ADDRESS)
    for job in JOBS:
        common: dict[str, Any] = {
            "job": job,
            "tree": tree(job),
            "epoch": EPOCH,
            "workers": MEMBERS,
            "first_slot": first_there(job) if is_fallback else FIRST,
            "slot_count": SLOTS,
        }
        for rank in range(MEMBERS):
            switch.admit(
                SharedMember(
                    rank=rank,
                    cookie=cookie(job, rank),
                    address=HERE_ADDRESS if is_fallback else address(job, rank),
                    port=THERE if is_fallback else rank + 1,
                    place=rank,
                    is_at_fallback=is_fallback,
                    **common,
                )
            )
            if job == MIXED and not is_fallback:
                at: dict[str, Any] = {"cookie": cookie(job, rank), "address": address(job, rank), "port": rank + 1}
                own = {**common, "tree": 0, "first_slot": OWN, "slot_count": 1}
                switch.admit(TreeMember(rank=rank, place=rank, **at, **own))
        if is_fallback:
            relay: dict[str, Any] = {
                "rank": RELAY,
                "cookie": cookie(job, RELAY),
                "address": HERE_ADDRESS,
                "port": THERE,
            }
            switch.admit(TreeMember(place=0, is_switch=True, **relay, **common))
        else:
            switch.share(
                Fallback(
                    job=job,
                    tree=tree(job),
                    epoch=EPOCH,
                    rank=RELAY,
                    cookie=cookie(job, RELAY),
                    address=THERE_ADDRESS,
                    port=THERE,
                    first_slot=FIRST,
                    first_slot_there=first_there(job),
                    slot_count=SLOTS,
                )
            )
    return switch


class Side(Beside):
    """One of the two switches."""

    definition: SharedSwitch

    def __init__(self, engine: Engine, *, is_fallback: bool) -> None:
        super().__init__(program(engine, is_fallback=is_fallback), definition(is_fallback=is_fallback))

    def check_counters(self, but: Set[Reason] = frozenset({Reason.UNKNOWN_DESTINATION})) -> None:
        """Do so but for frames that ask BMv2 how far it is."""
        super().check_counters(but)


class Both:
    """The switch and the fallback, with a wire between them that loses what it is told to."""

    def __init__(self, here: Engine, there: Engine) -> None:
        self.here, self.there = Side(here, is_fallback=False), Side(there, is_fallback=True)
        self.is_cut = False
        """Frames to and from the fallback are lost."""

    def contribute(self, job: int, rank: int, value: int = 0, /, **fields: int) -> list[tuple[int, Header, bytes]]:
        """Send a contribution, with lanes unless the value is 0; return what reaches the members, in the end."""
        values = {"rank": rank, "cookie": cookie(job, rank), "slot": FIRST, "number": 1, "block": 0}
        values |= {"flags": Flag.PAYLOAD if value else 0, "digest": job, "tree": tree(job)} | fields
        header = Header(kind=Kind.CONTRIBUTION, job=job, epoch=EPOCH, **values)
        lanes = np.full(LANES, value, ">i4").tobytes() if value else b""
        return self.run([(rank + 1, build_frame(address(job, rank), HERE_ADDRESS, header, lanes))])

    def claim(self, job: int, rank: int, /, **fields: int) -> list[tuple[int, Header, bytes]]:
        return self.contribute(job, rank, **({"block": NO_BLOCK, "next_block": 0} | fields))

    def run(self, frames: Replies) -> list[tuple[int, Header, bytes]]:
        """Let the switch take frames, and both whatever follows."""
        answers: list[tuple[int, Header, bytes]] = []
        while frames:
            replies = self.here.process(*frames.pop(0))
            for port, frame in replies:
                if port == THERE:
                    frames += [] if self.is_cut else self.there.process(port, frame)
                else:
                    packet = parse_frame(frame)
                    assert packet is not None
                    answers.append((port, packet.header, packet.payload))
        return answers


def kinds(answers: list[tuple[int, Header, bytes]]) -> list[tuple[int, int, int]]:
    return [(port, header.kind, header.reason) for port, header, _ in answers]


def sums(answers: list[tuple[int, Header, bytes]]) -> list[int]:
    return [int.from_bytes(lanes[:4]) for _, _, lanes in answers]


RESULT_OURS = [(1, Kind.RESULT, 0), (2, Kind.RESULT, 0)]
RESULT_TAKEN = [(1, Kind.RESULT, Reason.TAKEN), (2, Kind.RESULT, Reason.TAKEN)]

EMBEDDED = [pytest.param(name, id=name) for name in ("interpreter", "native")]
BMV2 = pytest.param(
    "bmv2",
    id="bmv2",
    marks=[
        pytest.mark.skipif(
            shutil.which("simple_switch_grpc") is None or os.geteuid() != 0,
            reason="needs simple_switch_grpc on PATH, and root",
        ),
        pytest.mark.bmv2,
        pytest.mark.root,
    ],
)


@pytest.fixture(scope="module")
def two_bmv2s() -> Iterator[list[Bmv2]]:
    """Yield a list that has two running BMv2s once they are needed."""
    running: list[Bmv2] = []
    yield running
    for one in running:
        one.close()


@pytest.fixture(params=[*EMBEDDED, BMV2])
def both(request: pytest.FixtureRequest, two_bmv2s: list[Bmv2]) -> Both:
    if request.param != "bmv2":
        return Both(Embedded(LANES, request.param), Embedded(LANES, request.param))
    for one in two_bmv2s:
        one.reset()
    two_bmv2s += [Bmv2(LANES) for _ in range(2 - len(two_bmv2s))]
    return Both(*two_bmv2s)


def begin(both: Both, job: int, **fields: int) -> list[tuple[int, Header, bytes]]:
    """Let all members of a job claim the slot; return what the last claim brings."""
    assert both.claim(job, 0, **fields) == []
    return both.claim(job, 1, **fields)


def test_a_claim_takes_the_slot_and_the_fallback_completes_it(both: Both) -> None:
    assert kinds(begin(both, 7)) == RESULT_OURS
    assert both.there.definition.events[Reason.COMPLETED] == 1
    assert both.contribute(7, 0, 3, number=2) == []  # row D: in the slot
    answers = both.contribute(7, 1, 4, number=2, next_block=5)
    assert (kinds(answers), sums(answers)) == (RESULT_OURS, [7, 7])
    assert both.there.definition.events[Reason.COMPLETED] == 1
    both.here.check_counters()
    both.there.check_counters()


def test_a_slot_that_is_taken_sends_all_to_the_fallback(both: Both) -> None:
    begin(both, 7)
    assert both.claim(8, 0) == []
    assert both.here.counted == [Reason.TAKEN]
    assert kinds(both.claim(8, 1)) == RESULT_TAKEN
    both.contribute(7, 0, 3, number=2, next_block=5)
    both.contribute(8, 0, 30, number=2, next_block=5)
    assert both.here.counted == [Reason.TAKEN]
    answers = both.contribute(8, 1, 40, number=2, next_block=5)
    assert (kinds(answers), sums(answers)) == (RESULT_TAKEN, [70, 70])
    answers = both.contribute(7, 1, 4, number=2, next_block=5)
    assert (kinds(answers), sums(answers)) == (RESULT_OURS, [7, 7])
    both.here.check_counters()
    both.there.check_counters()


def test_what_finds_another_operation_of_its_own_job_is_a_repeat_and_not_taken(both: Both) -> None:
    """A member that has the last result repeats for the others' sake, after the job's next claim of the slot."""
    begin(both, 7)
    both.contribute(7, 0, 3, number=2)
    both.contribute(7, 1, 4, number=2)
    begin(both, 7, number=3, digest=9)
    both.is_cut = True
    assert both.contribute(7, 0, 3, number=2, flags=Flag.PAYLOAD | Flag.REPEAT | Flag.RECALL) == []
    assert both.here.counted == [Reason.REPEATED]
    both.here.check_counters()
    both.there.check_counters()


def test_a_result_is_not_called_taken_if_the_slot_was_free_for_the_last_claim(both: Both) -> None:
    """So members may count fewer results than the switch has counted contributions."""
    begin(both, 7)
    assert both.claim(8, 0) == []
    assert both.here.counted == [Reason.TAKEN]
    both.contribute(7, 0, 3, number=2)
    both.contribute(7, 1, 4, number=2)  # job 7 needs the slot no more
    assert kinds(both.claim(8, 1)) == RESULT_OURS
    both.here.check_counters()


def test_the_last_result_is_kept_at_the_fallback_and_frees_the_slot(both: Both) -> None:
    begin(both, 7)
    both.contribute(7, 0, 3, number=2)
    answers = both.contribute(7, 1, 4, number=2)  # row E: nobody names a next block
    assert (kinds(answers), sums(answers)) == (RESULT_OURS, [7, 7])
    assert both.there.definition.cells[first_there(7) << 1].flags & Flag.FINAL
    begin(both, 8)  # row A: takes it, and both cells are empty
    both.contribute(8, 0, 30, number=2, next_block=5)
    answers = both.contribute(7, 0, 3, number=2, flags=Flag.PAYLOAD | Flag.REPEAT)  # whose result was lost
    assert (kinds(answers), sums(answers)) == (RESULT_TAKEN, [7, 7])
    answers = both.contribute(8, 1, 40, number=2, next_block=5)
    assert (kinds(answers), sums(answers)) == (RESULT_OURS, [70, 70])
    both.here.check_counters()
    both.there.check_counters()


def test_a_last_result_that_is_lost_on_the_way_is_handed_in_again(both: Both) -> None:
    begin(both, 7)
    both.contribute(7, 0, 3, number=2)
    both.is_cut = True
    assert both.contribute(7, 1, 4, number=2) == []
    begin(both, 8)
    assert not both.here.definition.owners[FIRST].is_over  # nobody may take it before the fallback has the result
    assert both.here.definition.owners[FIRST].job == 7
    both.is_cut = False
    answers = both.contribute(7, 0, 3, number=2, flags=Flag.PAYLOAD | Flag.REPEAT)
    assert (kinds(answers), sums(answers)) == (RESULT_OURS, [7, 7])
    answers = both.contribute(7, 1, 4, number=2, flags=Flag.PAYLOAD | Flag.REPEAT)
    assert (kinds(answers), sums(answers)) == (RESULT_OURS, [7, 7])
    both.here.check_counters()
    both.there.check_counters()


def test_held_goes_to_all_members_here_and_from_the_fallback(both: Both) -> None:
    begin(both, 7)
    both.contribute(7, 1, 4, number=2)
    answers = both.contribute(7, 1, 4, number=2, flags=Flag.PAYLOAD | Flag.REPEAT)
    assert [(port, header.kind, header.bitmap) for port, header, _ in answers] == [(1, Kind.HELD, 2), (2, Kind.HELD, 2)]
    both.contribute(8, 0, 3, number=2)
    answers = both.contribute(8, 0, 3, number=2, flags=Flag.PAYLOAD | Flag.REPEAT)
    assert [(port, header.kind, header.bitmap) for port, header, _ in answers] == [(1, Kind.HELD, 1), (2, Kind.HELD, 1)]
    both.here.check_counters()
    both.there.check_counters()


def test_an_operation_that_met_a_taken_slot_gets_it_once_it_is_free(both: Both) -> None:
    begin(both, 7)
    begin(both, 8)
    both.contribute(8, 0, 30, number=2, next_block=5)
    answers = both.contribute(8, 1, 40, number=2, next_block=5)
    assert (kinds(answers), both.here.definition.owners[FIRST].job) == (RESULT_TAKEN, 7)
    both.contribute(7, 0, 3, number=2)
    both.contribute(7, 1, 4, number=2)  # job 7 needs the slot no more
    both.contribute(8, 0, 50, number=3, block=5, next_block=9)
    answers = both.contribute(8, 1, 60, number=3, block=5, next_block=9)  # row H: the fallback has added this round
    assert (kinds(answers), sums(answers), both.here.definition.owners[FIRST].job) == (RESULT_OURS, [110, 110], 8)
    both.contribute(8, 0, 70, number=4, block=9, next_block=12)
    assert both.here.counted == [Reason.CONTRIBUTED]
    answers = both.contribute(8, 1, 80, number=4, block=9, next_block=12)
    assert (kinds(answers), sums(answers)) == (RESULT_OURS, [150, 150])
    both.here.check_counters()
    both.there.check_counters()


def test_a_result_gives_nobody_a_slot_that_is_taken_or_that_the_operation_needs_no_more(both: Both) -> None:
    begin(both, 8, next_block=NO_BLOCK)  # nothing is left to be added
    assert both.here.definition.owners[FIRST].is_over
    begin(both, 7)
    answers = both.claim(8, 0, next_block=NO_BLOCK, flags=Flag.REPEAT)
    assert (kinds(answers), both.here.definition.owners[FIRST].job) == (RESULT_TAKEN, 7)
    both.contribute(7, 0, 3, number=2)
    both.contribute(7, 1, 4, number=2)
    both.contribute(8, 0, 3, number=2)
    answers = both.contribute(8, 1, 4, number=2)  # nor does a last result, with which the operation is over
    assert (kinds(answers), both.here.definition.owners[FIRST].job) == (RESULT_TAKEN, 7)
    both.here.check_counters()


def test_an_operation_without_lanes_is_over_with_its_claim(both: Both) -> None:
    begin(both, 7, next_block=NO_BLOCK)
    assert both.here.definition.owners[FIRST].is_over
    assert kinds(begin(both, 8)) == RESULT_OURS


def test_the_next_operation_of_a_job_takes_the_slot_from_the_one_before(both: Both) -> None:
    begin(both, 7)
    assert kinds(begin(both, 7, number=3, digest=70)) == RESULT_OURS
    assert both.claim(7, 0) == []  # a late copy of the first claim takes nothing back
    assert both.here.counted == [Reason.REPEATED]
    assert both.here.definition.owners[FIRST].digest == 70


def test_a_query_says_who_holds_a_slot(both: Both) -> None:
    def holder() -> int:
        request = Header(kind=Kind.QUERY, slot=FIRST)
        [(_, frame)] = both.here.program.process(CPU_PORT, bytes(2) + build_frame(HERE_ADDRESS, HERE_ADDRESS, request))
        packet = parse_frame(frame[2:])
        assert packet is not None
        assert both.here.definition.answer_request(request).cookie == packet.header.cookie
        return packet.header.cookie

    assert holder() == 0
    begin(both, 7)
    assert holder() == 7 << 48 | EPOCH << 32 | 7
    begin(both, 7, number=3, digest=70, next_block=NO_BLOCK)
    assert holder() == 0


def test_only_the_fallback_itself_is_relayed(both: Both) -> None:
    begin(both, 7)
    header = Header(kind=Kind.RESULT, job=7, epoch=EPOCH, rank=RELAY, cookie=cookie(7, RELAY), slot=first_there(7))
    stranger = address(8, 0)
    for source, port, fields, reason in (
        (stranger, THERE, {}, Reason.NOT_ADMITTED),
        (THERE_ADDRESS, 1, {}, Reason.NOT_ADMITTED),
        (THERE_ADDRESS, THERE, {"rank": 0}, Reason.NOT_ADMITTED),
        (THERE_ADDRESS, THERE, {"cookie": 5}, Reason.COOKIE),
        (THERE_ADDRESS, THERE, {"slot": first_there(7) + SLOTS}, Reason.SLOT),
        (THERE_ADDRESS, THERE, {"kind": Kind.REJECT}, Reason.KIND),
    ):
        values = {name: getattr(header, name) for name in Header.__dataclass_fields__} | fields
        assert both.here.process(port, build_frame(source, HERE_ADDRESS, Header(**values))) == []
        assert both.here.counted == [reason]
    both.here.check_counters()


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_a_slot_whose_owner_is_silent_may_be_taken(engine: Any) -> None:
    here = Embedded(LANES, engine)
    both = Both(here, Embedded(LANES, engine))

    def wait(ages: int) -> None:
        both.here.definition.now_us += ages * AGE_US
        here.now_us = both.here.definition.now_us

    begin(both, 7)
    wait(ORPHAN_AGE)
    assert both.claim(8, 0) == []
    assert both.here.counted == [Reason.TAKEN]
    both.contribute(7, 0, 3, number=2)  # the owner is heard of
    wait(ORPHAN_AGE)
    both.claim(8, 1)
    assert both.here.definition.owners[FIRST].job == 7
    wait(1)
    both.claim(8, 1)
    assert both.here.definition.owners[FIRST].job == 8
    # The orphan goes on at the fallback, with what it has: the same sum.
    both.contribute(7, 1, 4, number=2)
    answers = both.contribute(7, 0, 3, number=2, flags=Flag.PAYLOAD | Flag.REPEAT)
    assert (kinds(answers), sums(answers)) == (RESULT_TAKEN, [7, 7])


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_random_frames_of_two_jobs_do_what_the_definition_says(engine: Any) -> None:
    here = Embedded(LANES, engine)
    both = Both(here, Embedded(LANES, engine))
    random = np.random.default_rng(5)
    for _ in range(400):
        job, rank, number = random.choice(JOBS), random.integers(MEMBERS), int(random.integers(1, 7))
        both.is_cut = bool(random.random() < 0.2)
        if random.random() < 0.1:
            both.here.definition.now_us += int(random.integers(2 * ORPHAN_AGE * AGE_US))
            here.now_us = both.here.definition.now_us
        is_last = number % 3 == 0
        digest = 10 * int(job) + (number - 1) // 3
        next_block = NO_BLOCK if is_last else 5
        if number % 3 == 1:
            both.claim(int(job), int(rank), number=number, digest=digest)
        else:
            value = int(random.integers(0, 3))
            fields = {"number": number, "digest": digest, "next_block": next_block, "block": number}
            both.contribute(int(job), int(rank), value, **fields)
    both.here.check_counters()
    both.there.check_counters()


def test_a_slot_of_a_jobs_own_meets_no_owner_and_no_fallback(both: Both) -> None:
    """Its shared slots are as those of other jobs, and taken here."""
    begin(both, 7)
    assert kinds(begin(both, MIXED)) == RESULT_TAKEN
    far = both.there.definition.events.total()
    own = {"tree": 0, "slot": OWN}
    assert both.contribute(MIXED, 0, 3, **own) == []
    assert kinds(both.contribute(MIXED, 0, 3, **own)) == [(1, Kind.HELD, 0)]
    answers = both.contribute(MIXED, 1, 4, **own)  # the last round, which is kept here
    assert (kinds(answers), sums(answers), {header.tree for _, header, _ in answers}) == (RESULT_OURS, [7, 7], {0})
    assert both.there.definition.events.total() == far
    assert kinds(both.contribute(MIXED, 0, 3, tree=1, slot=OWN)) == [(1, Kind.REJECT, Reason.SLOT)]
    assert kinds(both.contribute(MIXED, 0, 3, tree=0)) == [(1, Kind.REJECT, Reason.SLOT)]
    both.here.check_counters()
    both.there.check_counters()
