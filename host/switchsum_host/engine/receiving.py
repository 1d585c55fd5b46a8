"""The receiving half of a worker's slot machine: what happens to a batch of frames that came from the switch.

A result is believed only if it is about the round that the slot waits for and agrees with what was contributed;
everything else is counted and dropped.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_protocol.frame import AT, FRAME_BYTES, LANE_BITS, LANE_BYTES, NO_BLOCK, Flag, Kind, Operator, Reason
from switchsum_protocol.lane_scales import NOT_FINITE, WIDE_BITS
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.memory import Scalar, bytes_at, call, longs_at, prefetch, words_at

from .call_times import keep_end
from .congestion import note_round
from .dtypes import EXACT, INT8
from .header import Frame, fault, get16, get32, has_met_congestion, slot_of
from .integers import parts_of
from .kernels import bound_of, item_bytes, power_of_two
from .narrow import can_round_to_infinity
from .recovery import note_answer, note_held, note_result, recall, repeat_asked
from .rules import ACTIONS, Action, Event
from .sending import (
    address_in,
    begin_column,
    choose_block,
    contribute,
    release,
    round_exponent,
    round_format,
    values_in,
    wants,
    way_of,
)
from .state import OPERATIONS, WHOLE, Core, Count, Failure, OperationRecord, Phase, Slot, State

_WORD_MASK: Final = 0xFFFF_FFFF
_NUMBER_SIGN: Final = 0x8000_0000
_LINE_BYTES: Final = 64
"""Bytes of a cache line."""
_MOST_AHEAD_BYTES: Final = 1024
"""Bytes of each block that are fetched ahead. The processor sees by itself how a longer block goes on."""


@inner
def receive(
    state: State, frames: int, stride: int, rows: int, lengths: int, bodies: int, count: int, now: float
) -> None:
    """Take `count` frames: addresses of the first row, of the int32 row indices and of the int32 lengths.

    `bodies` is the address of `count` addresses, one of each frame's lanes, 0 if they are in the frame's row.  If all
    frames are whole, `bodies` itself is 0.
    """
    core = state.core[0]
    progress = core.progress
    body_list = longs_at(bodies, count)
    row_list = words_at(rows, count)
    length_list = words_at(lengths, count)
    for i in range(count):
        if i + 2 < count:
            fetch_lines(_start_of(core, frames, stride, row_list[i + 2]), 2 * _LINE_BYTES)
        if i + 1 < count:
            start = _start_of(core, frames, stride, row_list[i + 1])
            fetch_ahead(state, start, _lanes_at(bodies, body_list, i + 1, start))
        start = _start_of(core, frames, stride, row_list[i])
        length: Scalar = np.int64(length_list[i])
        progress.counts[Count.FRAMES_RECEIVED] += 1
        progress.counts[Count.BYTES_RECEIVED] += length
        lanes = _lanes_at(bodies, body_list, i, start)
        progress.counts[_take_frame(state, bytes_at(start, length), lanes, now)] += 1


@inner
def _start_of(core: Core, frames: int, stride: int, row: Scalar) -> Scalar:
    """Return the address of the frame in a row."""
    return frames + np.int64(row) * stride + core.sending.lead


@inner
def _lanes_at(bodies: int, body_list: npt.NDArray[np.uint64], index: int, start: int) -> Scalar:
    """Return the address of the lanes of a frame that starts at an address."""
    if bodies != 0 and body_list[index] != 0:
        return np.int64(body_list[index])
    return start + FRAME_BYTES


@inner
def _take_frame(state: State, frame: Frame, lanes: int, now: float) -> int:
    """Take one frame, of which only the header is sure to be in `frame`, and whose lanes are at an address.

    Return under which `Count` it goes.
    """
    core = state.core[0]
    progress = core.progress
    if progress.failure != 0:
        return Count.UNEXPECTED
    reason = fault(core, frame)
    if reason != 0:
        return reason
    index = slot_of(core, frame)
    if index >= core.member.window:
        return Count.FOREIGN
    slot = state.slots[index]
    if get16(frame, AT.tree) != slot.tree:
        return Count.FOREIGN
    action = ACTIONS[slot.phase, _event_of(state, slot, frame)]
    is_taken = frame[AT.reason] == Reason.TAKEN
    if action == Action.TAKE:
        progress.counts[Count.TAKEN] += is_taken
        _take_result(state, index, frame, is_taken, lanes, now)
        return Count.ROUNDS
    if action == Action.NOTE_HELD:
        note_held(state, index, get32(frame, AT.bitmap), now)
        return Count.HELD
    if action in (Action.FAIL_MISMATCH, Action.FAIL_REJECTED):
        is_refused = action == Action.FAIL_REJECTED
        progress.failure = Failure.REJECTED if is_refused else Failure.MISMATCH
        progress.failed = slot.operation
        progress.reason = frame[AT.reason] if is_refused else 0
        return Count.REJECTED if is_refused else Count.ROUNDS
    if action == Action.NOTE_ANSWER:
        note_answer(state, index, frame[AT.kind] == Kind.RESULT and frame[AT.flags] & Flag.PAYLOAD != 0, now)
        return Count.DUPLICATE
    if action == Action.REPEAT:
        repeat_asked(state, index, now)
        return Count.HELD
    if action == Action.REPEAT_FORMER:
        recall(state, index)
        return Count.DUPLICATE
    if action == Action.DUPLICATE:
        return Count.DUPLICATE
    if action == Action.STALE:
        return Count.STALE
    return Count.UNEXPECTED if action == Action.UNEXPECTED else Count.FOREIGN


@inner
def _event_of(state: State, slot: Slot, frame: Frame) -> int:
    """Tell which `Event` a frame is for the slot that it is about."""
    kind = frame[AT.kind]
    age = (slot.number - get32(frame, AT.number)) & _WORD_MASK
    if age & _NUMBER_SIGN:
        return Event.NEWER
    if age > 1:
        return Event.OLDER
    if age == 1 and kind == Kind.REJECT:
        return Event.FORMER_REJECT
    if kind == Kind.HELD and _is_asked(state.core[0], frame):
        return Event.FORMER_ASKED if age == 1 else Event.ASKED
    if age == 1:
        return Event.FORMER
    if kind == Kind.HELD:
        return Event.HELD
    if slot.phase != Phase.WAITING:
        return Event.RESULT  # there is no contribution to compare it with
    operation = state.operations[slot.operation % OPERATIONS]
    if kind == Kind.REJECT:
        # What the switch refused is all there, and may have been broken on the way.
        return Event.REJECT if _is_of_round(slot, operation, frame) else Event.CONTRADICTION
    if frame[AT.flags] & Flag.MISMATCH:
        return Event.MISMATCH
    return Event.RESULT if _agrees(state.core[0], slot, operation, frame) else Event.CONTRADICTION


@inner
def _is_asked(core: Core, frame: Frame) -> Scalar:
    """Tell whether HELD says that this member's contribution is missing."""
    return get16(frame, AT.tree) == core.member.shared_tree and get32(frame, AT.bitmap) & core.member.bit == 0


@inner
def _is_of_round(slot: Slot, operation: OperationRecord, frame: Frame) -> Scalar:
    """Tell whether a frame has what all contributions to the slot's round must agree in."""
    return (
        get32(frame, AT.block) == slot.block
        and get32(frame, AT.digest) == operation.digest
        and frame[AT.exponent] == round_exponent(slot)
        and frame[AT.operator] == operation.operator
        and frame[AT.format] == round_format(slot, operation)
    )


@inner
def _take_result(state: State, index: int, frame: Frame, is_taken: bool, lanes: int, now: float) -> None:
    """Take the result of the round that a slot waits for; `is_taken`: it has been added in place of a shared slot."""
    core = state.core[0]
    slot = state.slots[index]
    operation = state.operations[slot.operation % OPERATIONS]
    sequence = state.last_sent[index]
    carries = slot.payload != 0 or frame[AT.flags] & Flag.PAYLOAD != 0
    note_round(state, slot, sequence, has_met_congestion(frame), carries, now)
    next_block = get32(frame, AT.next_block)
    slot.way = way_of(core, slot, is_taken, next_block)
    note_result(state, index, carries, now)
    slot.way = int(is_taken)
    core.progress.rounds += 1
    slot.number = (slot.number + 1) & _WORD_MASK
    next_exponent = frame[AT.next_exponent]
    if _write_sums(state, index, frame[AT.flags], lanes):
        # More rounds of the same block: its parts.
        contribute(state, index, now)
    elif next_block != NO_BLOCK:
        choose_block(core, slot, operation, next_block, next_exponent)
        contribute(state, index, now)
    else:
        _end_column(state, slot, operation, now)
        begin_column(state, index, now)
    release(state, slot.tree, now)


@inner
def _agrees(core: Core, slot: Slot, operation: OperationRecord, frame: Frame) -> Scalar:
    """Tell whether a result is possible, given this worker's contribution to it."""
    if not _is_of_round(slot, operation, frame):
        return False
    # Lanes come if anybody sent them, and the one who named a block does.
    can_have_lanes = slot.block != NO_BLOCK and slot.exponent != NOT_FINITE
    has_lanes = frame[AT.flags] & Flag.PAYLOAD != 0
    is_wanted = wants(core, operation, slot.block)
    if has_lanes != can_have_lanes and (has_lanes or ((slot.named or slot.payload) and is_wanted)):
        return False
    # Nothing but floats has exponents: with one that is not finite, integers would become NaN.
    if operation.dtype >= INT8 and frame[AT.next_exponent] != 0:
        return False
    # The minimum is at most what this worker named itself, with an exponent that covers this worker's.
    block = get32(frame, AT.next_block)
    if block > slot.next_block or (block == slot.next_block and frame[AT.next_exponent] < slot.next_exponent):
        return False
    if block == NO_BLOCK:
        return True
    after = slot.column if slot.block == NO_BLOCK else slot.block + 1
    return block >= after and block < operation.blocks and block % operation.columns == slot.column


@inner
def _write_sums(state: State, index: int, flags: int, lanes: int) -> bool:
    """Write a round's sums to the array; True when the same block needs a further round."""
    core = state.core[0]
    slot = state.slots[index]
    if slot.block == NO_BLOCK:
        return False
    operation = state.operations[slot.operation % OPERATIONS]
    dtype = operation.dtype
    count = values_in(operation, slot.block)
    target = address_in(operation, slot.block)
    if slot.exponent == NOT_FINITE:
        call(core.kernels.fill_nan, dtype, target, count)
        return False
    if flags & Flag.PAYLOAD == 0 or not wants(core, operation, slot.block):
        return False
    if slot.stage != WHOLE:
        words = core.member.lanes_per_frame
        kept = core.sending.kept + index * words * LANE_BYTES
        part = slot.stage - 1
        if call(core.kernels.unpack_part, dtype, operation.unsigned, part, lanes, count, target, kept, words) == 0:
            bytes_at(operation.marks, operation.blocks)[slot.block] = 1
        slot.stage = slot.stage + 1 if slot.stage < parts_of(dtype) else WHOLE
        slot.named = 1
        return bool(slot.stage != WHOLE)
    if dtype == EXACT:
        call(core.kernels.unpack_exact, lanes, count, target, operation.share)
        return False
    if dtype >= INT8:
        if flags & Flag.OVERFLOW and operation.operator == Operator.SUM:
            core.progress.counts[Count.OVERFLOWS] += 1
            slot.stage = 1
            slot.named = 1
            return True
        call(core.kernels.unpack_integers, dtype, operation.mapping, lanes, count, target)
        return False
    step = operation.step * power_of_two(bound_of(slot.exponent))
    if LANE_BITS[operation.format] == WIDE_BITS:
        call(core.kernels.unpack, dtype, lanes, count, target, step)
    else:
        call(core.kernels.unpack_narrow, dtype, lanes, count, target, step)
    if can_round_to_infinity(dtype, slot.exponent) and _is_average(core, operation):
        call(core.kernels.limit, dtype, target, count)
    return False


@inner
def _is_average(core: Core, operation: OperationRecord) -> bool:
    """Tell whether no result is larger than the largest value of all workers: an average, or one worker's sum."""
    return operation.share * core.member.workers < 2.0


@inner
def _end_column(state: State, slot: Slot, operation: OperationRecord, now: float) -> None:
    """Note that a column has ended, and with the last one its operation."""
    progress = state.core[0].progress
    operation.remaining -= 1
    if operation.remaining == 0:
        keep_end(state.core[0].calls, operation.kept, slot.operation, now)
        progress.finished[progress.finished_count] = slot.operation
        progress.finished_count += 1
        while progress.oldest < progress.submitted and state.operations[progress.oldest % OPERATIONS].remaining == 0:
            progress.oldest += 1


@inner
def fetch_ahead(state: State, start: int, lanes: int) -> None:
    """Prefetch what the frame at an address will need, if it is the result that its slot waits for.

    While nothing is lost, blocks follow one another in memory and the processor prefetches by itself; once slots are in
    different rounds, blocks do not, and each round would wait for memory three times.
    """
    core = state.core[0]
    index = slot_of(core, bytes_at(start, FRAME_BYTES))
    if index >= core.member.window or state.slots[index].phase != Phase.WAITING:
        return
    slot = state.slots[index]
    operation = state.operations[slot.operation % OPERATIONS]
    size = operation.per_block * item_bytes(operation.dtype)
    near = min(size, _MOST_AHEAD_BYTES)
    fetch_lines(lanes, near)
    fetch_lines(operation.address + slot.block * size, near)
    fetch_lines(operation.address + slot.next_block * size, near)
    fetch_lines(operation.address + (slot.next_block + operation.columns) * size, near)


@inner
def fetch_lines(address: int, size: int) -> None:
    """Prefetch `size` bytes at an address; an invalid address does no harm."""
    for offset in range(0, size, _LINE_BYTES):
        prefetch(address + offset)
