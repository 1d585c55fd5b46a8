"""Replicas of a packet: the first one has the body, which the others are told of as long as only kernels see them."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt
import pytest

from support.ir_programs import Draft, Pair, straight
from switchsum_switch.codegen.deparser import body_start
from switchsum_switch.execution.entry import call_program
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.program import ir
from switchsum_switch.queues.batch import Output
from switchsum_switch.queues.replicas import complete

FRAME = b"nearfar!" + bytes(range(100))
UNTOUCHED = 0xEE


def flood(*, touched: tuple[str, ...], cut: bool = False, without: tuple[int, ...] = ()) -> ir.Program:
    """Return a program that sends frames to group 1, and writes to some of the headers in egress.

    Replicas with the numbers `without` lose the header that is called far.
    """
    draft = Draft()
    headers = {name: draft.header(name, [32]) for name in ("near", "far")}
    number = draft.field(draft.intrinsics.egress_rid)
    own = [ir.Assign(draft.headers[headers[name]].slots[0], ir.Resize(32, number)) for name in touched]
    if cut:
        own.append(ir.Assign(draft.intrinsics.cut, ir.Const(33, 50)))
    egress = straight(own)
    if without:
        chosen = ir.Const(1, 0)
        for one in without:
            same = ir.Compare(ir.Relation.EQ, number, ir.Const(16, one))
            chosen = ir.Binary(1, ir.Op.OR, chosen, same)  # type: ignore[assignment]
        egress = (
            ir.Block("chosen", tuple(own), ir.Branch(chosen, 1, 2)),
            ir.Block("leave out", (ir.SetInvalid(headers["far"]),), ir.End()),
            ir.Block("keep", (), ir.End()),
        )
    return draft.program(
        parser=straight([ir.Extract(header) for header in headers.values()]),
        ingress=straight([ir.Assign(draft.intrinsics.mcast_grp, ir.Const(16, 1))]),
        egress=egress,
        deparser=list(headers.values()),
    )


@kernel
def call(
    entry: npt.NDArray[np.int64],
    addresses: npt.NDArray[np.uint64],
    lengths: npt.NDArray[np.uint32],
    ports: npt.NDArray[np.uint32],
) -> int:
    columns = int(addresses.ctypes.data), int(lengths.ctypes.data), int(ports.ctypes.data)
    return int(call_program(entry, *columns, len(ports), 0))


def run(pair: Pair, output: Output) -> list[tuple[int, bytes]]:
    """Run two frames as kernels do; return what the interpreter makes of them."""
    frames = [FRAME, FRAME[::-1]]
    for state in (pair.state, pair.expected_state):
        state.multicast.set(1, [(1, 7), (2, 8), (3, 9)])
    memory = [np.frombuffer(frame, np.uint8) for frame in frames]
    addresses = np.array([frame.ctypes.data for frame in memory], np.uint64)
    lengths, ports = np.array([len(frame) for frame in frames], np.uint32), np.zeros(2, np.uint32)
    entry = pair.native.entry(output)
    assert entry is not None
    output.arena[:] = UNTOUCHED
    assert call(entry.arguments, addresses, lengths, ports) == len(frames)
    output.count = int(entry.result[0])
    return [answer for frame in frames for answer in pair.interpreter.process(0, frame, 0)]


@pytest.mark.parametrize(("touched", "head"), [((), 0), (("near",), 4), (("far",), 8), (("near", "far"), 8)])
def test_the_body_is_what_egress_does_not_write(touched: tuple[str, ...], head: int) -> None:
    program = flood(touched=touched)
    assert body_start(program) == head // 4
    output = Output()
    expected = run(Pair(program), output)
    first = int(output.addresses[0]) + head
    fourth = int(output.addresses[3]) + head
    assert output.bodies[: output.count].tolist() == [0, first, first, 0, fourth, fourth]
    assert output.heads[: output.count].tolist() == [head] * 6
    for row in (1, 2, 4, 5):
        written = ctypes.string_at(int(output.addresses[row]), len(FRAME))
        assert written == expected[row][1][:head] + bytes([UNTOUCHED]) * (len(FRAME) - head)
    complete(output.count, output.addresses, output.lengths, output.heads, output.bodies)
    assert output.frames() == expected
    assert not output.bodies.any()


@pytest.mark.parametrize(
    ("without", "shares"),
    [((7,), [False, False, True]), ((8,), [False] * 3), ((9,), [False, True, False]), ((7, 8, 9), [False, True, True])],
)
def test_replicas_may_lose_a_header_of_the_body(without: tuple[int, ...], shares: list[bool]) -> None:
    program = flood(touched=("near",), without=without)
    assert body_start(program) == 1
    output = Output()
    expected = run(Pair(program), output)
    assert (output.bodies[: output.count] != 0).tolist() == shares * 2
    complete(output.count, output.addresses, output.lengths, output.heads, output.bodies)
    assert output.frames() == expected
    assert [len(frame) for _, frame in expected[:3]] == [len(FRAME) - 4 * (rid in without) for rid in (7, 8, 9)]


def test_copies_that_are_cut_have_bodies_of_their_own() -> None:
    output = Output()
    expected = run(Pair(flood(touched=("near",), cut=True)), output)
    assert not output.bodies.any()
    assert output.frames() == expected
    assert {len(frame) for _, frame in expected} == {49}
