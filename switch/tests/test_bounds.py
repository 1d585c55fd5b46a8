"""Indices from packets: beyond an array's end zeros are read and nothing is written, and a debug build stops there."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.ir_programs import Draft, straight
from switchsum_switch.codegen import compile_program
from switchsum_switch.execution.pipeline import Pipeline, make_state
from switchsum_switch.program import ir
from switchsum_switch.queues.batch import Output

SIZE = 4
WIDE = 2048
"""Wide cells are reached by another way than narrow ones."""
MARK = 0x5A
Statement = Callable[[Draft, ir.Expr, int], ir.Statement]


def read(width: int) -> Statement:
    return lambda draft, index, slot: ir.ReadRegister(slot, draft.register(SIZE, width), index)


def write(width: int) -> Statement:
    return lambda draft, index, slot: ir.WriteRegister(draft.register(SIZE, width), index, draft.field(slot))


def count(draft: Draft, index: ir.Expr, slot: int) -> ir.Statement:
    return ir.Count(draft.counter(SIZE), index)


def pipeline(statement: Statement, width: int, *, debug: bool) -> Pipeline:
    """Load a program that does something at the index in a frame's first four bytes; the rest is a field beside it."""
    draft = Draft()
    given = draft.header("given", [32, width])
    index, slot = draft.headers[given].slots
    ingress = straight([statement(draft, draft.field(index), slot)])
    program = draft.program(parser=straight([ir.Extract(given)]), ingress=ingress, deparser=[given])
    state = make_state(program)
    made = Pipeline(program, state, compile_program(program, state, cache=None, debug=debug))
    for register in made.registers.values():
        for at in range(SIZE):
            register.write(at, MARK + at)
    return made


def signal_of(run: Callable[[], object]) -> int:
    """Run something in a child; return the signal that ended it, 0 for none."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGILL, signal.SIG_DFL)
        run()
        os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


CASES = [
    pytest.param(read(32), 32, id="read"),
    pytest.param(read(WIDE), WIDE, id="wide-read"),
    pytest.param(write(32), 32, id="write"),
    pytest.param(write(WIDE), WIDE, id="wide-write"),
    pytest.param(count, 32, id="count"),
]
BEYOND = [SIZE, SIZE + 1, 0x7FFF_FFFF, 0xFFFF_FFFF]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # fork beside threads: the child only runs frames
@pytest.mark.parametrize(("statement", "width"), CASES)
def test_a_debug_build_traps(statement: Statement, width: int) -> None:
    switch = pipeline(statement, width, debug=True)
    body = bytes(width // 8)
    assert signal_of(lambda: switch.process(0, (SIZE - 1).to_bytes(4) + body)) == 0
    for index in BEYOND:
        assert signal_of(lambda index=index: switch.process(0, index.to_bytes(4) + body)) == signal.SIGILL  # type: ignore[misc]


@pytest.mark.parametrize(("statement", "width"), CASES)
def test_other_builds_read_zeros_and_write_nothing(statement: Statement, width: int) -> None:
    switch = pipeline(statement, width, debug=False)
    body = b"\xee" * (width // 8)
    for index in BEYOND:
        [(_, answer)] = switch.process(0, index.to_bytes(4) + body)
        assert answer[:4] == index.to_bytes(4)
        assert answer[4:] in (body, bytes(len(body)))
    for register in switch.registers.values():
        assert [register.read(at) for at in range(SIZE)] == [MARK + at for at in range(SIZE)]
    for counter in switch.counters.values():
        assert [counter.read(at)[0] for at in range(SIZE)] == [0] * SIZE


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("debug", [False, True], ids=["plain", "debug"])
@pytest.mark.parametrize("index", [4, 9, 0xFF])
def test_an_index_into_a_header_stack_chooses_among_its_members_or_nothing(index: int, debug: bool) -> None:
    # It is compared with each member's place and is never part of an address: nothing is there to trap at.
    text = Path(__file__).with_name("programs").joinpath("stacks.json").read_bytes()
    switch = Pipeline.load(text, debug=debug)
    read, write, members = 3, 4, bytes([2, 4, 6, 9])
    for operation in (read, write):
        frame = bytes([operation, index, 0]) + members
        assert signal_of(lambda frame=frame: switch.process(0, frame)) == 0  # type: ignore[misc]
        assert switch.process(0, frame) == [(1, frame)]
    frame = bytes([write, 2, 0]) + members
    assert switch.process(0, frame) != [(1, frame)]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("bits", [0, 8, 96, 104])
def test_a_field_of_variable_length_is_not_read_beyond_the_frame(bits: int) -> None:
    """Behind the frame is a page that may not be read: it is shorter than its header might be."""
    switch = Pipeline.load(Path(__file__).with_name("programs").joinpath("varbit.json").read_bytes())
    frame = bytes([0, bits]) + bytes(6) + b"\x30" + bytes([0xAA] * min(bits // 8, 12)) + b"\0\0"
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
    place = mmap.PAGESIZE - len(frame)
    pages[place : mmap.PAGESIZE] = frame
    columns = np.array([start + place], np.uint64), np.array([len(frame)], np.uint32), np.array([0], np.uint32)

    def run() -> None:
        output = Output(8, 1 << 16)
        switch.process_batch(*columns, 1, output)
        [(_, sent)] = output.frames()
        if (sent == frame) != (bits <= 96):
            os.abort()  # an exception would leave the child by way of the test

    assert signal_of(run) == 0
