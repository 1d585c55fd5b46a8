"""The driver's loop over a datagram socket, as one kernel; see shm_loop.py."""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum.native.batchreceive import MOST_TAKEN, ReceiveWords, receive_rows
from switchsum.native.batchsend import SendWords, send_datagrams
from switchsum.native.batchsocket import NO_NAMES, Addresses
from switchsum.native.encapsulation import Bytes, wrap
from switchsum.native.kernels import kernel
from switchsum.native.memory import address_of
from switchsum.native.patience import Patience, new_patience, step_aside
from switchsum.native.segmentation import MOST_PIECES, SUPER_BYTES
from switchsum.native.system import monotonic, poll, watch
from switchsum.native.trace import NO_SPANS, Span, Spans, is_traced, note
from switchsum.protocol.frame import FRAME_BYTES, LOWER_BYTES, payload_bytes

from ..engine import machine
from ..engine.state import Count, State
from ..engine.worker import Engine
from .base import Frames, Indices
from .sockets import SocketEnd

_NAP_ROUNDS: Final = 16
"""With so many rounds in flight a worker that has looked at all results sleeps for a moment before it asks to be woken,
so that it is not woken for each: the switch often has the same cores (BMv2 always), and what workers do not use, it
has."""
_NAP_SHARE: Final = 1 / 4
"""How long, as part of what a round takes."""
_NAP_S: Final = 0.002
"""At most."""

_ROUNDS: Final = int(Count.ROUNDS)
_WAIT: Final = int(Span.WAIT)
_RESULTS: Final = int(Span.RESULTS)
_SEND: Final = int(Span.SEND)


def turn_frames(engine: Engine) -> int:
    """Return how many contributions are sent before more results are looked at: two super-frames.

    Small results that came together, which have exponents alone, may call for hundreds of contributions, and the link
    would be idle while all of them are made.  Whoever has sent these steps aside, so that other workers' links are not
    idle either.
    """
    body = FRAME_BYTES - LOWER_BYTES + payload_bytes(engine.state.kept.shape[1])
    return 2 * min(MOST_PIECES, (SUPER_BYTES - LOWER_BYTES) // body)


class SocketLoop:
    """The loop of one engine on one socket."""

    def __init__(self, engine: Engine, end: SocketEnd, spans: Spans = NO_SPANS) -> None:
        rows, lengths = np.zeros(MOST_TAKEN, np.int32), np.zeros(MOST_TAKEN, np.int32)
        sources, most_queued = np.zeros(MOST_TAKEN, np.int64), engine.state.queue.shape[1]
        watched = watch([end.descriptor])
        self._keep = watched
        self._arguments = (
            *(engine.state, end.descriptor, address_of(watched)),
            *(end.sending, end.first, end.stride, np.zeros(most_queued, np.int64), np.zeros(most_queued, np.int32)),
            *(end.receiving, end.answers, address_of(end.answers), rows, address_of(rows)),
            *(lengths, address_of(lengths), sources, end.lower, NO_NAMES, turn_frames(engine), new_patience(), spans),
        )

    def run(self, until: float) -> bool:
        """Move frames until something has happened or the clock says `until`; True, for sockets outlive the switch."""
        _run(*self._arguments, until)
        return True


@kernel
def _run(
    state: State,
    descriptor: int,
    watched: int,
    sending: SendWords,
    first: int,
    stride: int,
    addresses: Addresses,
    sizes: Indices,
    receiving: ReceiveWords,
    answers: Frames,
    answers_address: int,
    rows: Indices,
    row_list: int,
    lengths: Indices,
    length_list: int,
    sources: Addresses,
    lower: Bytes,
    no_names: Addresses,
    turn: int,
    patience: Patience,
    spans: Spans,
    until: float,
) -> None:
    core = state.core[0]
    traced, rested = is_traced(spans), True
    while True:
        count = receive_rows(descriptor, receiving, rows, lengths, sources)
        now = monotonic()
        sent = 0
        wrap(answers, rows[:count], lengths[:count], lower, no_names)
        for done in range(0, count, turn):
            began, ended = monotonic() if traced else now, core.counts[_ROUNDS]
            part, skip = min(turn, count - done), 4 * done
            lists = row_list + skip, length_list + skip
            machine.receive(state, answers_address, answers.shape[1], *lists, 0, part, now)
            if traced:
                note(spans, _RESULTS, began, monotonic(), part, core.counts[_ROUNDS] - ended)
            if core.queued >= turn:
                sent += _send(state, descriptor, sending, first, stride, len(lower), addresses, sizes, no_names, spans)
                step_aside(patience)
        machine.poll(state, now)
        sent += _send(state, descriptor, sending, first, stride, len(lower), addresses, sizes, no_names, spans)
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
            poll(watched, 1, int(max(pause, 0.0) * 1e9))
        if traced:
            note(spans, _WAIT, began, monotonic(), 0, 0)


@kernel
def nap(state: State) -> bool:
    """Sleep for a moment, if so much is in flight that it pays; return whether that was so."""
    core = state.core[0]
    pays = core.waiting >= _NAP_ROUNDS
    if pays:
        poll(0, 0, int(min(core.smoothed_s * _NAP_SHARE, _NAP_S) * 1e9))
    return bool(pays)


@kernel
def _send(
    state: State,
    descriptor: int,
    sending: SendWords,
    first: int,
    stride: int,
    skip: int,
    addresses: Addresses,
    sizes: Indices,
    no_names: Addresses,
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
        sizes[i] = state.queue[1, i] - skip
    count = send_datagrams(descriptor, sending, addresses[:queued], sizes[:queued], no_names)
    machine.sent(state, count)
    core.consumed = core.sequence - core.queued  # the operating system has copied what went
    if traced and count > 0:
        note(spans, _SEND, began, monotonic(), count, 0)
    return count
