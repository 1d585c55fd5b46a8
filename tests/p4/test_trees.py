"""The P4 program as leaf, inner switch and root: frame for frame what `protocol.tree_rules` says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.tree_pair import (
    ABOVE,
    COUNT,
    EPOCH,
    FIRST,
    JOB,
    LANES,
    UP,
    Pair,
    member_address,
    program,
)
from switchsum.testing.embedded import Embedded
from switchsum.testing.rig import Engine
from switchsum_protocol.frame import (
    NO_BLOCK,
    WIDENED_FORMATS,
    Flag,
    Header,
    Kind,
    LaneFormat,
    Operator,
    Reason,
    narrow_bytes,
    padding_bytes,
    selection,
)
from switchsum_protocol.slot_rules import Replies
from switchsum_protocol.wire import build_frame, parse_frame
from switchsum_switch.execution.pipeline import EngineName


@pytest.fixture(params=["interpreter", "native"])
def engine(request: pytest.FixtureRequest) -> Engine:
    name: EngineName = request.param
    return Embedded(LANES, name)


def headers(replies: Replies) -> list[tuple[int, Header]]:
    parsed = [(port, parse_frame(frame)) for port, frame in replies]
    return [(port, packet.header) for port, packet in parsed if packet is not None]


def test_a_leaf_sends_its_partial_up_again_until_it_has_the_result(engine: Engine) -> None:
    pair = Pair(engine, members=2)
    assert pair.contribute(0, 3) == []
    [(port, up)] = headers(pair.contribute(1, 4))
    assert (port, up.kind, up.rank, up.slot, up.cookie, up.flags) == (UP, Kind.CONTRIBUTION, 200, ABOVE, 1100, 1)
    [(port, again)] = headers(pair.contribute(0, 3, flags=Flag.PAYLOAD | Flag.REPEAT))  # row 13
    assert (port, again, pair.counted) == (UP, up, [Reason.REPEATED])
    answers = pair.tell(10)  # row 16
    assert [(port, header.rank, header.slot) for port, header in headers(answers)] == [(1, 0, FIRST), (2, 1, FIRST)]
    assert pair.counted == [Reason.COMPLETED]
    [(port, result)] = headers(pair.contribute(0, 3, flags=Flag.PAYLOAD | Flag.REPEAT))
    assert (port, result.kind, result.flags) == (1, Kind.RESULT, Flag.PAYLOAD)
    pair.check_counters()


def test_one_repeat_stands_for_all_members_until_one_repeats_again(engine: Engine) -> None:
    pair = Pair(engine, members=3)
    for place in range(3):
        pair.contribute(place, 3)

    def goes_up(place: int, *, number: int = 1, recall: bool = False) -> bool:
        flags = Flag.PAYLOAD | Flag.REPEAT | (Flag.RECALL if recall else 0)
        ports = [port for port, _ in pair.contribute(place, 3, number=number, flags=flags)]
        assert ports in ([UP], [])
        assert pair.counted == [Reason.REPEATED]
        return ports == [UP]

    assert goes_up(1)
    assert not goes_up(0)
    assert not goes_up(2)
    assert goes_up(0)  # again
    assert not goes_up(1)  # it asked before that
    assert goes_up(2, recall=True)
    pair.tell(kind=Kind.HELD, flags=0)  # who has asked is still known
    assert not goes_up(1)
    for place in range(3):  # the next round of this cell begins anew
        pair.contribute(place, 3, number=3)
    assert goes_up(0, number=3)
    pair.check_counters()


def test_a_recall_sends_the_result_up_as_final(engine: Engine) -> None:
    pair = Pair(engine, members=1)
    pair.contribute(0, 3)
    pair.tell(10)
    [(port, up)] = headers(pair.contribute(0, 3, flags=Flag.PAYLOAD | Flag.REPEAT | Flag.RECALL))
    assert (port, up.kind, up.flags) == (UP, Kind.CONTRIBUTION, Flag.PAYLOAD | Flag.FINAL)
    pair.contribute(0, 5, number=3)  # the next round of this cell is not final
    assert pair.contribute(0, 5, number=3, flags=Flag.PAYLOAD | Flag.REPEAT | Flag.FINAL)[0][0] == UP
    pair.check_counters()


def test_one_recall_stands_for_all_members_until_one_recalls_again(engine: Engine) -> None:
    pair = Pair(engine, members=3)
    for place in range(3):
        pair.contribute(place, 3)
    pair.contribute(1, 3, flags=Flag.PAYLOAD | Flag.REPEAT)  # before the result has come
    pair.tell(10)

    def answers_on(place: int, flags: Flag) -> list[int]:
        ports = [port for port, _ in pair.contribute(place, 3, flags=Flag.PAYLOAD | Flag.REPEAT | flags)]
        assert pair.counted == [Reason.REPEATED]
        return ports

    assert answers_on(0, Flag.RECALL) == [UP]
    assert answers_on(1, Flag.RECALL) == []
    assert answers_on(2, Flag(0)) != [UP]  # a worker that misses the result gets it at once
    assert answers_on(2, Flag.RECALL) == []
    assert answers_on(1, Flag.RECALL) == [UP]  # again
    assert answers_on(2, Flag.RECALL) == []  # it asked before that
    pair.check_counters()


def test_one_final_contribution_goes_on_for_all_switches_until_one_sends_it_again(engine: Engine) -> None:
    pair = Pair(engine, members=3, is_inner=True)
    for place in range(3):
        pair.contribute(place, 3)
    pair.tell(9)

    def goes_up(place: int) -> bool:
        ports = [port for port, _ in pair.contribute(place, 9, flags=Flag.PAYLOAD | Flag.FINAL)]
        assert pair.counted == [Reason.REPEATED]
        return ports == [UP]

    assert [goes_up(place) for place in (0, 1, 2)] == [True, False, False]
    assert [goes_up(place) for place in (1, 2, 1)] == [True, False, True]  # 1 again, of whom 2 has asked before
    [(port, _)] = pair.contribute(2, 3)  # a switch that misses the result gets it at once
    assert port == 3
    pair.check_counters()


@pytest.mark.parametrize("but", [False, True])
def test_a_selection_goes_up_and_comes_down_with_lanes_for_switches(engine: Engine, but: bool) -> None:
    bitmap = selection(1, 150, but=but)  # beyond are switches: 200 is the one here
    flags = Flag.PAYLOAD | Flag.SELECT
    pair = Pair(engine, members=2)
    pair.contribute(0, 3, flags=flags, bitmap=bitmap)
    [(_, up)] = headers(pair.contribute(1, 4, flags=flags, bitmap=bitmap))
    assert (up.kind, up.flags, up.bitmap) == (Kind.CONTRIBUTION, flags, bitmap)
    answers = headers(pair.tell(10, flags=flags, bitmap=bitmap))
    assert [bool(header.flags & Flag.PAYLOAD) for _, header in answers] == [but, not but]
    [(port, again)] = headers(pair.contribute(1, 4, flags=flags | Flag.REPEAT, bitmap=bitmap))
    assert (port, again.kind, bool(again.flags & Flag.PAYLOAD)) == (2, Kind.RESULT, not but)
    pair.check_counters()


def test_a_root_gives_the_lanes_of_a_selection_to_all_switches(engine: Engine) -> None:
    pair = Pair(engine, members=2, is_root=True)
    fields = {"flags": Flag.PAYLOAD | Flag.SELECT, "bitmap": selection(1, 100, but=False)}
    pair.contribute(0, 3, **fields)
    answers = headers(pair.contribute(1, 4, **fields))
    assert [header.flags for _, header in answers] == [Flag.PAYLOAD | Flag.SELECT] * 2


@pytest.mark.parametrize("is_root", [True, False])
def test_a_final_contribution_becomes_the_result(engine: Engine, is_root: bool) -> None:
    pair = Pair(engine, members=2, is_inner=True, is_root=is_root)
    final = Flag.PAYLOAD | Flag.FINAL | Flag.OVERFLOW
    pair.contribute(0, 3)
    answers = headers(pair.contribute(1, 9, flags=final))
    assert [(port, header.kind, header.flags) for port, header in answers] == [(1, 2, 3), (2, 2, 3)]
    again = headers(pair.contribute(0, 9, flags=final))
    assert [port for port, _ in again] == [1 if is_root else UP]
    assert headers(pair.contribute(0, 9, number=3, flags=final))  # a newer round, that nobody else has sent
    assert pair.contribute(0, 9, flags=final) == []
    assert pair.counted == [Reason.STALE]
    pair.contribute(0, 3, number=2)
    pair.contribute(1, 4, number=2)
    assert headers(pair.contribute(1, 9, number=2, flags=final))[0][1].kind == Kind.RESULT  # complete, final or not
    pair.check_counters()


@pytest.mark.parametrize(("kind", "reason"), [(Kind.HELD, 0), *((Kind.REJECT, code) for code in (0, 8, 9, 25, 200))])
def test_what_the_switch_above_has_to_say_reaches_all_members(engine: Engine, kind: Kind, reason: int) -> None:
    pair = Pair(engine, members=2)
    pair.contribute(0)
    assert pair.tell(kind=kind, reason=reason, flags=0) == []  # while members are missing
    pair.contribute(1)
    answers = headers(pair.tell(kind=kind, reason=reason, flags=0, bitmap=1))
    assert [(port, header.kind, header.reason, header.bitmap) for port, header in answers] == [
        (port, kind, reason, 3) for port in (1, 2)
    ]
    pair.check_counters()


def test_a_result_counts_only_from_the_switch_above_and_once(engine: Engine) -> None:
    pair = Pair(engine, members=2)
    pair.contribute(0)
    assert (pair.tell(), pair.counted) == ([], [Reason.STALE])  # members are missing
    pair.contribute(1)
    wrong: dict[Reason, list[dict[str, Any]]] = {
        Reason.NOT_ADMITTED: [{"port": 1}, {"source": member_address(0)}, {"rank": 0}],
        Reason.COOKIE: [{"cookie": 5}],
        Reason.SLOT: [{"slot": ABOVE - 1}, {"slot": ABOVE + COUNT}, {"slot": FIRST}],
        Reason.KIND: [{"epoch": 4}, {"tree": 1}, {"job": 8}, {"kind": Kind.QUERY}, {"kind": Kind.STATE}],
        Reason.STALE: [{"number": 3}, {"number": 2}, {"number": 0xFFFF_FFFF}, {"slot": ABOVE + 1}],
    }
    for reason, cases in wrong.items():
        for case in cases:
            assert pair.tell(**case) == []
            assert pair.counted == [reason], case
    assert len(pair.tell(5)) == 2
    assert (pair.tell(6), pair.counted) == ([], [Reason.STALE])
    pair.check_counters()


def test_a_worker_cannot_say_that_its_lanes_are_final_or_that_others_differ(engine: Engine) -> None:
    pair = Pair(engine, members=2)
    flags = Flag.PAYLOAD | Flag.FINAL | Flag.OVERFLOW | Flag.MISMATCH
    assert pair.contribute(0, 3, flags=flags) == []
    [(_, up)] = headers(pair.contribute(1, 3, flags=flags))
    assert up.flags == Flag.PAYLOAD


def test_frames_without_lanes_are_padded_for_a_switch_above_that_wants_it() -> None:
    leaf = Embedded(256, "native")
    pair = Pair(Embedded(LANES, "native"), members=1)
    program(leaf, pair.own, pair.members, replace(pair.above, padding=padding_bytes(256, 512)))
    header = Header(kind=Kind.CONTRIBUTION, job=JOB, epoch=EPOCH, rank=0, cookie=900, slot=FIRST, number=1)
    for stuffing in (b"", b"\x55" * padding_bytes(256, 512)):
        header = replace(header, number=header.number + 1)
        [(port, frame)] = leaf.process(1, build_frame(member_address(0), pair.own, header, stuffing))
        packet = parse_frame(frame)
        assert port == UP
        assert packet is not None
        assert packet.payload == bytes(padding_bytes(256, 512))


def random_frame(random: np.random.Generator, pair: Pair, base: int) -> tuple[int, bytes]:
    """Return a frame of a member or of the switch above, now and then with something wrong."""
    place = int(random.integers(len(pair.members)))
    one = pair.members[place]
    is_above = random.random() < 0.35
    flags = int(random.choice([0, Flag.PAYLOAD], p=[0.3, 0.7])) | int(
        sum(int(flag) for flag in Flag if flag > 1 and random.random() < 0.12)
    )
    header = Header(
        kind=Kind(int(random.choice([2, 2, 2, 3, 4]))) if is_above else Kind.CONTRIBUTION,
        flags=flags,
        reason=int(random.integers(26)) if is_above else 0,
        job=JOB,
        epoch=EPOCH,
        rank=200 if is_above else one.rank,
        cookie=1100 if is_above else one.cookie,
        slot=(ABOVE if is_above else FIRST) + int(random.integers(COUNT)),
        number=(base + int(random.integers(-1, 3))) & 0xFFFF_FFFF,
        block=int(random.choice([3, 3, 3, 3, 4])),
        next_block=int(random.choice([5, 9, NO_BLOCK])),
        next_exponent=int(random.integers(256)),
        format=LaneFormat(int(random.choice([LaneFormat.INT32] * 3 + list(LaneFormat)))),
        operator=Operator(int(random.choice([Operator.SUM] * 3 + list(Operator)))),
        bitmap=int(random.integers(4)),
    )
    lanes = random.integers(-(2**31), 2**31, LANES).astype(">i4").tobytes() if flags & Flag.PAYLOAD else b""
    if lanes and header.format in WIDENED_FORMATS and random.random() < 0.7:
        lanes = lanes[: narrow_bytes(LANES)]
    if random.random() < 0.05:
        field = str(random.choice(["job", "epoch", "rank", "tree", "cookie", "slot"]))
        header = replace(header, **{field: getattr(header, field) + 1})
    source, port = (pair.above.address, UP) if is_above else (one.address, one.port)
    if random.random() < 0.03:
        source = replace(source, port=source.port + 1)
    if random.random() < 0.03:
        port = int(random.choice([1, UP]))
    return port, build_frame(source, pair.own, header, lanes)


@pytest.mark.parametrize("role", ["leaf", "inner", "root"])
def test_the_program_does_with_any_frames_what_the_definition_says(role: str) -> None:
    pair = Pair(Embedded(LANES, "native"), members=2, is_inner=role == "inner", is_root=role == "root")
    random = np.random.default_rng(len(role))
    base = 0xFFFF_FFC0
    for step in range(5000):
        base = (base + (step % 9 == 0)) & 0xFFFF_FFFF
        pair.process(*random_frame(random, pair, base))
    pair.check_counters()
    assert pair.definition.events[Reason.COMPLETED] > 100
