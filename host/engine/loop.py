"""The one loop: it moves frames between an engine and a link until something has happened or the time is over.

It calls a link's operations by address (`link.py`), so that it is compiled once for all links.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum.native.kernels.atomics import copy_bytes
from switchsum.native.kernels.decorators import inner
from switchsum.native.kernels.intrinsics import carray, pointer
from switchsum.native.kernels.loading import address_of
from switchsum.native.kernels.memory import call, integers_at
from switchsum.native.kernels.outlined import Native, Outlined
from switchsum.native.kernels.records import Int64, Record, dtype_of
from switchsum.native.process.patience import FIELDS, step_aside
from switchsum.native.process.system import monotonic
from switchsum.native.process.trace import Span, Spans, is_traced, note
from switchsum.protocol.errors import SwitchLost, SwitchsumError

from . import receiving, recovery, sending
from .link import LINK, LinkRecord, Operations, Stop
from .state import ARRAYS, CORE, OPERATION, OPERATIONS, ROW, SLOT, Arrays, Count, State, arrays_of

RETRY_S: Final = 0.0005
"""Pause before a full transport, or a row that it still reads, is looked at again."""
_NAP_ROUNDS: Final = 16
"""With so many rounds in flight a nap pays."""
_NAP_SHARE: Final = 1 / 4
"""How long it is, as part of what a round takes."""

_RECORD_BYTES: Final = OPERATION.itemsize


class LoopRecord(Record):
    """What the loop works on, in one place: to hand over some twenty arrays takes longer than to add a few floats."""

    arrays: Int64
    """Address of the engine's `Arrays`."""
    pushed_before: Int64
    """Frames that the link was handed before the engine's first."""
    link: Int64
    """Address of the link's record."""
    run: Int64
    """Address of `run`."""
    spans: Int64
    """Address where to note spans."""
    span_rows: Int64
    """For how many there is room."""


LOOP: Final = dtype_of(LoopRecord)


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
        recovery.poll(state, link.time)
        sent += _send(here, link, state, spans)
        if link.stop != 0:
            return int(link.stop)
        if core.progress.finished_count > 0 or core.progress.failure != 0 or link.time >= until:
            return Stop.PAUSED
        if count + sent > 0:
            rested = rested and count == 0
            continue
        link.nap_s = 0.0
        if not rested and core.progress.waiting >= _NAP_ROUNDS:
            link.nap_s = min(core.recovery.smoothed_s * _NAP_SHARE, link.longest_nap_s)
        rested = rested or link.nap_s > 0
        link.until = min(until, look_again_at(state, link.time))
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
    before, count, sent = core.progress.counts[Count.BYTES_RECEIVED], 0, 0
    while True:
        came = call(link.take, here.link)
        sending.consumed(state, call(link.consumed, here.link) - here.pushed_before)
        call(link.now, here.link)
        done = 0
        while done < came:
            part = min(link.turn, came - done)
            _feed(link, state, done, part, spans)
            done += part
            if core.link.queued >= link.turn:
                sent += _send(here, link, state, spans)
                sending.consumed(state, call(link.consumed, here.link) - here.pushed_before)
                step_aside(patience)
        call(link.release, here.link)
        count += came
        if came == 0 or core.progress.counts[Count.BYTES_RECEIVED] - before >= link.batch_bytes or link.stop != 0:
            return count, sent


@inner
def _feed(link: LinkRecord, state: State, done: int, count: int, spans: Spans) -> None:
    """Let the engine have `count` of the frames that were taken, behind those that are done."""
    core = state.core[0]
    rows, lengths = link.rows + 4 * done, link.lengths + 4 * done
    bodies = link.bodies + 8 * done if link.bodies != 0 else 0
    ended = core.progress.counts[Count.ROUNDS]
    began = monotonic() if is_traced(spans) else 0.0
    receiving.receive(state, link.frames, link.stride, rows, lengths, bodies, count, link.time)
    if is_traced(spans):
        note(spans, Span.RESULTS, began, monotonic(), count, core.progress.counts[Count.ROUNDS] - ended)


@inner
def _send(here: LoopRecord, link: LinkRecord, state: State, spans: Spans) -> int:
    """Send what the engine has queued, as far as there is room; return how many frames went."""
    queued = state.core[0].link.queued
    if queued == 0:
        return 0
    began = monotonic() if is_traced(spans) else 0.0
    link.queued = queued
    call(link.send, here.link)
    count = sending.handed_over(state, link.pushed - here.pushed_before)
    if is_traced(spans) and count > 0:
        note(spans, Span.SEND, began, monotonic(), count, 0)
    return count


@inner
def look_again_at(state: State, now: float) -> float:
    """Return when a loop has something to do if no frame comes, be it only to offer a full transport the rest."""
    core = state.core[0]
    return now + RETRY_S if core.progress.blocked > 0 or core.link.queued > 0 else recovery.wake_at(state)


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
        integers_at(here.last_sent, slots),
    )


@inner
def submit_record(arrays: int, record: int, now: float) -> None:
    """Begin the operation whose `OPERATION` record is at an address."""
    here: Arrays = carray(pointer(arrays), (1,), ARRAYS)[0]
    state = state_at(arrays)
    copy_bytes(here.operations + state.core[0].progress.submitted % OPERATIONS * _RECORD_BYTES, record, _RECORD_BYTES)
    sending.submit(state, now)


@Outlined
def restore(arrays: int, now: float) -> int:
    """Begin to tell a restarted switch what it needs."""
    recovery.restore(state_at(arrays), now)
    return 0


class Loop:
    """The loop of one engine on one link."""

    def __init__(
        self,
        state: State,
        pushed_before: int,
        operations: Operations,
        spans: Spans | None = None,
        *,
        begin: Native = begin,
        run: Native = run,
    ) -> None:
        """`pushed_before` is how many frames the link was handed before the engine's first.

        `spans` is where to note what was done (`switchsum.native.process.trace`).
        """
        self._operations = operations
        arrays = arrays_of(state)
        self._keep = state, arrays, spans
        self._loop = np.zeros(1, LOOP)
        traced = (0, 0) if spans is None else (address_of(spans), len(spans))
        self._loop[0] = address_of(arrays), pushed_before, operations.address, run.address, *traced
        self._address = address_of(self._loop)
        self._functions = run.function, begin.function

    def run(self, until: float) -> bool:
        """Move frames until something has happened or the link's clock says `until`; False: the switch has hung up.

        Raises SwitchLost, and what an operation of the link has raised.
        """
        errors = self._operations.errors
        if errors:
            raise errors.pop()
        stop = self._functions[0](self._address, until)
        if stop == Stop.PAUSED:
            return True
        if stop == Stop.BROKEN:
            raise SwitchLost("the switch's side of the link makes no sense")
        if errors:
            raise errors.pop()
        return bool(stop != Stop.HUNG_UP)

    def begin(self, record: int, until: float) -> None:
        """Submit the operation whose `OPERATION` record is at an address, and `run`, all in one native call.

        What there is to say about the link the next `run` says; what else an operation of it has raised is raised.
        """
        self._functions[1](self._address, record, until)
        errors = self._operations.errors
        if errors and not isinstance(errors[-1], SwitchsumError):
            raise errors.pop()
