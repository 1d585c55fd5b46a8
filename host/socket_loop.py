"""The driver's loop over a datagram socket, as one kernel; see shm_loop.py."""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum.host import machine
from switchsum.host.engine import Engine
from switchsum.host.state import Count, State
from switchsum.host.transport.base import Frames, Indices
from switchsum.host.transport.sockets import SocketEnd
from switchsum.protocol.batchreceive import MOST_TAKEN, ReceiveWords, receive_rows
from switchsum.protocol.batchsend import SendWords, send_datagrams
from switchsum.protocol.batchsocket import NO_NAMES, Addresses
from switchsum.protocol.encapsulation import Bytes, wrap
from switchsum.protocol.kernels import kernel
from switchsum.protocol.memory import address_of
from switchsum.protocol.system import monotonic, poll, watch
from switchsum.protocol.trace import NO_SPANS, Span, Spans, is_traced, note

NAP_ROUNDS: Final = 16
"""With so many rounds in flight a worker that is woken sleeps on for a moment, so that it is not woken for each: the
switch often has the same cores (BMv2 always), and what workers do not use, it has."""
NAP_SHARE: Final = 1 / 4
"""How long, as part of what a round takes."""
NAP_S: Final = 0.002
"""At most."""

_ROUNDS: Final = int(Count.ROUNDS)
_WAIT: Final = int(Span.WAIT)
_RESULTS: Final = int(Span.RESULTS)
_SEND: Final = int(Span.SEND)


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
            *(lengths, address_of(lengths), sources, end.lower, NO_NAMES, spans),
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
    spans: Spans,
    until: float,
) -> None:
    core = state.core[0]
    traced = is_traced(spans)
    while True:
        count = receive_rows(descriptor, receiving, rows, lengths, sources)
        now = monotonic()
        if count > 0:
            wrap(answers, rows[:count], lengths[:count], lower, no_names)
            ended = core.counts[_ROUNDS]
            machine.receive(state, answers_address, answers.shape[1], row_list, length_list, 0, count, now)
            if traced:
                note(spans, _RESULTS, now, monotonic(), count, core.counts[_ROUNDS] - ended)
        machine.poll(state, now)
        before = monotonic() if traced else now
        sent = _send(state, descriptor, sending, first, stride, len(lower), addresses, sizes, no_names)
        moved = count + sent
        if traced and sent > 0:
            note(spans, _SEND, before, monotonic(), sent, 0)
        if core.finished_count > 0 or core.failure != 0 or now >= until:
            return
        if moved == 0:
            before = monotonic() if traced else now
            pause = min(until, machine.look_again_at(state, now)) - now
            if poll(watched, 1, int(max(pause, 0.0) * 1e9)) > 0 and core.waiting >= NAP_ROUNDS:
                poll(0, 0, int(min(core.smoothed_s * NAP_SHARE, NAP_S) * 1e9))
            if traced:
                note(spans, _WAIT, before, monotonic(), 0, 0)


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
) -> int:
    """Send what the engine has queued, as far as the socket takes it; return how many frames went."""
    core = state.core[0]
    queued = core.queued
    if queued == 0:
        return 0
    for i in range(queued):
        addresses[i] = first + np.int64(state.queue[0, i]) * stride
        sizes[i] = state.queue[1, i] - skip
    count = send_datagrams(descriptor, sending, addresses[:queued], sizes[:queued], no_names)
    machine.sent(state, count)
    core.consumed = core.sequence - core.queued  # the operating system has copied what went
    return count
