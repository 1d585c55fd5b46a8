"""The one loop: it moves frames between an engine and a link until something has happened or the time is over.

A link is a record, `LINK`: the addresses of its six operations, what they found, and what they are asked for.  The loop
calls the operations by address, once per batch of frames, so that it is compiled once for all links::

    take  ->  machine.receive  ->  release  ->  machine.poll  ->  send  ->  wait, if nothing was done

Native links have compiled operations, so a whole collective takes no Python.  Links written in Python have callbacks
instead (host/links/callbacks.py), and run in the same loop.

Each operation is called with the address of the record, and returns a number:

    take      frames that have come; sets `frames`, `stride`, `rows`, `lengths` and `bodies`, valid until `release`
    release   (no result) gives the rows of the last `take` back
    send      (no result) hands over the first of the `queued` frames, as many as there is room for, and raises `pushed`
    consumed  how many of the `pushed` frames, in order, nobody reads any more
    wait      1 if something may have come; it sleeps until `until` at most, or for `nap_s` whatever comes
    now       (no result) sets `time`

An operation that wants the loop to end says why in `stop`.

Three facts about a link decide how long work goes on before the link gets something to send:

- `turn`: with so many frames queued, they are sent before more results are looked at.  Small results that came together
  may call for hundreds of contributions, and the link would be idle while all of them are made.  Then the worker lets
  others run, so that other workers' links are not idle either.
- `batch_bytes`: until so many bytes of results have been taken, more is taken before anything is sent, where results
  come one by one but leave together.
- `longest_nap_s`: with many rounds in flight, a worker that has looked at all results sleeps for a moment before it
  asks to be woken, so that it is not woken for each: the switch often has the same cores (BMv2 always).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.native.atomics import copy_bytes
from switchsum.native.kernels import Outlined, carray, inner
from switchsum.native.memory import address_of, call, integers_at, pointer
from switchsum.native.patience import FIELDS, new_patience, step_aside
from switchsum.native.plain import table
from switchsum.native.records import Float64, Int64, Record, Table, dtype_of
from switchsum.native.system import monotonic
from switchsum.native.trace import NO_SPANS, Span, Spans, is_traced, note
from switchsum.protocol.errors import SwitchLost, SwitchsumError

from . import machine
from .state import CORE, OPERATION, OPERATIONS, ROW, SLOT, Core, Count, State


class Stop(IntEnum):
    """Why the loop ends."""

    NONE = 0
    """It does not."""
    PAUSED = 1
    """An operation has finished or failed, or the time is over; or the link wants its caller to do something else."""
    HUNG_UP = 2
    """The switch closed the link."""
    BROKEN = 3
    """What the switch wrote on the link makes no sense."""
    RAISED = 4
    """An operation raised an exception, which is kept."""


class LinkRecord(Record):
    """What the loop knows of a link; see above."""

    # The operations' addresses.
    take: Int64
    release: Int64
    send: Int64
    consumed: Int64
    wait: Int64
    now: Int64
    # What `take` found.
    frames: Int64
    """Address of row 0; a frame starts at the engine's lead."""
    stride: Int64
    """Bytes from one row to the next."""
    rows: Int64
    """Address of the int32 rows of the frames that came."""
    lengths: Int64
    """Address of as many int32 lengths."""
    bodies: Int64
    """Address of as many int64 addresses (see machine.receive), or 0."""
    # What to send.
    queue_rows: Int64
    """Address of int32 rows."""
    queue_lengths: Int64
    """Address of as many int32 lengths."""
    queued: Int64
    pushed: Int64
    """Frames handed over so far."""
    # How to wait; what time it is.
    until: Float64
    nap_s: Float64
    time: Float64
    stop: Int64
    """By `Stop`."""
    # What kind of link it is.
    turn: Int64
    batch_bytes: Int64
    longest_nap_s: Float64
    patience: Int64
    """Address, see native/patience.py."""
    own: Int64
    """Address of what only the link's own operations know."""


LINK: Final = dtype_of(LinkRecord)

NO_TURNS: Final = 1 << 40
"""As `turn`: all results are looked at before anything is sent."""


class _LoopRecord(Record):
    """What the loop works on, in one place: to hand over some twenty arrays takes longer than to add a few floats."""

    # Addresses of the engine's arrays, and what their shapes follow from.
    core: Int64
    slots: Int64
    operations: Int64
    rows: Int64
    queue: Int64
    kept: Int64
    unanswered: Int64
    window: Int64
    lanes_per_frame: Int64
    pushed_before: Int64
    link: Int64
    """Address of the link's record."""
    run: Int64
    """Address of `_run`."""
    spans: Int64
    """Address where to note spans."""
    span_rows: Int64
    """For how many there is room."""


_LOOP: Final = dtype_of(_LoopRecord)

_NAP_ROUNDS: Final = 16
"""With so many rounds in flight a nap pays."""
_NAP_SHARE: Final = 1 / 4
"""How long it is, as part of what a round takes."""

_RECORD_BYTES: Final = OPERATION.itemsize


class Operations:
    """A link's record, and what it points to."""

    def __init__(self, *keep: object, patience: npt.NDArray[np.float64] | None = None) -> None:
        self.record: Table[LinkRecord] = table(np.zeros(1, LINK))
        """One `LINK`."""
        self.errors: list[BaseException] = []
        """What operations have raised and nobody else yet, the first one last."""
        self.keep: list[object] = [*keep]
        """What must live for as long as the record."""
        patience = new_patience() if patience is None else patience
        self.keep.append(patience)
        self.record["patience"] = address_of(patience)
        self.record["turn"] = NO_TURNS

    @property
    def address(self) -> int:
        """Return the address of the record."""
        return address_of(self.record.view(np.int64))


def prepare_loop() -> None:
    """Have the loop's code ready."""
    assert all(outlined.address for outlined in (_run, _begin))


class Loop:
    """The loop of one engine on one link."""

    def __init__(self, state: State, pushed_before: int, operations: Operations, spans: Spans = NO_SPANS) -> None:
        """`pushed_before` is how many frames the link was handed before the engine's first."""
        self._operations = operations
        self._keep = state, spans
        self._loop = np.zeros(1, _LOOP)
        self._loop[0] = (
            *map(address_of, state),
            *(len(state.slots), state.kept.shape[1], pushed_before),
            *(operations.address, _run.address, address_of(spans), len(spans)),
        )
        self._address = address_of(self._loop)
        self._functions = _run.function, _begin.function

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


@inner
def _state_of(here: _LoopRecord) -> State:
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


@Outlined
def _begin(loop: int, record: int, until: float) -> int:
    here: _LoopRecord = carray(pointer(loop), (1,), _LOOP)[0]
    link: LinkRecord = carray(pointer(here.link), (1,), LINK)[0]
    core: Core = carray(pointer(here.core), (1,), CORE)[0]
    copy_bytes(here.operations + core.submitted % OPERATIONS * _RECORD_BYTES, record, _RECORD_BYTES)
    call(link.now, here.link)
    machine.submit(_state_of(here), link.time)
    return int(call(here.run, loop, until))


@Outlined
def _run(loop: int, until: float) -> int:
    here: _LoopRecord = carray(pointer(loop), (1,), _LOOP)[0]
    link: LinkRecord = carray(pointer(here.link), (1,), LINK)[0]
    spans = carray(pointer(here.spans), (here.span_rows, 5), np.int64)
    state = _state_of(here)
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
def _receive(here: _LoopRecord, link: LinkRecord, state: State, spans: Spans) -> tuple[int, int]:
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
def _send(here: _LoopRecord, link: LinkRecord, state: State, spans: Spans) -> int:
    """Send what the engine has queued, as far as there is room; return how many frames went."""
    queued = state.core[0].queued
    if queued == 0:
        return 0
    began = monotonic() if is_traced(spans) else 0.0
    link.queue_rows = here.queue
    link.queue_lengths = here.queue + 4 * 2 * here.window
    link.queued = queued
    call(link.send, here.link)
    count = machine.handed_over(state, link.pushed - here.pushed_before)
    if is_traced(spans) and count > 0:
        note(spans, Span.SEND, began, monotonic(), count, 0)
    return count
