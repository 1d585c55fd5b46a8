"""Which frames the P4 program takes as contributions or from the controller, and what becomes of the others."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from switchsum.testing.rig import CPU_PORT, EPOCH, FIRST_SLOT, JOB, SLOT_COUNT, SWITCH, TREE, Rig, cookie, worker
from switchsum_protocol import wire
from switchsum_protocol.frame import FRAME_BYTES, WIRE_VERSION, Flag, Header, Kind, LaneFormat, Operator, Reason
from switchsum_switch.wires import headers
from switchsum_switch.wires.headers import LOWER_BYTES

from .rounds import run_rest, run_round, some_lanes

REFUSALS = {
    "another job": ({"job": JOB + 1}, Reason.NOT_ADMITTED),
    "another epoch": ({"epoch": EPOCH + 1}, Reason.NOT_ADMITTED),
    "an unknown rank": ({"rank": 40}, Reason.NOT_ADMITTED),
    "another's rank": ({"rank": 1}, Reason.NOT_ADMITTED),
    "another tree": ({"tree": 1}, Reason.NOT_ADMITTED),
    "a slot too far": ({"slot": FIRST_SLOT + SLOT_COUNT}, Reason.SLOT),
    "a slot too near": ({"slot": FIRST_SLOT - 1}, Reason.SLOT),
    "another job's slot": ({"slot": 0}, Reason.SLOT),
    "no slot of the switch": ({"slot": 0x8000_0000 | FIRST_SLOT}, Reason.SLOT),
    "no slot, and an unknown operator": ({"slot": 0, "operator": 0}, Reason.OPERATOR),
    "no slot, and an unknown format": ({"slot": 0, "format": 0}, Reason.FORMAT),
    "no slot, and not admitted": ({"slot": 0, "job": JOB + 1}, Reason.NOT_ADMITTED),
    "an unknown operator": ({"operator": max(Operator) + 1}, Reason.OPERATOR),
    "an unknown format": ({"format": max(LaneFormat) + 1}, Reason.FORMAT),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_contribution_is_rejected_with_its_reason(rig: Rig, name: str) -> None:
    fields, reason = REFUSALS[name]
    [reject] = rig.contribute(0, 1, some_lanes(rig), **fields)[1]
    assert (reject.header.kind, reject.header.reason) == (Kind.REJECT, reason)
    assert reject.payload == b""
    assert reject.destination == worker(0)
    assert reject.header.cookie == cookie(0)
    assert rig.events(reason) == 1
    run_round(rig, 1)


WRONG_COOKIES = [0, cookie(1), *(cookie(0) ^ 1 << bit for bit in (0, 7, 31, 32, 63))]


def test_a_contribution_with_another_cookie_is_dropped_without_an_answer(rig: Rig) -> None:
    for tries, wrong in enumerate(WRONG_COOKIES, 1):
        assert rig.contribute(0, 1, some_lanes(rig), cookie=wrong) == {}
        assert rig.events(Reason.COOKIE) == tries
    assert rig.query(FIRST_SLOT, 1).bitmap == 0
    block = some_lanes(rig)
    assert rig.contribute(0, 1, block) == {}
    # Nor does who tries it learn whether the member has contributed, or what would be refused besides.
    for fields in ({}, {"slot": 0}, {"operator": max(Operator) + 1}, {"format": max(LaneFormat) + 1}):
        assert rig.contribute(0, 1, block, cookie=cookie(1), **fields) == {}
    assert rig.events(Reason.COOKIE) == len(WRONG_COOKIES) + 4
    run_rest(rig, 1, {0: block})
    assert rig.contribute(0, 1, block, cookie=cookie(1)) == {}


def test_each_members_frames_are_counted_by_what_became_of_them(rig: Rig) -> None:
    block = some_lanes(rig)
    for fields in ({}, {}, {"cookie": 0}, {"slot": 0}, {"job": JOB + 1}):  # the last is no member's
        rig.contribute(1, 1, block, **fields)
    run_rest(rig, 1, {1: block})
    rig.contribute(1, 1, block)
    by_reason = {reason: rig.member_events(1, reason) for reason in Reason}
    expected = (Reason.HELD, Reason.COOKIE, Reason.SLOT, Reason.REPEATED)
    assert {reason: count for reason, count in by_reason.items() if count} == dict.fromkeys(expected, 1)
    assert not any(rig.member_events(0, reason) for reason in Reason)
    for rank in range(rig.workers):
        place = (JOB, TREE, rank, EPOCH, worker(rank).ip, worker(rank).port, rank + 1)
        assert rig.engine.frames("SwitchIngress.validate.admission.admission", place) == (
            5 if rank == 1 else 1
        )  # 4, and 1 CONTRIBUTED
        assert rig.engine.frames("SwitchEgress.result_address", (JOB, rank)) == 1


def test_the_controllers_frames_need_no_cookie(rig: Rig) -> None:
    assert rig.query(FIRST_SLOT, 0).cookie == 0


def cut(rig: Rig) -> bytes:
    return rig.contribution(0, 1, some_lanes(rig))[:-1]


def too_long(rig: Rig) -> bytes:
    return rig.contribution(0, 1, some_lanes(rig)) + b"\0"


def other_version(rig: Rig) -> bytes:
    return rig.contribution(0, 1, some_lanes(rig), version=WIRE_VERSION + 1)


def a_result(rig: Rig) -> bytes:
    return rig.contribution(0, 1, some_lanes(rig), kind=Kind.RESULT)


def a_query_from_a_worker(rig: Rig) -> bytes:
    return rig.contribution(0, 1, kind=Kind.QUERY)


def payload_without_flag(rig: Rig) -> bytes:
    return rig.contribution(0, 1, some_lanes(rig), flags=0)


def flag_without_payload(rig: Rig) -> bytes:
    return rig.contribution(0, 1, flags=Flag.PAYLOAD)


def header_cut_short(rig: Rig) -> bytes:
    return rig.contribution(0, 1)[: LOWER_BYTES + 20]


def wrong_udp_checksum(rig: Rig) -> bytes:
    frame = wire.build_frame(
        worker(0), SWITCH, Header(kind=Kind.CONTRIBUTION, job=JOB, epoch=EPOCH, number=1), rig.padding, checksum=True
    )
    return frame[:-1] + bytes([frame[-1] ^ 1]) if rig.padding else frame[: FRAME_BYTES - 1] + b"\x55"


def wrong_ip_checksum(rig: Rig) -> bytes:
    frame = rig.contribution(0, 1, some_lanes(rig))
    return frame[:24] + bytes([frame[24] ^ 0x10]) + frame[25:]


BROKEN: dict[Callable[[Rig], bytes], Reason] = {
    cut: Reason.TRUNCATED,
    too_long: Reason.LENGTH,
    other_version: Reason.VERSION,
    a_result: Reason.KIND,
    a_query_from_a_worker: Reason.KIND,
    payload_without_flag: Reason.LENGTH,
    flag_without_payload: Reason.LENGTH,
    header_cut_short: Reason.TRUNCATED,
    wrong_udp_checksum: Reason.CHECKSUM,
    wrong_ip_checksum: Reason.CHECKSUM,
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda function: function.__name__)
def test_a_broken_frame_is_dropped_and_counted(rig: Rig, broken: Callable[[Rig], bytes]) -> None:
    assert rig.send(0, broken(rig)) == {}
    assert rig.events(BROKEN[broken]) == 1
    run_round(rig, 1)


def test_a_right_udp_checksum_passes(rig: Rig) -> None:
    for number, rank in itertools.product(range(1, 30), range(rig.workers)):
        lanes = some_lanes(rig)
        values = {"job": JOB, "epoch": EPOCH, "rank": rank, "slot": FIRST_SLOT, "number": number, "digest": number}
        values["cookie"] = cookie(rank)
        header = Header(kind=Kind.CONTRIBUTION, flags=Flag.PAYLOAD, **values)
        rig.send(rank, wire.build_frame(worker(rank), SWITCH, header, lanes.astype(">i4").tobytes(), checksum=True))
    assert rig.events(Reason.CHECKSUM) == 0
    assert rig.events(Reason.COMPLETED) == 29


def test_a_sender_at_another_address_or_port_is_not_admitted(rig: Rig) -> None:
    frame = rig.contribution(0, 1, some_lanes(rig))
    assert rig.send(1, frame)[2][0].header.kind == Kind.REJECT  # from rank 1's port
    header = Header(kind=Kind.CONTRIBUTION, job=JOB, epoch=EPOCH, number=1)
    stranger = headers.Address(mac=worker(0).mac, ip=worker(0).ip, port=worker(0).port + 1)
    [reject] = rig.send(0, wire.build_frame(stranger, SWITCH, header, rig.padding))[1]
    assert reject.header.reason == Reason.NOT_ADMITTED
    assert rig.query(FIRST_SLOT, 1).bitmap == 0


def test_a_hello_reaches_the_controller_with_its_port(rig: Rig) -> None:
    hello = wire.build_frame(worker(1), SWITCH, Header(kind=Kind.HELLO, number=0x1234, digest=0x5678), rig.padding)
    [(port, frame)] = rig.engine.process(2, hello)
    assert port == CPU_PORT
    assert int.from_bytes(frame[:2]) >> 7 == 2
    assert frame[2:] == hello


def test_the_controller_may_send_only_its_own_kinds_to_the_switch(rig: Rig) -> None:
    frame = wire.build_frame(SWITCH, SWITCH, Header(kind=Kind.CONTRIBUTION))
    assert rig.engine.process(CPU_PORT, bytes(2) + frame) == []
    assert rig.events(Reason.KIND) == 1


def test_growth_is_limited_by_padding(limited_rig: Rig) -> None:
    rig = limited_rig
    run_round(rig, 1)
    if rig.padding:
        rig.padding, padding = b"", rig.padding
        [reject] = rig.contribute(0, 2)[1]
        assert reject.header.reason == Reason.PADDING
        rig.padding = padding
    for rank in range(rig.workers):
        answers = rig.contribute(rank, 2, some_lanes(rig) if rank == 0 else None)
    assert all(len(packet.payload) == 4 * rig.lanes_per_frame for [packet] in answers.values())
