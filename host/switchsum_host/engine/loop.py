"""The one loop: it moves frames between an engine and a link until something has happened or the time is over.

It calls a link's functions by address (`link.py`), so that it is compiled once for all links.  `Driver` is what Python
knows of it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import CollectiveTimeout, SwitchLost, SwitchsumError
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import call
from switchsum_switch.kernels.outlined import Native, Outlined
from switchsum_switch.kernels.records import Int64, Record, dtype_of
from switchsum_switch.process.patience import FIELDS, step_aside
from switchsum_switch.process.system import monotonic
from switchsum_switch.process.trace import Span, Spans, is_traced, note

from . import receiving, recovery, sending
from .engine import Engine, Outcome
from .link import LINK, DrivenLink, LinkRecord, Stop
from .operation import Operation
from .state import ARRAYS, Arrays, Count, State, arrays_of, state_at

if TYPE_CHECKING:
    from switchsum_switch.process.trace import Trace

RETRY_S: Final = 0.0005
"""Pause before a full transport, or a row that it still reads, is looked at again."""
LONG_S: Final = 0.002
"""Seconds. A caller that moves frames for longer waits for a result. Else a thread in the background, or a caller on
its way, moves them.
"""
_NAP_ROUNDS: Final = 16
"""Number of rounds in flight with which a nap pays."""
_NAP_SHARE: Final = 1 / 4
"""Length of a nap, as a part of a round's time."""


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
    """Number of spans that there is room for."""


LOOP: Final = dtype_of(LoopRecord)


@Outlined
def submit_and_run(loop: int, record: int, until: float) -> int:
    """Submit the operation whose `OPERATION` record is at an address, and `run`."""
    here: LoopRecord = carray(pointer(loop), (1,), LOOP)[0]
    link: LinkRecord = carray(pointer(here.link), (1,), LINK)[0]
    call(link.now, here.link)
    sending.take_operation(state_at(here.arrays), record, link.time)
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
    call(link.now, here.link)
    core.recovery.timer.looked_at = due_at = link.time
    if until - link.time > LONG_S:
        core.calls.waits = 1
    while True:
        count, sent = _drain_link(here, link, state, spans)
        recovery.note_lateness(state, due_at, link.time)
        due_at = link.time
        recovery.poll(state, link.time)
        sent += _send_queued(here, link, state, spans)
        if link.stop != 0:
            return int(link.stop)
        if core.progress.finished_count > 0 or core.progress.failure != 0 or link.time >= until:
            return Stop.PAUSED
        if count + sent > 0:
            rested = rested and count == 0
            continue
        link.nap_s = 0.0
        if not rested and core.progress.waiting >= _NAP_ROUNDS:
            link.nap_s = min(core.recovery.timer.smoothed_s[0] * _NAP_SHARE, link.longest_nap_s)
        rested = rested or link.nap_s > 0
        link.until = min(until, look_again_at(state, link.time))
        due_at = link.time + link.nap_s if link.nap_s > 0 else link.until
        began = monotonic() if is_traced(spans) else 0.0
        call(link.wait, here.link)
        if is_traced(spans):
            note(spans, Span.WAIT, began, monotonic(), 0, 0)
        if link.stop != 0:
            return int(link.stop)


@inner
def _drain_link(here: LoopRecord, link: LinkRecord, state: State, spans: Spans) -> tuple[int, int]:
    """Take what has come; return how many frames, and how many were sent meanwhile."""
    core = state.core[0]
    patience = carray(pointer(link.patience), (FIELDS,), np.float64)
    before, count, sent = core.progress.counts[Count.BYTES_RECEIVED], 0, 0
    while True:
        came = call(link.take, here.link)
        sending.note_consumed(state, call(link.consumed, here.link) - here.pushed_before)
        call(link.now, here.link)
        done = 0
        while done < came:
            part = min(link.turn, came - done)
            _feed_engine(link, state, done, part, spans)
            done += part
            if core.sending.queued >= link.turn:
                sent += _send_queued(here, link, state, spans)
                sending.note_consumed(state, call(link.consumed, here.link) - here.pushed_before)
                step_aside(patience)
        call(link.release, here.link)
        count += came
        if came == 0 or core.progress.counts[Count.BYTES_RECEIVED] - before >= link.batch_bytes or link.stop != 0:
            return count, sent


@inner
def _feed_engine(link: LinkRecord, state: State, done: int, count: int, spans: Spans) -> None:
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
def _send_queued(here: LoopRecord, link: LinkRecord, state: State, spans: Spans) -> int:
    """Send what the engine has queued, as far as there is room; return how many frames went."""
    queued = state.core[0].sending.queued
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
    return now + RETRY_S if core.progress.blocked > 0 or core.sending.queued > 0 else recovery.wake_at(state)


class Driver:
    """Drives one engine's loop on one link, from opening the link to opening it again; one thread at a time.

    It has what a communicator asks of a driver (`switchsum_host.api.driver`).
    """

    moves_alone = False
    """Whether frames move while nobody drives."""

    def __init__(self, engine: Engine, transport: DrivenLink, *, trace: Trace | None = None) -> None:
        """Note in `trace`, if there is one, what the loop does."""
        self.engine = engine
        self.transport = transport
        self.lanes_per_frame, self.timeout_s = engine.lanes_per_frame, engine.timeout_s
        self.clock = transport.now
        self.trace = trace
        self.kernels: tuple[Native, Native] = submit_and_run, run
        """Kernels that are called: one submits an operation, one runs the loop."""
        self._is_open = True
        self.describe()

    def describe(self) -> None:
        """Tell compiled code where engine and link are, and what to run."""
        self._reopened = self.transport.reopened
        functions, arrays = self.transport.functions(), arrays_of(self.engine.state)
        spans = None if self.trace is None else self.trace.spans
        traced = (0, 0) if spans is None else (address_of(spans), len(spans))
        record = np.zeros(1, LOOP)
        record[0] = address_of(arrays), self.engine.pushed_before, functions.address, self.kernels[1].address, *traced
        self._record = address_of(record)
        self._keep = record, arrays, spans
        self._functions = functions
        self._errors = functions.errors
        self._submit_and_run, self._run = (kernel.function for kernel in self.kernels)

    @property
    def submitted(self) -> int:
        """Operations that were ever begun, which is the serial number of the next one."""
        return self.engine.submitted

    @property
    def is_full(self) -> bool:
        """Whether another operation must wait until the oldest has ended."""
        return self.engine.is_full

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """What has happened so far, by `Count`."""
        return self.engine.counts

    def submit(
        self, operation: Operation, values: npt.NDArray[Any] | None, most_s: float, timeout_s: float | None = None
    ) -> deque[Outcome]:
        """Submit an operation on an array, and move frames as `step` does, in one native call; return what has ended.

        `timeout_s` takes the place of the engine's time-out.  The next `step` tells what else has happened, to the link
        or because nothing came.  Raises UsageError, and what the link's own code has raised.
        """
        if self.transport.reopened != self._reopened:
            self._relink()  # or contributions would be packed into rows that nobody reads any more
        now = self.clock()
        serial = self.engine.adopt(operation, values, now)
        if timeout_s is not None:
            self.engine.limit(serial, timeout_s)
        self._submit_and_run(self._record, operation.address, now + most_s)
        errors = self._errors
        if errors and not isinstance(errors[-1], SwitchsumError):
            raise errors.pop()
        return self.engine.events()

    def step(self, most_s: float) -> deque[Outcome]:
        """Move frames until something has happened or `most_s` is over; return what has happened.

        The caller takes each event away once it is done with it.  Raises SwitchLost when the link is broken for good.
        """
        engine = self.engine
        if self.transport.reopened != self._reopened:
            self._relink()
        if self._is_open:
            self._is_open = self._move_frames(self.clock() + most_s)
        else:  # time passes for the engine all the same
            self._move_frames(self.clock())
            self.transport.wait(most_s)
        engine.note(self.clock())
        return engine.events()

    def compute(self, seconds: float) -> None:
        """Do nothing: outside virtual time, what the caller computes takes time by itself."""

    def overdue(self, timeout_s: float) -> CollectiveTimeout:
        """Say whom the slots wait for, for a caller that waits no longer."""
        return self.engine.overdue(timeout_s)

    def close(self) -> None:
        """Close the link, and write the trace."""
        self.transport.close()
        if self.trace is not None:
            self.trace.write()

    def note_wait(self) -> None:
        """Keep that somebody has waited since the latest operation was begun."""
        self.engine.state.core[0]["calls"]["waits"] = 1

    def note_restart(self) -> None:
        """Have the engine tell a switch that was restarted what others may still need."""
        self.engine.restarted(self.clock())

    @property
    def awaits_switch(self) -> bool:
        """Whether a restarted switch has yet to answer about rounds that are over here."""
        return self.engine.awaits_switch

    @property
    def owes_switch(self) -> bool:
        """Whether a restarted switch is to be told again of rounds that are over here, though an answer came."""
        return self.engine.is_due(self.clock())

    def note_departure(self) -> None:
        """Take what the switch has said so far for older than the news that a rank has left."""
        self.engine.rank_left()

    def held_slots(self, *, earlier: bool = True) -> list[tuple[int, int, list[int]]]:
        """Return slot, round's number and missing ranks of what the switch has said to wait for."""
        return self.engine.held_slots(earlier=earlier)

    def _move_frames(self, until: float) -> bool:
        """Run the loop; False: the switch has hung up.  Raises SwitchLost, and what the link's own code has raised."""
        errors = self._errors
        if errors:
            raise errors.pop()
        stop = self._run(self._record, until)
        if stop == Stop.PAUSED:
            return True
        if stop == Stop.BROKEN:
            raise SwitchLost(
                "the switch's side of the shared-memory link holds numbers that cannot be: restart the switch"
            )
        if errors:
            raise errors.pop()
        return bool(stop != Stop.HUNG_UP)

    def _relink(self) -> None:
        """Go on with a link that was opened again."""
        self.engine.relink(self.transport.tx_frames, self.transport.pushed)
        self.describe()
        self._is_open = True
