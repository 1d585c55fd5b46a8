"""The kernels of the one loop, which `loop.py` describes; `by_hand.py` has those of an engine without one."""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum.native.kernels.atomics import copy_bytes
from switchsum.native.kernels.decorators import inner
from switchsum.native.kernels.intrinsics import carray, pointer
from switchsum.native.kernels.memory import call, integers_at
from switchsum.native.kernels.outlined import Outlined
from switchsum.native.process.patience import FIELDS, step_aside
from switchsum.native.process.system import monotonic
from switchsum.native.process.trace import Span, Spans, is_traced, note

from . import machine, recovery
from .loop import LINK, LOOP, LinkRecord, LoopRecord, Stop
from .state import ARRAYS, CORE, OPERATION, OPERATIONS, ROW, SLOT, Arrays, Count, State

_NAP_ROUNDS: Final = 16
"""With so many rounds in flight a nap pays."""
_NAP_SHARE: Final = 1 / 4
"""How long it is, as part of what a round takes."""

_RECORD_BYTES: Final = OPERATION.itemsize


@inner
def state_at(arrays: int) -> State:
    """Return the state of an engine, whose `Arrays` are at an address."""
    here: Arrays = carray(pointer(arrays), (1,), ARRAYS)[0]
    slots, rows = here.window, 2 * here.window
    return State(
        carray(pointer(here.core), (1,), CORE),
        carray(pointer(here.slots), (slots,), SLOT),
        carray(pointer(here.operations), (OPERATIONS,), OPERATION),
        carray(pointer(here.rows), (rows,), ROW),
        carray(pointer(here.queue), (2, rows), np.int32),
        carray(pointer(here.kept), (slots, here.lanes_per_frame), np.uint32),
        integers_at(here.unanswered, slots),
    )


@inner
def submit_record(arrays: int, record: int, now: float) -> None:
    """Begin the operation whose `OPERATION` record is at an address."""
    here: Arrays = carray(pointer(arrays), (1,), ARRAYS)[0]
    state = state_at(arrays)
    copy_bytes(here.operations + state.core[0].submitted % OPERATIONS * _RECORD_BYTES, record, _RECORD_BYTES)
    machine.submit(state, now)


@Outlined
def restore(arrays: int, now: float) -> int:
    """Begin to tell a restarted switch what it needs."""
    recovery.restore(state_at(arrays), now)
    return 0


@Outlined
def begin(loop: int, record: int, until: float) -> int:
    """Submit an operation, and `run`."""
    here: LoopRecord = carray(pointer(loop), (1,), LOOP)[0]
    link: LinkRecord = carray(pointer(here.link), (1,), LINK)[0]
    call(link.now, here.link)
    submit_record(here.arrays, record, link.time)
    return int(call(here.run, loop, until))


@Outlined
def run(loop: int, until: float) -> int:
    """Move frames until something has happened or the link's clock says `until`; return why it ends (a `Stop`)."""
    here: LoopRecord = carray(pointer(loop), (1,), LOOP)[0]
    link: LinkRecord = carray(pointer(here.link), (1,), LINK)[0]
    arrays: Arrays = carray(pointer(here.arrays), (1,), ARRAYS)[0]
    link.queue_rows = arrays.queue
    link.queue_lengths = arrays.queue + 4 * 2 * arrays.window
    spans = carray(pointer(here.spans), (here.span_rows, 5), np.int64)
    state = state_at(here.arrays)
    core = state.core[0]
    link.stop = 0
    rested = True
    while True:
        count, sent = _receive(here, link, state, spans)
        machine.poll(state, link.time)
        sent += _send(here, link, state, spans)
        if link.stop != 0:
            return int(link.stop)
        if core.finished_count > 0 or core.failure != 0 or link.time >= until:
            return Stop.PAUSED
        if count + sent > 0:
            rested = rested and count == 0
            continue
        link.nap_s = 0.0
        if not rested and core.waiting >= _NAP_ROUNDS:
            link.nap_s = min(core.smoothed_s * _NAP_SHARE, link.longest_nap_s)
        rested = rested or link.nap_s > 0
        link.until = min(until, machine.look_again_at(state, link.time))
        began = monotonic() if is_traced(spans) else 0.0
        call(link.wait, here.link)
        if is_traced(spans):
            note(spans, Span.WAIT, began, monotonic(), 0, 0)
        if link.stop != 0:
            return int(link.stop)


@inner
def _receive(here: LoopRecord, link: LinkRecord, state: State, spans: Spans) -> tuple[int, int]:
    """Take what has come; return how many frames, and how many were sent meanwhile."""
    core = state.core[0]
    patience = carray(pointer(link.patience), (FIELDS,), np.float64)
    before, count, sent = core.counts[Count.BYTES_RECEIVED], 0, 0
    while True:
        came = call(link.take, here.link)
        machine.consumed(state, call(link.consumed, here.link) - here.pushed_before)
        call(link.now, here.link)
        done = 0
        while done < came:
            part = min(link.turn, came - done)
            _feed(link, state, done, part, spans)
            done += part
            if core.queued >= link.turn:
                sent += _send(here, link, state, spans)
                machine.consumed(state, call(link.consumed, here.link) - here.pushed_before)
                step_aside(patience)
        call(link.release, here.link)
        count += came
        if came == 0 or core.counts[Count.BYTES_RECEIVED] - before >= link.batch_bytes or link.stop != 0:
            return count, sent


@inner
def _feed(link: LinkRecord, state: State, done: int, count: int, spans: Spans) -> None:
    """Let the engine have `count` of the frames that were taken, behind those that are done."""
    core = state.core[0]
    rows, lengths = link.rows + 4 * done, link.lengths + 4 * done
    bodies = link.bodies + 8 * done if link.bodies != 0 else 0
    ended = core.counts[Count.ROUNDS]
    began = monotonic() if is_traced(spans) else 0.0
    machine.receive(state, link.frames, link.stride, rows, lengths, bodies, count, link.time)
    if is_traced(spans):
        note(spans, Span.RESULTS, began, monotonic(), count, core.counts[Count.ROUNDS] - ended)


@inner
def _send(here: LoopRecord, link: LinkRecord, state: State, spans: Spans) -> int:
    """Send what the engine has queued, as far as there is room; return how many frames went."""
    queued = state.core[0].queued
    if queued == 0:
        return 0
    began = monotonic() if is_traced(spans) else 0.0
    link.queued = queued
    call(link.send, here.link)
    count = machine.handed_over(state, link.pushed - here.pushed_before)
    if is_traced(spans) and count > 0:
        note(spans, Span.SEND, began, monotonic(), count, 0)
    return count
