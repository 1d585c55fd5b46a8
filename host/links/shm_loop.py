"""The driver's loop over a shared-memory link, as one kernel: while frames come and go, Python has nothing to do.

It does what `Driver.step` does, over and over, and sleeps in between.  Waking up is what small messages cost: a Python
step takes longer than the switch needs for all of them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from switchsum.native import ring
from switchsum.native.atomics import copy_bytes
from switchsum.native.kernels import Outlined, carray, inner, prepare
from switchsum.native.memory import address_of, integers_at, pointer
from switchsum.native.patience import FIELDS, Patience, give_way, look_until, new_patience, note_wait
from switchsum.native.ring import LINK_FIELDS, Link
from switchsum.native.system import READY, monotonic, poll, ring_bell, silence_bell
from switchsum.native.trace import NO_SPANS, Span, Spans, is_traced, note
from switchsum.protocol.errors import SwitchLost

from ..engine import machine
from ..engine.state import CORE, OPERATION, OPERATIONS, ROW, SLOT, Count, State
from ..engine.worker import Engine
from .shm import LinkEnd

_ROUNDS: Final = int(Count.ROUNDS)
_WAIT: Final = int(Span.WAIT)
_RESULTS: Final = int(Span.RESULTS)
_SEND: Final = int(Span.SEND)

TURN_BYTES: Final = 64 << 10
"""Results that are taken before the contributions that follow them are handed over: meanwhile the switch adds those."""

_TIME: Final = 0
"""The loop returned for the clock said so."""
_EVENT: Final = 1
"""An operation has finished or failed."""
_HUNG_UP: Final = 2
"""The switch closed the link."""
_BROKEN: Final = 3
"""The switch's head or tail makes no sense."""


_RECORD_BYTES: Final = OPERATION.itemsize
_CONTEXT: Final = np.dtype(
    [
        # Addresses of the engine's arrays, and what their shapes follow from.
        *((name, "i8") for name in State._fields),
        ("window", "i8"),
        ("lanes", "i8"),
        ("pushed_before", "i8"),
        # The link; where frames lie that come; room for their rows, lengths and bodies, and for how many.
        ("link", "i8"),
        ("answers", "i8"),
        ("stride", "i8"),
        ("row_list", "i8"),
        ("length_list", "i8"),
        ("body_list", "i8"),
        ("most", "i8"),
        # What to sleep on, whom to wake, how long to look before; where to note spans, and for how many.
        ("watched", "i8"),
        ("switch_bell", "i8"),
        ("patience", "i8"),
        ("spans", "i8"),
        ("span_rows", "i8"),
    ]
)
"""What the loop works on, in one place: to hand over some twenty arrays takes longer than to add a few floats."""


def compile_loop() -> None:
    """Have the loop's kernels ready, and those that move frames before it runs."""
    assert all(outlined.address for outlined in (_run, _begin))
    link, rows, bodies = np.zeros(LINK_FIELDS, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64)
    prepare(ring.push, link, rows, rows)
    prepare(ring.take, link, rows, rows, bodies)
    prepare(ring.set_sleeping, link, 0)
    for move in (ring.release, ring.consumed, ring.fall_asleep, ring.waiting):
        prepare(move, link)


class ShmLoop:
    """The loop of one engine on one link."""

    def __init__(self, engine: Engine, end: LinkEnd, spans: Spans = NO_SPANS) -> None:
        patience = new_patience()
        state = engine.state
        self._context = np.zeros(1, _CONTEXT)
        self._context[0] = (
            *map(address_of, state),
            *(len(state.slots), state.kept.shape[1], engine.pushed_before),
            *(address_of(end.link), address_of(end.answers), end.answers.shape[1]),
            *(address_of(end.rows), address_of(end.lengths), address_of(end.bodies)),
            max(1, TURN_BYTES // end.answers.shape[1]),
            *(address_of(end.watched), end.switch_bell, address_of(patience), address_of(spans), len(spans)),
        )
        self._keep = (state, end, patience, spans)
        self._address = address_of(self._context)
        self._run, self._begin = _run.function, _begin.function

    def run(self, until: float) -> bool:
        """Move frames until something has happened or the clock says `until`; False when the switch has hung up.

        Raises SwitchLost.
        """
        ended = self._run(self._address, until)
        if ended == _BROKEN:
            raise SwitchLost("the switch's side of the shared-memory link makes no sense")
        return bool(ended != _HUNG_UP)

    def begin(self, record: int, until: float) -> None:
        """Submit the operation whose `OPERATION` record is at an address, and `run`.

        What there is to say about the link the next `run` says.
        """
        self._begin(self._address, record, until)


@inner
def _state_of(context: Any) -> State:
    slots, rows = context.window, 2 * context.window
    return State(
        carray(pointer(context.core), (1,), CORE),
        carray(pointer(context.slots), (slots,), SLOT),
        carray(pointer(context.operations), (OPERATIONS,), OPERATION),
        carray(pointer(context.rows), (rows,), ROW),
        carray(pointer(context.queue), (2, rows), np.int32),
        carray(pointer(context.kept), (slots, context.lanes), np.uint32),
        integers_at(context.unanswered, slots),
    )


@Outlined
def _begin(context: int, record: int, until: float) -> int:
    here = carray(pointer(context), (1,), _CONTEXT)[0]
    state = _state_of(here)
    next_record = here.operations + state.core[0].submitted % OPERATIONS * _RECORD_BYTES
    copy_bytes(next_record, record, _RECORD_BYTES)
    machine.submit(state, monotonic())
    return _loop(here, state, until)


@Outlined
def _run(context: int, until: float) -> int:
    here = carray(pointer(context), (1,), _CONTEXT)[0]
    return _loop(here, _state_of(here), until)


@inner
def _loop(context: Any, state: State, until: float) -> int:
    core = state.core[0]
    link = integers_at(context.link, ring.LINK_FIELDS)
    rows = carray(pointer(context.row_list), (context.most,), np.int32)
    lengths = carray(pointer(context.length_list), (context.most,), np.int32)
    bodies = integers_at(context.body_list, context.most)
    spans = carray(pointer(context.spans), (context.span_rows, 5), np.int64)
    traced = is_traced(spans)
    while True:
        count = ring.take(link, rows, lengths, bodies)
        core.consumed = ring.consumed(link) - context.pushed_before
        now = monotonic()
        if count > 0:
            ended = core.counts[_ROUNDS]
            lists = context.row_list, context.length_list, context.body_list
            machine.receive(state, context.answers, context.stride, *lists, count, now)
            if traced:
                note(spans, _RESULTS, now, monotonic(), count, core.counts[_ROUNDS] - ended)
        ring.release(link)
        machine.poll(state, now)
        before = monotonic() if traced else now
        sent = _push(state, link, context.switch_bell)
        if traced and sent > 0:
            note(spans, _SEND, before, monotonic(), sent, 0)
        if link[ring.BROKEN] != 0:
            return _BROKEN
        if core.finished_count > 0 or core.failure != 0:
            return _EVENT
        if now >= until:
            return _TIME
        if count + sent == 0:
            before = monotonic() if traced else now
            if not _rest(context, link, min(until, machine.look_again_at(state, now))):
                return _HUNG_UP
            if traced:
                note(spans, _WAIT, before, monotonic(), 0, 0)


@inner
def _push(state: State, link: Link, switch_bell: int) -> int:
    """Hand over what the engine has queued, as far as there is room; return how many frames."""
    queued = state.core[0].queued
    if queued == 0:
        return 0
    count, asleep = ring.push(link, state.queue[0, :queued], state.queue[1, :queued])
    if asleep:
        ring_bell(switch_bell)
    machine.sent(state, count)
    return count


@inner
def _rest(context: Any, link: Link, until: float) -> bool:
    """Look for frames for a short while, then sleep until the switch rings or the clock says so; False: hung up."""
    watched = carray(pointer(context.watched), (2, 2), np.int32)
    patience = carray(pointer(context.patience), (FIELDS,), np.float64)
    began = monotonic()
    if _look(link, patience, began, until) or not ring.fall_asleep(link):
        note_wait(patience, True, monotonic() - began)
        return True
    pause_ns = int(max(until - monotonic(), 0.0) * 1e9)
    ready = poll(context.watched, 2, pause_ns)
    ring.set_sleeping(link, 0)
    note_wait(patience, False, monotonic() - began)
    if ready > 0:
        if watched[1, 1] & READY:
            return False
        silence_bell(watched[0, 0])
    return True


@inner
def _look(link: Link, patience: Patience, now: float, until: float) -> bool:
    """Look for frames for as long as patience allows, and the clock; True when frames have come."""
    until = min(until, look_until(patience, now))
    while ring.waiting(link) <= 0:
        if now >= until:
            return False
        now = give_way(patience, now)
    return True
