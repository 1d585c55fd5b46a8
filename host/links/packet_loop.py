"""The driver's loop over an AF_PACKET ring, as one kernel; see shm_loop.py."""

from __future__ import annotations

import select
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.native.kernels import kernel
from switchsum.native.memory import address_of
from switchsum.native.packetring import DESCRIPTOR, MOST_TAKEN, TURN_BYTES, Ring, first_frame, forget_error, take
from switchsum.native.patience import Patience, new_patience, step_aside
from switchsum.native.segmentation import Sending, send_frames
from switchsum.native.system import Watched, monotonic, poll, watch
from switchsum.native.trace import NO_SPANS, Span, Spans, is_traced, note

from ..engine import machine
from ..engine.state import Count, State
from ..engine.worker import Engine
from .base import Indices
from .packet import PacketEnd
from .socket_loop import nap, turn_frames

_ROUNDS: Final = int(Count.ROUNDS)
_BYTES: Final = int(Count.BYTES_RECEIVED)
_WAIT: Final = int(Span.WAIT)
_RESULTS: Final = int(Span.RESULTS)
_SEND: Final = int(Span.SEND)
_ERROR: Final = select.POLLERR << 16


class PacketLoop:
    """The loop of one engine on one ring."""

    def __init__(self, engine: Engine, end: PacketEnd, spans: Spans = NO_SPANS) -> None:
        rows, lengths = np.zeros(MOST_TAKEN, np.int32), np.zeros(MOST_TAKEN, np.int32)
        watched = watch([int(end.ring[DESCRIPTOR])])
        self._arguments = (
            *(engine.state, end.ring, end.sending, end.first, end.stride, end.longest),
            *(rows, address_of(rows), lengths, address_of(lengths), np.zeros(engine.state.queue.shape[1], np.int64)),
            *(watched, address_of(watched), turn_frames(engine), new_patience(), spans),
        )

    def run(self, until: float) -> bool:
        """Move frames until something has happened or the clock says `until`; True, for sockets outlive the switch."""
        _run(*self._arguments, until)
        return True


@kernel
def _run(
    state: State,
    ring: Ring,
    sending: Sending,
    first: int,
    stride: int,
    longest: int,
    rows: Indices,
    row_list: int,
    lengths: Indices,
    length_list: int,
    addresses: npt.NDArray[np.int64],
    watched: Watched,
    watched_address: int,
    turn: int,
    patience: Patience,
    spans: Spans,
    until: float,
) -> None:
    core = state.core[0]
    traced, rested = is_traced(spans), True
    while True:
        now = monotonic()
        before = core.counts[_BYTES]
        count = sent = 0
        taken = take(ring, rows, lengths)
        while taken > 0:
            frames, apart = first_frame(ring)
            for done in range(0, taken, turn):
                began, ended = monotonic() if traced else now, core.counts[_ROUNDS]
                part, skip = min(turn, taken - done), 4 * done
                machine.receive(state, frames - core.lead, apart, row_list + skip, length_list + skip, 0, part, now)
                if traced:
                    note(spans, _RESULTS, began, monotonic(), part, core.counts[_ROUNDS] - ended)
                if core.queued >= turn:
                    sent += _send(state, ring, sending, first, stride, longest, addresses, spans)
                    step_aside(patience)
            count += taken
            taken = take(ring, rows, lengths) if core.counts[_BYTES] - before < TURN_BYTES else 0
        machine.poll(state, now)
        sent += _send(state, ring, sending, first, stride, longest, addresses, spans)
        if core.finished_count > 0 or core.failure != 0 or now >= until:
            return
        if count + sent > 0:
            rested = rested and count == 0
            continue
        began = monotonic() if traced else now
        if not rested and nap(state):
            rested = True
        else:
            pause = min(until, machine.look_again_at(state, now)) - now
            if poll(watched_address, 1, int(max(pause, 0.0) * 1e9)) > 0 and watched[0, 1] & _ERROR:
                forget_error(ring)
        if traced:
            note(spans, _WAIT, began, monotonic(), 0, 0)


@kernel
def _send(
    state: State,
    ring: Ring,
    sending: Sending,
    first: int,
    stride: int,
    longest: int,
    addresses: npt.NDArray[np.int64],
    spans: Spans,
) -> int:
    """Send what the engine has queued, as far as the socket takes it; return how many frames went."""
    core = state.core[0]
    queued = core.queued
    if queued == 0:
        return 0
    traced = is_traced(spans)
    began = monotonic() if traced else 0.0
    for i in range(queued):
        addresses[i] = first + np.int64(state.queue[0, i]) * stride
    count = send_frames(ring[DESCRIPTOR], sending, addresses[:queued], state.queue[1, :queued], longest)
    machine.sent(state, count)
    core.consumed = core.sequence - core.queued  # the operating system has copied what went
    if traced and count > 0:
        note(spans, _SEND, began, monotonic(), count, 0)
    return count
