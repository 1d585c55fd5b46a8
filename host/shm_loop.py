"""The driver's loop over a shared-memory link, as one kernel: while frames come and go, Python has nothing to do.

It does what `Driver.step` does, over and over, and sleeps in between.  Waking up is what small messages cost: a Python
step takes longer than the switch needs for all of them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.host import machine
from switchsum.host.engine import Engine
from switchsum.host.exact import Digits, put_sums, write_digits
from switchsum.host.memory import address_of
from switchsum.host.state import Count, State
from switchsum.host.transport.base import Indices
from switchsum.host.transport.shm import LinkEnd
from switchsum.protocol import ring
from switchsum.protocol.atomics import pause
from switchsum.protocol.errors import SwitchLost
from switchsum.protocol.kernels import kernel
from switchsum.protocol.patience import Patience, note_wait, patience, share_cores
from switchsum.protocol.ring import Link
from switchsum.protocol.system import READY, Watched, monotonic, poll, ring_bell, silence_bell
from switchsum.protocol.trace import NO_SPANS, Span, Spans, is_traced, note

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


class ShmLoop:
    """The loop of one engine on one link."""

    def __init__(self, engine: Engine, end: LinkEnd, spans: Spans = NO_SPANS) -> None:
        most = max(1, TURN_BYTES // end.answers.shape[1])
        left_to_look = patience()
        share_cores(left_to_look, engine.world_size + 1)
        self._arguments = (
            *(engine.state, end.link, engine.pushed_before, address_of(end.answers), end.answers.shape[1]),
            *(end.rows[:most], end.lengths[:most], end.bodies[:most]),
            *(address_of(end.rows), address_of(end.lengths), address_of(end.bodies)),
            *(end.watched, address_of(end.watched), end.switch_bell, left_to_look, spans),
        )

        self.add_few(np.zeros(0, np.float32), np.zeros(0, np.int32), 1.0, 0.0, 0.0)  # compiles it, before a frame waits

    def run(self, until: float) -> bool:
        """Move frames until something has happened or the clock says `until`; False when the switch has hung up.

        Raises SwitchLost.
        """
        ended = _run(*self._arguments, until)
        if ended == _BROKEN:
            raise SwitchLost("the switch's side of the shared-memory link makes no sense")
        return bool(ended != _HUNG_UP)

    def add_few(self, values: npt.NDArray[np.float32], digits: Digits, share: float, now: float, until: float) -> None:
        """Do what takes an exact sum that the engine has just entered and that is the only operation in flight.

        What there is to say about the link `run` says, if it is asked for more.
        """
        _add_few(values, digits, share, now, *self._arguments, until)


@kernel
def _add_few(
    values: npt.NDArray[np.float32],
    digits: Digits,
    share: float,
    now: float,
    state: State,
    link: Link,
    pushed_before: int,
    answers: int,
    stride: int,
    rows: Indices,
    lengths: Indices,
    bodies: ring.Addresses,
    row_list: int,
    length_list: int,
    body_list: int,
    watched: Watched,
    watched_address: int,
    switch_bell: int,
    left_to_look: Patience,
    spans: Spans,
    until: float,
) -> None:
    """Begin an exact sum, whose record has been filled in, and run until it is there, as a rule."""
    if len(values) == 0:
        return
    write_digits(values.view(np.uint32), digits)
    machine.submit(state, now)
    _run(
        state,
        link,
        pushed_before,
        answers,
        stride,
        rows,
        lengths,
        bodies,
        row_list,
        length_list,
        body_list,
        watched,
        watched_address,
        switch_bell,
        left_to_look,
        spans,
        until,
    )
    if state.core[0].finished_count > 0:
        put_sums(digits, share, values)


@kernel
def _run(
    state: State,
    link: Link,
    pushed_before: int,
    answers: int,
    stride: int,
    rows: Indices,
    lengths: Indices,
    bodies: ring.Addresses,
    row_list: int,
    length_list: int,
    body_list: int,
    watched: Watched,
    watched_address: int,
    switch_bell: int,
    left_to_look: Patience,
    spans: Spans,
    until: float,
) -> int:
    core = state.core[0]
    traced = is_traced(spans)
    while True:
        count = ring.take(link, rows, lengths, bodies)
        core.consumed = ring.consumed(link) - pushed_before
        now = monotonic()
        if count > 0:
            ended = core.counts[_ROUNDS]
            machine.receive(state, answers, stride, row_list, length_list, body_list, count, now)
            if traced:
                note(spans, _RESULTS, now, monotonic(), count, core.counts[_ROUNDS] - ended)
        ring.release(link)
        machine.poll(state, now)
        before = monotonic() if traced else now
        sent = _push(state, link, switch_bell)
        moved = count + sent
        if traced and sent > 0:
            note(spans, _SEND, before, monotonic(), sent, 0)
        if link[ring.BROKEN] != 0:
            return _BROKEN
        if core.finished_count > 0 or core.failure != 0:
            return _EVENT
        if now >= until:
            return _TIME
        if moved == 0:
            wake_at = min(until, machine.look_again_at(state, now))
            before = monotonic() if traced else now
            if not _rest(link, watched_address, watched, left_to_look, wake_at):
                return _HUNG_UP
            if traced:
                note(spans, _WAIT, before, monotonic(), 0, 0)


@kernel
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


@kernel
def _rest(link: Link, watched_address: int, watched: Watched, left_to_look: Patience, until: float) -> bool:
    """Look for frames for a short while, then sleep until the switch rings or the clock says so; False: hung up."""
    began = monotonic()
    if _look(link, min(until, began + left_to_look[0])) or not ring.fall_asleep(link):
        note_wait(left_to_look, monotonic() - began)
        return True
    pause_ns = int(max(until - monotonic(), 0.0) * 1e9)
    ready = poll(watched_address, 2, pause_ns)
    ring.set_sleeping(link, 0)
    note_wait(left_to_look, monotonic() - began)
    if ready > 0:
        if watched[1, 1] & READY:
            return False
        silence_bell(watched[0, 0])
    return True


@kernel
def _look(link: Link, until: float) -> bool:
    """Look for frames until the clock says so; True when frames have come."""
    while ring.waiting(link) <= 0:
        if monotonic() >= until:
            return False
        pause()
    return True
