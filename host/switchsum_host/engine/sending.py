"""The sending half of a worker's slot machine: the block that a slot contributes next, its frame, and the queue."""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum_protocol.frame import (
    ALL_BUT,
    AT,
    FRAME_BYTES,
    LANE_BITS,
    NO_BLOCK,
    VALUE_BITS,
    WIRE_VERSION,
    Flag,
    Kind,
    LaneFormat,
)
from switchsum_protocol.lane_scales import NOT_FINITE, WIDE_BITS
from switchsum_switch.kernels.atomics import copy_bytes
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.memory import Scalar, bytes_at, call
from switchsum_switch.kernels.mixing import mixed
from switchsum_switch.wires.headers import LOWER_BYTES

from .call_times import keep_begin
from .congestion import append, is_full, may_send, take_first
from .dtypes import EXACT, INT8, INT64
from .header import fill_checksum, put16, put32
from .integers import ALL_ZERO
from .kernels import bound_of, item_bytes, power_of_two
from .policies import delivery, pacing
from .policies.timer import note_size
from .rules import ACTIONS, PHASES, Action, Event
from .state import (
    MOST_TREES,
    OPERATION,
    OPERATIONS,
    WHOLE,
    Body,
    Core,
    Count,
    OperationRecord,
    Outstanding,
    Phase,
    Slot,
    State,
)

NO_RANK: Final = -1
_ODD: Final = 0x9E37_79B1
"""Factor of serial numbers: numbers near each other then differ in many bits."""
_WORD_MASK: Final = 0xFFFF_FFFF
_RECORD_BYTES: Final = OPERATION.itemsize


@inner
def take_operation(state: State, record: int, now: float) -> None:
    """Take the operation whose `OPERATION` record is at an address, and begin it in slots that are free."""
    core = state.core[0]
    progress = core.progress
    place = progress.submitted % OPERATIONS
    copy_bytes(state.operations.ctypes.data + place * _RECORD_BYTES, record, _RECORD_BYTES)
    operation = state.operations[place]
    operation.kept = keep_begin(core.calls, operation.digest, progress.submitted, now)
    operation.digest = (operation.digest ^ progress.submitted * _ODD) & _WORD_MASK
    _assign_slots(core, operation)
    progress.submitted += 1
    for column in range(operation.columns):
        index = (operation.first_slot + column) % core.member.window
        if ACTIONS[state.slots[index].phase, Event.SUBMITTED] == Action.BEGIN:
            begin_column(state, index, now)


@inner
def _assign_slots(core: Core, operation: OperationRecord) -> None:
    """Choose where among the slots an operation's columns begin.

    A slot must get the same operations in the same order on all ranks, so that who comes first cannot be decided when a
    slot becomes free.  In a job that shares slots, an operation that fits into the job's own slots uses those alone.
    """
    operation.columns = operation.remaining = max(1, min(core.member.window, operation.blocks))
    if operation.columns <= core.member.own < core.progress.turn + operation.columns:
        core.progress.turn = 0
    operation.first_slot = core.progress.turn
    core.progress.turn = (operation.first_slot + operation.columns) % core.member.window


@inner
def first_in(operation: OperationRecord, block: int) -> Scalar:
    """Return the first value of a block.

    Where each rank has its part, blocks of all parts take turns, so that all ranks' links are busy at the same time.
    """
    place = np.int64(block)
    if operation.part != 0:
        parts = operation.size // operation.part
        each = operation.blocks // parts
        if place < each * parts:
            place = place % parts * each + place // parts
    return place * operation.per_block


@inner
def values_in(operation: OperationRecord, block: int) -> Scalar:
    """Return how many values a block has: the last one may have fewer than the others."""
    return min(operation.per_block, operation.size - first_in(operation, block))


@inner
def address_in(operation: OperationRecord, block: int) -> Scalar:
    """Return the address of a block in the operation's array."""
    return operation.address + first_in(operation, block) * item_bytes(operation.dtype)


@inner
def examine(core: Core, operation: OperationRecord, block: int) -> Scalar:
    """Return the exponent of a block (0 for integers), or ALL_ZERO if it need not travel."""
    if operation.dense:
        return np.int64(0)
    return call(core.kernels.scan, operation.dtype, address_in(operation, block), values_in(operation, block))


@inner
def name_next(core: Core, slot: Slot, operation: OperationRecord, block: int) -> None:
    """Find the first block of the slot's column, from `block` on, that travels for this worker: it is named next."""
    while block < operation.blocks:
        exponent = examine(core, operation, block)
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
    slot.considered = max(slot.considered, core.progress.oldest)
    while slot.considered < core.progress.submitted:
        serial = slot.considered
        slot.considered += 1
        operation = state.operations[serial % OPERATIONS]
        column = (index - operation.first_slot) % core.member.window
        if column < operation.columns:
            slot.operation = serial
            slot.column = column
            slot.named = 0
            _choose_first(core, slot, operation)
            contribute(state, index, now)
            return
    enter(state, slot, Event.COLUMNS_OVER)


@inner
def _choose_first(core: Core, slot: Slot, operation: OperationRecord) -> None:
    """Prepare a column's first round.

    Floats only agree on the first block and its exponent.  Integers need no exponent, so the column's first block goes
    along at once, whether or not it is zero.  Not where jobs share slots: there the first round claims one.
    """
    slot.stage = operation.split
    slot.exponent = 0
    slot.payload = 0
    if operation.dtype >= INT8 and slot.column < operation.blocks and slot.tree != core.member.shared_tree:
        slot.block = slot.column
        slot.payload = int(examine(core, operation, slot.block) != ALL_ZERO)
        name_next(core, slot, operation, slot.column + operation.columns)
    else:
        slot.block = NO_BLOCK
        name_next(core, slot, operation, slot.column)


@inner
def choose_block(core: Core, slot: Slot, operation: OperationRecord, block: int, exponent: int) -> None:
    """Prepare the round of a block that somebody named, with the largest exponent that anybody has in it."""
    slot.stage = operation.split
    slot.block = block
    slot.exponent = exponent
    slot.named = 1
    slot.payload = 0
    if slot.next_block == block:
        slot.payload = int(exponent != NOT_FINITE)
        name_next(core, slot, operation, block + operation.columns)


@inner
def contribute(state: State, index: int, now: float) -> None:
    """Pack the slot's contribution into its row and queue it; put it off while the window is full."""
    core = state.core[0]
    slot = state.slots[index]
    state.paths[slot.tree + slot.passes].in_flight -= slot.phase != Phase.IDLE
    slot.passes = int(slot.tree == core.member.shared_tree and slot.way != 0 and slot.block != NO_BLOCK)
    state.paths[slot.tree + slot.passes].in_flight += slot.phase != Phase.IDLE
    if is_full(state, slot, now):
        enter(state, slot, Event.ROW_HELD)
        core.progress.blocked -= 1
        state.paths[slot.tree + slot.passes].in_flight -= 1
        append(state, index)
    else:
        _pack_and_queue(state, index, now)


@inner
def release(state: State, tree: int, now: float) -> None:
    """Send what was withheld, as far as the window has room."""
    for path in range(tree, tree + 1 + int(tree == state.core[0].member.shared_tree)):
        while may_send(state, path, now):
            send_withheld(state, path, now)


@inner
def release_paced(state: State, now: float) -> None:
    """Send what only waited for its time."""
    recovery = state.core[0].recovery
    if now < recovery.paced_at:
        return
    recovery.paced_at = np.inf
    for path in range(MOST_TREES):
        while may_send(state, path, now):
            send_withheld(state, path, now)


@inner
def send_withheld(state: State, tree: int, now: float) -> None:
    """Send the contribution that was withheld first."""
    index = take_first(state, tree)
    core = state.core[0]
    core.progress.blocked += 1
    state.paths[tree].in_flight += 1
    _pack_and_queue(state, index, now)


@inner
def _pack_and_queue(state: State, index: int, now: float) -> None:
    """Pack the slot's contribution into its row and queue it; put it off while the row is still being read."""
    core = state.core[0]
    slot = state.slots[index]
    row = 2 * index + (slot.number & 1)
    if state.rows[row].sequence > core.sending.consumed:
        if enter(state, slot, Event.ROW_HELD) == Action.PUT_OFF:
            core.progress.counts[Count.BLOCKED] += 1
        return
    _write_frame(state, index, row)
    if slot.payload and core.recovery.has_lanes == 0:
        core.recovery.has_lanes = 1
        # Only frames without lanes were timed.  Links take so many times as long for this one.
        note_size(core.recovery.timer, np.float64(state.rows[row].length) / FRAME_BYTES)
    slot.way = way_of(core, slot, slot.way != 0, slot.next_block)
    slot.repeats = slot.held = 0
    state.rows[row].first_at, state.rows[row].repeated_at = now, 0.0
    state.rows[row].first = core.sending.sequence + 1
    if enter(state, slot, Event.CONTRIBUTED) == Action.ACKNOWLEDGE:
        acknowledge(core, slot)
    queue_contribution(state, index, row, now)


@inner
def way_of(core: Core, slot: Slot, is_taken: bool, next_block: int) -> Scalar:
    """Return 1 if the fallback answers a round: the claim of a slot, the last one, and all while the slot is taken."""
    is_further = is_taken or max(np.int64(slot.block), np.int64(next_block)) == NO_BLOCK
    return np.int64(slot.tree == core.member.shared_tree and is_further)


@inner
def enter(state: State, slot: Slot, event: int) -> Scalar:
    """Take a slot to the phase that follows on an event, and return the `Action` that the table names."""
    progress, path = state.core[0].progress, state.paths[slot.tree + slot.passes]
    was, then = slot.phase, PHASES[slot.phase, event]
    progress.waiting += then == Phase.WAITING
    progress.waiting -= was == Phase.WAITING
    progress.blocked += then == Phase.BLOCKED
    progress.blocked -= was == Phase.BLOCKED
    path.in_flight += then != Phase.IDLE
    path.in_flight -= was != Phase.IDLE
    slot.phase = then
    return ACTIONS[was, event]


@inner
def contribute_blocked(state: State, now: float) -> None:
    """Try again to pack what had to wait for its row."""
    if state.core[0].progress.blocked == 0:
        return
    for index in range(state.slots.size):
        slot = state.slots[index]
        if ACTIONS[slot.phase, Event.ROW_FREE] == Action.PACK and slot.withheld == 0:
            _pack_and_queue(state, index, now)


@inner
def owner_of(core: Core, operation: OperationRecord, block: int) -> Scalar:
    """Return the rank whose part a block lies in, NO_RANK if that makes no difference or there is not one alone.

    Behind the parts there may be values of all ranks (`switchsum_host.api.ragged`).
    """
    if operation.part == 0 or block == NO_BLOCK:
        return NO_RANK
    first = first_in(operation, block)
    part = first // operation.part
    owner = operation.root + part
    is_alone = (first + values_in(operation, block) - 1) // operation.part == part
    return owner if is_alone and owner < core.member.workers else NO_RANK


@inner
def wants(core: Core, operation: OperationRecord, block: int) -> Scalar:
    """Tell whether this worker needs the result of a block."""
    owner = owner_of(core, operation, block)
    return owner == NO_RANK or (owner == core.member.rank) != (operation.gathers == 1)


@inner
def _write_frame(state: State, index: int, row: int) -> None:
    """Write a whole frame, headers and lanes, into its row."""
    core = state.core[0]
    member = core.member
    sending = core.sending
    slot = state.slots[index]
    operation = state.operations[slot.operation % OPERATIONS]
    body = _body_of(core, slot, operation)
    length = FRAME_BYTES + member.bodies[body]
    state.rows[row].length = length
    start = sending.store + row * sending.stride + sending.lead
    frame = bytes_at(start, length)
    lower = member.lower[body]
    for at in range(LOWER_BYTES):
        frame[at] = lower[at]
    frame[AT.version] = WIRE_VERSION
    frame[AT.kind] = Kind.CONTRIBUTION
    frame[AT.operator] = operation.operator
    frame[AT.format] = round_format(slot, operation)
    frame[AT.flags] = Flag.PAYLOAD if slot.payload else 0
    frame[AT.reason] = 0
    frame[AT.exponent] = round_exponent(slot)
    frame[AT.next_exponent] = slot.next_exponent
    put16(frame, AT.job, member.job)
    put16(frame, AT.epoch, member.epoch)
    put16(frame, AT.rank, member.rank)
    put16(frame, AT.tree, slot.tree)
    put32(frame, AT.slot, member.first_slot + index + (member.shared_shift if slot.tree == member.shared_tree else 0))
    put32(frame, AT.number, slot.number)
    put32(frame, AT.block, slot.block)
    put32(frame, AT.next_block, slot.next_block)
    put32(frame, AT.digest, operation.digest)
    owner = owner_of(core, operation, slot.block)
    if owner == NO_RANK:
        put32(frame, AT.bitmap, 0)
    else:
        frame[AT.flags] |= Flag.SELECT
        put32(frame, AT.bitmap, operation.gathers * ALL_BUT + (member.workers << 16) + owner)
    put32(frame, AT.cookie, member.cookie[0])
    put32(frame, AT.cookie + 4, member.cookie[1])
    if slot.payload:
        _write_lanes(core, slot, operation, body, start + FRAME_BYTES)
    else:
        frame[FRAME_BYTES:] = 0
    if sending.checksum:
        fill_checksum(frame)


@inner
def _body_of(core: Core, slot: Slot, operation: OperationRecord) -> Scalar:
    """Return what the slot's contribution consists of, a `Body`."""
    if slot.payload == 0:
        return np.int64(Body.NONE)
    is_widened = VALUE_BITS[operation.format] < LANE_BITS[operation.format]
    is_narrow = is_widened and slot.stage == WHOLE and core.member.takes_narrow == 1
    return np.int64(Body.NARROW) if is_narrow else np.int64(Body.LANES)


@inner
def _write_lanes(core: Core, slot: Slot, operation: OperationRecord, body: int, target: int) -> None:
    """Write the lanes of the slot's block at an address."""
    member = core.member
    dtype = operation.dtype
    count = values_in(operation, slot.block)
    source = address_in(operation, slot.block)
    words = member.lanes_per_frame
    scale = operation.scale * power_of_two(-bound_of(slot.exponent))
    if slot.stage != WHOLE:
        call(core.kernels.pack_part, dtype, operation.unsigned, slot.stage - 1, source, count, target, words)
    elif dtype == EXACT:
        call(core.kernels.pack_exact, source, count, target, words)
    elif dtype >= INT8 and body == Body.NARROW:
        call(core.kernels.pack_nibbles, source, count, target, words)
    elif dtype >= INT8:
        call(core.kernels.pack_integers, dtype, operation.mapping, operation.infinity, source, count, target, words)
    elif VALUE_BITS[operation.format] == WIDE_BITS:
        call(core.kernels.pack, dtype, source, count, target, words, scale)
    else:
        seed = mixed(np.uint32(member.seed ^ operation.digest)) ^ np.uint32(slot.block)
        lane_bits = np.int64(LANE_BITS[operation.format])
        bits = np.int64(VALUE_BITS[operation.format]) if body == Body.NARROW else lane_bits
        drawn = np.int64(mixed(seed))
        call(core.kernels.pack_narrow, dtype, bits, lane_bits, source, count, target, words, scale, drawn)


@inner
def round_format(slot: Slot, operation: OperationRecord) -> Scalar:
    """Return the lane format of a slot's round: parts of integers have wider lanes."""
    if slot.stage == WHOLE:
        return operation.format
    return LaneFormat.INT64 if operation.dtype == INT64 else LaneFormat.INT32


@inner
def round_exponent(slot: Slot) -> Scalar:
    """Return the header's exponent: of integers, whose exponent is 0, which part is being added."""
    return slot.exponent if slot.stage == WHOLE else slot.stage


@inner
def queue_contribution(state: State, index: int, row: int, now: float) -> None:
    """Queue the frame of a slot's round for the transport."""
    core = state.core[0]
    queue_frame(state, row)
    state.slots[index].sent_at = now
    state.last_sent[index] = core.sending.sequence
    slot = state.slots[index]
    here = state.paths[slot.tree + slot.passes]
    delivery.note_sent(here.delivery, here.in_flight, now)
    if slot.block != NO_BLOCK:
        pacing.note_sent(
            here.pace, here.trips.least_s, here.window.limit, here.delivery.rate, core.recovery.timer.granularity_s, now
        )
    core.recovery.moved_at = now


@inner
def queue_frame(state: State, row: int) -> None:
    """Queue the frame in a row."""
    core = state.core[0]
    sending = core.sending
    length = state.rows[row].length
    sending.sequence += 1
    state.rows[row].sequence = sending.sequence
    state.queue[0, sending.queued] = row
    state.queue[1, sending.queued] = length
    sending.queued += 1
    core.progress.counts[Count.FRAMES_SENT] += 1
    core.progress.counts[Count.BYTES_SENT] += length


@inner
def handed_over(state: State, pushed: int) -> int:
    """Note that the transport was handed `pushed` frames so far; return how many of these are new."""
    core = state.core[0]
    count = pushed - (core.sending.sequence - core.sending.queued)
    sent(state, count)
    return int(count)


@inner
def sent(state: State, count: int) -> None:
    """Note that the transport took the first `count` frames of the queue."""
    core = state.core[0]
    core.sending.queued -= count
    for place in range(core.sending.queued if count > 0 else 0):
        state.queue[0, place] = state.queue[0, place + count]
        state.queue[1, place] = state.queue[1, place + count]


@inner
def note_consumed(state: State, count: int) -> None:
    """Note that the transport has let go of the first `count` frames that it was ever handed."""
    state.core[0].sending.consumed = count


@inner
def acknowledge(core: Core, slot: Slot) -> None:
    """Note that nothing of a slot is outstanding any more."""
    core.recovery.unanswered -= slot.outstanding == Outstanding.UNANSWERED
    core.recovery.answered -= slot.outstanding == Outstanding.ANSWERED
    slot.outstanding = Outstanding.NOTHING
