"""A host of a collective without switches that add: frames in steps, a window, acknowledgements, repeats.

A collective is a list of steps, the same for all hosts: in each step a host sends some frames to one host and gets as
many from another.  Frames are numbered through all steps.  A step may be *piped*: its n-th frame waits for the n-th one
of the step before, as in a ring, where each frame is passed on at once.  Other steps wait for all frames before.

Such a list, with a window and with what came, is a *stream*.  A ring needs one on each host.  In a tree a host has one
for each neighbour, and all of them go on at the same time: a frame to the parent waits for those of the children.

The receiver acknowledges every fourth frame, the last one of a step, what is out of order, and what has waited for
`_ACK_DELAY_S`.  The sender repeats a frame that three later ones to the same host have overtaken (RFC 9002), and the
oldest frame when nothing has come for a time-out.  The time-out is RFC 6298's, at least two round trips, for each
host by itself: where many share a link, a host across the network answers a hundred times later than a neighbour.
Before a round trip was timed, the time-out is that of a worker, or longer on slow links.  Nothing is added: frames have
the right lengths, but no values.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.memory import Scalar, bytes_at, integers_at, words_at
from switchsum_switch.kernels.outlined import Outlined
from switchsum_switch.kernels.records import Float64, Int64, Record, dtype_of

ETHERNET_BYTES: Final = 14
PEER_BYTES: Final = 54
"""Length of the headers: Ethernet, and as many bytes as IPv4 and TCP take."""
ACK_BYTES: Final = 60
_ETHERTYPE: Final = 0x88B5
"""EtherType for local experiments (IEEE 802)."""
_NUMBER, _STEP, _UPTO, _IS_ACK, _STREAM = 16, 20, 24, 28, 29
"""Offsets of fields in a frame.  At the last offset is the number of the stream on the receiver."""
_ACK_EVERY: Final = 4
_ACK_DELAY_S: Final = 20e-6
_THRESHOLD: Final = 3
FIRST_TIMEOUT_S: Final = 0.02
"""First time-out, as a worker's `probe_initial_s`; slow links have a longer one."""
_OTHERS: Final = 16
"""A time-out that was measured to one host, times this, is the first one to the others, which may be farther away.
Else halving and doubling, whose steps all go to other hosts, would wait for 20 ms wherever a first frame is lost.
"""
_NONE: Final = -1
_MOST_DOUBLINGS: Final = 6


class PeerRecord(Record):
    """One host: its streams, and where frames are queued."""

    rank: Int64
    streams: Int64
    """Address of the streams."""
    count: Int64
    """Number of streams."""
    unfinished: Int64
    """Number of streams that still miss frames."""
    store: Int64
    stride: Int64
    rows: Int64
    row: Int64
    queue_rows: Int64
    queue_lengths: Int64
    queued: Int64
    consumed: Int64
    blocked: Int64
    finished: Int64
    failure: Int64


class StreamRecord(Record):
    """The frames of a list of steps: those that a host sends, one after the other, and as many that it gets."""

    peer: Int64
    """Address of the host's record."""
    far: Int64
    """The number of this stream on the other hosts."""
    needs: Int64
    """Address of addresses of `came` of other streams of this host: a frame waits for the same one of each of these."""
    needed: Int64
    """Number of these streams."""
    steps: Int64
    firsts: Int64
    """Address of the number of the first frame of each step, and of the end."""
    targets: Int64
    sources: Int64
    """Addresses of the rank to which, and from which, the frames of each step go."""
    piped: Int64
    """Address of a number for each step; 1: the step is piped."""
    frames: Int64
    """Number of frames in all steps."""
    last_bytes: Int64
    """Bytes of the last frame of each step, and of the others."""
    full_bytes: Int64
    window: Int64
    mask: Int64
    """Places less one in the rings about frames that were sent; `number & mask` is a frame's place."""
    # What was sent.
    next: Int64
    base: Int64
    """The oldest frame that is not acknowledged."""
    base_step: Int64
    in_flight: Int64
    step: Int64
    """Step of the next frame."""
    acknowledged: Int64
    """Address of a byte for each frame; 1: it is acknowledged."""
    orders: Int64
    """Address of a number for each frame in flight: how many frames had been sent when it was sent last."""
    order: Int64
    heard_at: Float64
    timed: Int64
    """Number of the frame whose round trip is being timed; NONE: none is."""
    timed_at: Float64
    timed_step: Int64
    rounds: Int64
    """Address of the `ROUND` of each step: what is known of the host to which its frames go."""
    doublings: Int64
    repeats: Int64
    # What has come.
    came: Int64
    """Address of a byte for each frame; 1: it has come."""
    prefix: Int64
    """Number of a frame; all frames before it have come."""
    prefixes: Int64
    """Address of the same number for each step."""
    pending: Int64
    """Frames that have come and were not acknowledged yet."""
    pending_step: Int64
    pending_number: Int64
    pending_since: Float64


class RoundRecord(Record):
    """Round trips to one host."""

    smoothed_s: Float64
    variation_s: Float64
    timeout_s: Float64
    newest: Int64
    """The largest of the `orders` that this host has acknowledged: frames to other hosts prove nothing about it."""


PEER: Final = dtype_of(PeerRecord)
STREAM: Final = dtype_of(StreamRecord)
ROUND: Final = dtype_of(RoundRecord)


@Outlined
def begin(own: int, now: float) -> int:
    """Begin all streams."""
    peer: PeerRecord = carray(pointer(own), (1,), PEER)[0]
    peer.unfinished = peer.count
    for number in range(peer.count):
        stream = _stream(peer, number)
        stream.heard_at = now
        stream.timed = _NONE
    return 0


@Outlined
def receive(own: int, frames: int, stride: int, rows: int, lengths: int, bodies: int, count: int, now: float) -> int:
    """Take one frame, of which the header is at the address `frames`."""
    peer: PeerRecord = carray(pointer(own), (1,), PEER)[0]
    header = bytes_at(frames, PEER_BYTES)
    number, step, upto = _word(header, _NUMBER), _word(header, _STEP), _word(header, _UPTO)
    stream = _stream(peer, np.int64(header[_STREAM]))
    if header[_IS_ACK] != 0:
        _acknowledged(stream, number, step, upto, now)
    else:
        _came(peer, stream, number, step, now)
    return 0


@Outlined
def poll(own: int, now: float) -> int:
    """Send what may be sent, and repeat what seems lost."""
    peer: PeerRecord = carray(pointer(own), (1,), PEER)[0]
    for number in range(peer.count):
        _poll(_stream(peer, number), now)
    return 0


@Outlined
def sent(own: int, count: int) -> int:
    """Note that all that was queued is on its link."""
    peer: PeerRecord = carray(pointer(own), (1,), PEER)[0]
    peer.queued = 0
    return 0


@Outlined
def tell_wake_at(own: int, target: int) -> int:
    """Write to an address when `poll` has something to do."""
    peer: PeerRecord = carray(pointer(own), (1,), PEER)[0]
    at: Scalar = np.inf
    for number in range(peer.count):
        stream = _stream(peer, number)
        if stream.pending > 0:
            at = min(at, stream.pending_since + _ACK_DELAY_S)
        if stream.in_flight > 0:
            at = min(at, _timeout_at(stream))
    carray(pointer(target), (1,), np.float64)[0] = at
    return 0


@inner
def _stream(peer: PeerRecord, number: Scalar) -> StreamRecord:
    """Return a stream of a host."""
    return carray(pointer(peer.streams), (peer.count,), STREAM)[number]  # type: ignore[no-any-return]


@inner
def _poll(stream: StreamRecord, now: float) -> None:
    """Send what a stream may send, and repeat what seems lost of it."""
    if stream.pending > 0 and now >= stream.pending_since + _ACK_DELAY_S:
        _acknowledge(stream)
    if stream.in_flight > 0 and now >= _timeout_at(stream):
        _repeat(stream, stream.base)
        stream.doublings += 1
        stream.heard_at = now
    while stream.in_flight < stream.window and stream.next < stream.frames:
        if stream.next - stream.base > stream.mask or not _may_send(stream):
            break
        if stream.in_flight == 0:
            stream.heard_at = now
        _put(stream, stream.next, stream.step)
        if stream.timed == _NONE:
            stream.timed = stream.next
            stream.timed_at = now
            stream.timed_step = stream.step
        stream.next += 1
        stream.in_flight += 1
        if stream.next == integers_at(stream.firsts, stream.steps + 1)[stream.step + 1]:
            stream.step += 1


@inner
def _timeout_at(stream: StreamRecord) -> Scalar:
    timeout_s = _round_trips(stream, stream.base_step).timeout_s
    return stream.heard_at + timeout_s * (1 << min(stream.doublings, _MOST_DOUBLINGS))


@inner
def _round_trips(stream: StreamRecord, step: Scalar) -> RoundRecord:
    """Return what is known of round trips to the host to which the frames of a step go."""
    address: Scalar = integers_at(stream.rounds, stream.steps)[step]
    return carray(pointer(address), (1,), ROUND)[0]  # type: ignore[no-any-return]


@inner
def _may_send(stream: StreamRecord) -> bool:
    """Tell whether the frames have come that the next frame is made of."""
    for number in range(stream.needed):
        if bytes_at(integers_at(stream.needs, stream.needed)[number], stream.frames)[stream.next] == 0:
            return False
    if stream.step == 0:
        return True
    firsts = integers_at(stream.firsts, stream.steps + 1)
    first = firsts[stream.step]
    if integers_at(stream.piped, stream.steps)[stream.step] == 0:
        return bool(stream.prefix >= first)
    before = stream.next - (first - firsts[stream.step - 1])
    return bool(bytes_at(stream.came, stream.frames)[before] != 0)


@inner
def _came(peer: PeerRecord, stream: StreamRecord, number: Scalar, step: Scalar, now: float) -> None:
    """Note that a frame has come."""
    came, prefixes = bytes_at(stream.came, stream.frames), integers_at(stream.prefixes, stream.steps)
    end = integers_at(stream.firsts, stream.steps + 1)[step + 1]
    is_next, had_all = number == prefixes[step], stream.prefix == stream.frames
    if stream.pending > 0 and step != stream.pending_step:
        _acknowledge(stream)
    came[number] = 1
    while prefixes[step] < end and came[prefixes[step]] != 0:
        prefixes[step] += 1
    while stream.prefix < stream.frames and came[stream.prefix] != 0:
        stream.prefix += 1
    if stream.prefix == stream.frames and not had_all:
        peer.unfinished -= 1
        if peer.unfinished == 0:
            peer.finished = 1
    if stream.pending == 0:
        stream.pending_since = now
    stream.pending += 1
    stream.pending_step = step
    stream.pending_number = number
    if stream.pending >= _ACK_EVERY or not is_next or number + 1 == end:
        _acknowledge(stream)


@inner
def _acknowledge(stream: StreamRecord) -> None:
    """Queue an acknowledgement of what has come."""
    step = stream.pending_step
    stream.pending = 0
    header = _queue(stream, integers_at(stream.sources, stream.steps)[step], ACK_BYTES)
    _write(header, _NUMBER, stream.pending_number)
    _write(header, _STEP, step)
    _write(header, _UPTO, integers_at(stream.prefixes, stream.steps)[step])
    header[_IS_ACK] = 1


@inner
def _acknowledged(stream: StreamRecord, number: Scalar, step: Scalar, upto: Scalar, now: float) -> None:
    """Take an acknowledgement: of one frame, and of all of its step before `upto`."""
    first: Scalar = max(stream.base, integers_at(stream.firsts, stream.steps + 1)[step])
    known = _round_trips(stream, step)
    for one in range(first, upto):
        _done(stream, known, one, now)
    if number >= stream.base:
        _done(stream, known, number, now)
    acknowledged = bytes_at(stream.acknowledged, stream.frames)
    firsts = integers_at(stream.firsts, stream.steps + 1)
    while stream.base < stream.next and acknowledged[stream.base] != 0:
        stream.base += 1
        if stream.base == firsts[stream.base_step + 1] and stream.base < stream.frames:
            stream.base_step += 1
    stream.heard_at = now
    stream.doublings = 0
    _repeat_overtaken(stream, step)


@inner
def _repeat_overtaken(stream: StreamRecord, step: Scalar) -> None:
    """Repeat what frames that were sent later have overtaken, to the host that has just acknowledged some."""
    acknowledged, orders = bytes_at(stream.acknowledged, stream.frames), integers_at(stream.orders, stream.mask + 1)
    firsts, rounds = integers_at(stream.firsts, stream.steps + 1), integers_at(stream.rounds, stream.steps)
    bound: Scalar = _round_trips(stream, step).newest - _THRESHOLD
    if rounds[stream.base_step] == rounds[step] and orders[stream.base & stream.mask] >= bound:
        return  # this host has no frame older than the oldest one
    of = stream.base_step
    for one in range(stream.base, stream.next):
        if one == firsts[of + 1]:
            of += 1
        if rounds[of] == rounds[step] and acknowledged[one] == 0 and orders[one & stream.mask] < bound:
            _repeat(stream, one)


@inner
def _done(stream: StreamRecord, known: RoundRecord, number: Scalar, now: float) -> None:
    acknowledged = bytes_at(stream.acknowledged, stream.frames)
    if number < stream.next and acknowledged[number] == 0:
        acknowledged[number] = 1
        stream.in_flight -= 1
        known.newest = max(known.newest, integers_at(stream.orders, stream.mask + 1)[number & stream.mask])
        if number == stream.timed:
            stream.timed = _NONE
            timed = _round_trips(stream, stream.timed_step)
            is_first = timed.smoothed_s == 0.0
            _estimate(timed, now - stream.timed_at)
            if is_first:
                _expect(stream, _OTHERS * timed.timeout_s)


@inner
def _estimate(found: RoundRecord, elapsed: float) -> None:
    """Set the time-out from a round trip, as a worker does without the minimum of its driver."""
    if found.smoothed_s == 0.0:
        found.smoothed_s = elapsed
        found.variation_s = elapsed / 2
    else:
        found.variation_s += (abs(found.smoothed_s - elapsed) - found.variation_s) / 4
        found.smoothed_s += (elapsed - found.smoothed_s) / 8
    found.timeout_s = found.smoothed_s + max(4 * found.variation_s, found.smoothed_s) + _ACK_DELAY_S


@inner
def _expect(stream: StreamRecord, timeout_s: float) -> None:
    """Set the time-out of hosts to which no round trip was timed yet, unless it is shorter."""
    for step in range(stream.steps):
        other = _round_trips(stream, step)
        if other.smoothed_s == 0.0:
            other.timeout_s = min(other.timeout_s, timeout_s)


@inner
def _repeat(stream: StreamRecord, number: Scalar) -> None:
    """Send a frame again."""
    firsts, step = integers_at(stream.firsts, stream.steps + 1), stream.step
    step = min(step, stream.steps - 1)
    while firsts[step] > number:
        step -= 1
    _put(stream, number, step)
    if number == stream.timed:
        stream.timed = _NONE  # nobody can tell which of the two copies is acknowledged
    stream.repeats += 1


@inner
def _put(stream: StreamRecord, number: Scalar, step: Scalar) -> None:
    """Queue a frame of values."""
    is_last = number + 1 == integers_at(stream.firsts, stream.steps + 1)[step + 1]
    length = stream.last_bytes if is_last else stream.full_bytes
    header = _queue(stream, integers_at(stream.targets, stream.steps)[step], length)
    _write(header, _NUMBER, number)
    _write(header, _STEP, step)
    header[_IS_ACK] = 0
    stream.order += 1
    integers_at(stream.orders, stream.mask + 1)[number & stream.mask] = stream.order


@inner
def _queue(stream: StreamRecord, target: Scalar, length: Scalar) -> Scalar:
    """Queue a frame to a rank; return its header."""
    peer: PeerRecord = carray(pointer(stream.peer), (1,), PEER)[0]
    row = peer.row % peer.rows
    peer.row += 1
    words_at(peer.queue_rows, peer.rows)[peer.queued] = row
    words_at(peer.queue_lengths, peer.rows)[peer.queued] = length
    peer.queued += 1
    header = bytes_at(peer.store + row * peer.stride, PEER_BYTES)
    _write(header, 2, target + 1)
    _write(header, 8, peer.rank + 1)
    header[0] = header[6] = 2
    header[12] = _ETHERTYPE >> 8
    header[13] = _ETHERTYPE & 0xFF
    header[_STREAM] = stream.far
    return header


@inner
def _word(header: Scalar, at: int) -> Scalar:
    """Read 32 bits."""
    word = np.int64(0)
    for place in range(4):
        word = word << 8 | np.int64(header[at + place])
    return word


@inner
def _write(header: Scalar, at: int, word: Scalar) -> None:
    """Write 32 bits."""
    for place in range(4):
        header[at + place] = (word >> (24 - 8 * place)) & 0xFF
