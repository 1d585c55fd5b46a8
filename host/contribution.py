"""The sending half of the slot machine: which block a slot contributes next, and the frame that carries it."""

from __future__ import annotations

from typing import Final

from switchsum.host import header
from switchsum.host.header import fill_checksum, put16, put32
from switchsum.host.kernels import ALL_ZERO, INT32, item_bytes, pack, pack_half, scan
from switchsum.host.memory import Scalar, bytes_at, inner
from switchsum.host.recovery import settle, transmit
from switchsum.host.state import OPERATIONS, Count, Phase, Record, Stage, State
from switchsum.protocol.lanes import NOT_FINITE
from switchsum.protocol.wire import (
    FRAME_BYTES,
    LANE_BYTES,
    LOWER_BYTES,
    NO_BLOCK,
    WIRE_VERSION,
    Flag,
    Kind,
    LaneFormat,
    Operator,
)

_IDLE: Final = int(Phase.IDLE)
_WAITING: Final = int(Phase.WAITING)
_BLOCKED: Final = int(Phase.BLOCKED)
_WHOLE: Final = int(Stage.WHOLE)
_HIGH: Final = int(Stage.HIGH)
_COUNT_BLOCKED: Final = int(Count.BLOCKED)
_CONTRIBUTION: Final = int(Kind.CONTRIBUTION)
_SUM: Final = int(Operator.SUM)
_FORMAT: Final = int(LaneFormat.INT32)
_PAYLOAD: Final = int(Flag.PAYLOAD)


@inner
def values_in(core: Record, operation: Record, block: int) -> Scalar:
    """Return how many values a block has: the last one may have fewer than there are lanes."""
    return min(core.lanes, operation.size - block * core.lanes)


@inner
def address_in(core: Record, operation: Record, block: int) -> Scalar:
    """Return the address of a block in the operation's array."""
    return operation.address + block * core.lanes * item_bytes(operation.dtype)


@inner
def name_next(core: Record, slot: Record, operation: Record, block: int) -> None:
    """Find the first block of the slot's column, from `block` on, that is not zero here: it is named next."""
    while block < operation.blocks:
        exponent = scan(operation.dtype, address_in(core, operation, block), values_in(core, operation, block))
        if exponent != ALL_ZERO:
            slot.next_block = block
            slot.next_exponent = exponent
            return
        block += operation.columns
    slot.next_block = NO_BLOCK
    slot.next_exponent = 0


@inner
def begin_column(state: State, index: int, now: float) -> None:
    """Give a free slot the next column that is meant for it, or leave it idle."""
    core = state.core[0]
    slot = state.slots[index]
    slot.phase = _IDLE
    while slot.considered < core.submitted:
        serial = slot.considered
        slot.considered += 1
        operation = state.operations[serial % OPERATIONS]
        column = (index - operation.first_slot) % core.window
        if column < operation.columns:
            slot.operation = serial
            slot.column = column
            slot.named = 0
            _choose_first(core, slot, operation)
            contribute(state, index, now)
            return


@inner
def _choose_first(core: Record, slot: Record, operation: Record) -> None:
    """Prepare a column's first round.

    Floats only agree on the first block and its exponent.  Integers need no exponent, so the column's first block goes
    along at once, whether or not it is zero.
    """
    slot.stage = _WHOLE
    slot.exponent = 0
    slot.payload = 0
    if operation.dtype == INT32 and slot.column < operation.blocks:
        slot.block = slot.column
        count = values_in(core, operation, slot.block)
        slot.payload = scan(operation.dtype, address_in(core, operation, slot.block), count) != ALL_ZERO
        name_next(core, slot, operation, slot.column + operation.columns)
    else:
        slot.block = NO_BLOCK
        name_next(core, slot, operation, slot.column)


@inner
def choose_block(core: Record, slot: Record, operation: Record, block: int, exponent: int) -> None:
    """Prepare the round of a block that somebody named, with the largest exponent that anybody has in it."""
    slot.stage = _WHOLE
    slot.block = block
    slot.exponent = exponent
    slot.named = 1
    slot.payload = 0
    if slot.next_block == block:
        slot.payload = exponent != NOT_FINITE
        name_next(core, slot, operation, block + operation.columns)


@inner
def contribute(state: State, index: int, now: float) -> None:
    """Pack the slot's contribution into its row and queue it; put it off while the row is still being read."""
    core = state.core[0]
    slot = state.slots[index]
    row = 2 * index + (slot.number & 1)
    if state.rows[row].sequence > core.consumed:
        core.blocked += slot.phase != _BLOCKED
        core.counts[_COUNT_BLOCKED] += slot.phase != _BLOCKED
        slot.phase = _BLOCKED
        return
    core.blocked -= slot.phase == _BLOCKED
    _write_frame(state, index, row)
    slot.phase = _WAITING
    slot.repeats = 0
    slot.held = 0
    settle(core, slot)  # a slot that waits repeats its last round anyway
    core.waiting += 1
    transmit(state, index, row, now)


@inner
def contribute_blocked(state: State, now: float) -> None:
    """Try again to pack what had to wait for its row."""
    if state.core[0].blocked == 0:
        return
    for index in range(state.slots.size):
        if state.slots[index].phase == _BLOCKED:
            contribute(state, index, now)


@inner
def _write_frame(state: State, index: int, row: int) -> None:
    """Write a whole frame, headers and lanes, into its row."""
    core = state.core[0]
    slot = state.slots[index]
    operation = state.operations[slot.operation % OPERATIONS]
    body = core.lanes * LANE_BYTES if slot.payload else core.padding
    state.rows[row].length = FRAME_BYTES + body
    start = core.store + row * core.stride + core.lead
    frame = bytes_at(start, FRAME_BYTES + body)
    lower = core.lower[slot.payload]
    for at in range(LOWER_BYTES):
        frame[at] = lower[at]
    frame[header.VERSION] = WIRE_VERSION
    frame[header.KIND] = _CONTRIBUTION
    frame[header.OPERATOR] = _SUM
    frame[header.FORMAT] = _FORMAT
    frame[header.FLAGS] = _PAYLOAD if slot.payload else 0
    frame[header.REASON] = 0
    frame[header.EXPONENT] = round_exponent(slot)
    frame[header.NEXT_EXPONENT] = slot.next_exponent
    put16(frame, header.JOB, core.job)
    put16(frame, header.EPOCH, core.epoch)
    put16(frame, header.RANK, core.rank)
    put16(frame, header.TREE, 0)
    put32(frame, header.SLOT, index)
    put32(frame, header.NUMBER, slot.number)
    put32(frame, header.BLOCK, slot.block)
    put32(frame, header.NEXT_BLOCK, slot.next_block)
    put32(frame, header.DIGEST, operation.digest)
    put32(frame, header.BITMAP, 0)
    if slot.payload:
        count = values_in(core, operation, slot.block)
        source = address_in(core, operation, slot.block)
        if slot.stage == _WHOLE:
            pack(operation.dtype, source, count, start + FRAME_BYTES, core.lanes, core.scales[slot.exponent])
        else:
            pack_half(source, count, start + FRAME_BYTES, core.lanes, slot.stage == _HIGH)
    else:
        frame[FRAME_BYTES:] = 0
    if core.checksum:
        fill_checksum(frame)


@inner
def round_exponent(slot: Record) -> Scalar:
    """Return the header's exponent: of integers, whose exponent is 0, which half is being added."""
    return slot.exponent if slot.stage == _WHOLE else slot.stage
