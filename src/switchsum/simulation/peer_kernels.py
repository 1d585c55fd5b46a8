"""A host of a collective without switches that add: frames in steps, a window, acknowledgements, repeats.

A collective is a list of steps, the same for all hosts: in each one a host sends some frames to one host and gets as
many from another.  Frames are numbered through all steps.  A step may be *piped*: its n-th frame waits for the n-th one
of the step before, as in a ring, where each frame is passed on at once.  Other steps wait for all frames before.

The receiver acknowledges every fourth frame, the last one of a step, what is out of order, and what has waited for
`_ACK_DELAY_S`.  The sender repeats what three later frames to the same host have overtaken (RFC 9002's threshold), and
the oldest frame when nothing has come for a time-out.  That is RFC 6298's estimate, two round trips at least, of the
host to which the frame goes: a host across the network answers a hundred times later than a neighbour, where many share
a link.  As long as none was timed it is as long as a worker's.  Nothing is added: frames have the right lengths, and no
values.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum.native.kernels.decorators import inner
from switchsum.native.kernels.intrinsics import carray, pointer
from switchsum.native.kernels.memory import Scalar, bytes_at, integers_at, words_at
from switchsum.native.kernels.outlined import Outlined
from switchsum.native.kernels.records import Float64, Int64, Record, dtype_of

ETHERNET_BYTES: Final = 14
PEER_BYTES: Final = 54
"""Ethernet, and as much as IPv4 and TCP take."""
ACK_BYTES: Final = 60
_ETHERTYPE: Final = 0x88B5
"""For local experiments (IEEE 802)."""
_NUMBER, _STEP, _UPTO, _IS_ACK = 16, 20, 24, 28
"""Offsets in a frame."""
_ACK_EVERY: Final = 4
_ACK_DELAY_S: Final = 20e-6
_THRESHOLD: Final = 3
FIRST_TIMEOUT_S: Final = 0.02
"""As a worker's `probe_initial_s`."""
_NONE: Final = -1
_MOST_DOUBLINGS: Final = 6
_RETRY_S: Final = 1e-9


class PeerRecord(Record):
    """One host."""

    rank: Int64
    steps: Int64
    firsts: Int64
    """Address of the number of the first frame of each step, and of the end."""
    targets: Int64
    sources: Int64
    """Addresses of the rank to which, and from which, the frames of each step go."""
    piped: Int64
    """Address of 1 for each step that is piped."""
    frames: Int64
    """Of all steps."""
    last_bytes: Int64
    """Of the last frame of each step, and of the others."""
    full_bytes: Int64
    window: Int64
    mask: Int64
    """The rings of what was sent have one place more."""
    # What was sent.
    next: Int64
    base: Int64
    """The oldest frame that is not acknowledged."""
    base_step: Int64
    in_flight: Int64
    step: Int64
    """Of the next frame."""
    acknowledged: Int64
    """Address of a byte for each frame."""
    orders: Int64
    """Address of when each frame in flight was sent last, in frames."""
    order: Int64
    heard_at: Float64
    timed: Int64
    """The frame whose round trip is being timed; NONE: none is."""
    timed_at: Float64
    timed_step: Int64
    rounds: Int64
    """Address of the `ROUND` of each step: what is known of the host to which its frames go."""
    doublings: Int64
    repeats: Int64
    # What has come.
    came: Int64
    """Address of a byte for each frame."""
    prefix: Int64
    """All frames before it have come."""
    prefixes: Int64
    """Address of the same, for each step."""
    pending: Int64
    """Frames that were not acknowledged."""
    pending_step: Int64
    pending_number: Int64
    pending_since: Float64
    # Where frames are queued.
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


class RoundRecord(Record):
    """Round trips to one host."""

    smoothed_s: Float64
    variation_s: Float64
    timeout_s: Float64
    newest: Int64
    """The largest of the `orders` that it has acknowledged: what is on the way to another host proves nothing."""


PEER: Final = dtype_of(PeerRecord)
ROUND: Final = dtype_of(RoundRecord)


@Outlined
def begin(own: int, now: float) -> int:
    """Begin."""
    peer: PeerRecord = carray(pointer(own), (1,), PEER)[0]
    peer.heard_at = now
    peer.timed = _NONE
    return 0


@Outlined
def receive(own: int, frames: int, stride: int, rows: int, lengths: int, bodies: int, count: int, now: float) -> int:
    """Take one frame, of which the header is at the address `frames`."""
    peer: PeerRecord = carray(pointer(own), (1,), PEER)[0]
    header = bytes_at(frames, PEER_BYTES)
    number, step, upto = _word(header, _NUMBER), _word(header, _STEP), _word(header, _UPTO)
    if header[_IS_ACK] != 0:
        _acknowledged(peer, number, step, upto, now)
    else:
        _came(peer, number, step, now)
    return 0


@Outlined
def poll(own: int, now: float) -> int:
    """Send what may be sent, and repeat what seems lost."""
    peer: PeerRecord = carray(pointer(own), (1,), PEER)[0]
    if peer.pending > 0 and now >= peer.pending_since + _ACK_DELAY_S:
        _acknowledge(peer)
    if peer.in_flight > 0 and now >= _timeout_at(peer):
        _repeat(peer, peer.base)
        peer.doublings += 1
        peer.heard_at = now
    while peer.in_flight < peer.window and peer.next < peer.frames and peer.next - peer.base <= peer.mask:
        if not _may_send(peer):
            break
        if peer.in_flight == 0:
            peer.heard_at = now
        _put(peer, peer.next, peer.step)
        if peer.timed == _NONE:
            peer.timed = peer.next
            peer.timed_at = now
            peer.timed_step = peer.step
        peer.next += 1
        peer.in_flight += 1
        if peer.next == integers_at(peer.firsts, peer.steps + 1)[peer.step + 1]:
            peer.step += 1
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
    at = np.inf
    if peer.pending > 0:
        at = peer.pending_since + _ACK_DELAY_S
    if peer.in_flight > 0:
        at = min(at, _timeout_at(peer))
    carray(pointer(target), (1,), np.float64)[0] = at
    return 0


@inner
def _timeout_at(peer: PeerRecord) -> Scalar:
    timeout_s = _round_trips(peer, peer.base_step).timeout_s
    return peer.heard_at + timeout_s * (1 << min(peer.doublings, _MOST_DOUBLINGS))


@inner
def _round_trips(peer: PeerRecord, step: Scalar) -> RoundRecord:
    """Return what is known of round trips to the host to which the frames of a step go."""
    address: Scalar = integers_at(peer.rounds, peer.steps)[step]
    return carray(pointer(address), (1,), ROUND)[0]  # type: ignore[no-any-return]


@inner
def _may_send(peer: PeerRecord) -> bool:
    """Tell whether what the next frame is made of has come."""
    if peer.step == 0:
        return True
    firsts = integers_at(peer.firsts, peer.steps + 1)
    first = firsts[peer.step]
    if integers_at(peer.piped, peer.steps)[peer.step] == 0:
        return bool(peer.prefix >= first)
    before = peer.next - (first - firsts[peer.step - 1])
    return bool(bytes_at(peer.came, peer.frames)[before] != 0)


@inner
def _came(peer: PeerRecord, number: Scalar, step: Scalar, now: float) -> None:
    """Note that a frame has come."""
    came, prefixes = bytes_at(peer.came, peer.frames), integers_at(peer.prefixes, peer.steps)
    end = integers_at(peer.firsts, peer.steps + 1)[step + 1]
    is_next = number == prefixes[step]
    if peer.pending > 0 and step != peer.pending_step:
        _acknowledge(peer)
    came[number] = 1
    while prefixes[step] < end and came[prefixes[step]] != 0:
        prefixes[step] += 1
    while peer.prefix < peer.frames and came[peer.prefix] != 0:
        peer.prefix += 1
    if peer.prefix == peer.frames:
        peer.finished = 1
    if peer.pending == 0:
        peer.pending_since = now
    peer.pending += 1
    peer.pending_step = step
    peer.pending_number = number
    if peer.pending >= _ACK_EVERY or not is_next or number + 1 == end:
        _acknowledge(peer)


@inner
def _acknowledge(peer: PeerRecord) -> None:
    """Queue an acknowledgement of what has come."""
    step = peer.pending_step
    peer.pending = 0
    header = _queue(peer, integers_at(peer.sources, peer.steps)[step], ACK_BYTES)
    _write(header, _NUMBER, peer.pending_number)
    _write(header, _STEP, step)
    _write(header, _UPTO, integers_at(peer.prefixes, peer.steps)[step])
    header[_IS_ACK] = 1


@inner
def _acknowledged(peer: PeerRecord, number: Scalar, step: Scalar, upto: Scalar, now: float) -> None:
    """Take an acknowledgement: of one frame, and of all of its step before `upto`."""
    first: Scalar = max(peer.base, integers_at(peer.firsts, peer.steps + 1)[step])
    known = _round_trips(peer, step)
    for one in range(first, upto):
        _done(peer, known, one, now)
    if number >= peer.base:
        _done(peer, known, number, now)
    acknowledged = bytes_at(peer.acknowledged, peer.frames)
    firsts = integers_at(peer.firsts, peer.steps + 1)
    while peer.base < peer.next and acknowledged[peer.base] != 0:
        peer.base += 1
        if peer.base == firsts[peer.base_step + 1] and peer.base < peer.frames:
            peer.base_step += 1
    peer.heard_at = now
    peer.doublings = 0
    _repeat_overtaken(peer, step)


@inner
def _repeat_overtaken(peer: PeerRecord, step: Scalar) -> None:
    """Repeat what frames that were sent later have overtaken, to the host that has just acknowledged some."""
    acknowledged, orders = bytes_at(peer.acknowledged, peer.frames), integers_at(peer.orders, peer.mask + 1)
    firsts, rounds = integers_at(peer.firsts, peer.steps + 1), integers_at(peer.rounds, peer.steps)
    bound: Scalar = _round_trips(peer, step).newest - _THRESHOLD
    if rounds[peer.base_step] == rounds[step] and orders[peer.base & peer.mask] >= bound:
        return  # nothing of it is older than the oldest one
    of = peer.base_step
    for one in range(peer.base, peer.next):
        if one == firsts[of + 1]:
            of += 1
        if rounds[of] == rounds[step] and acknowledged[one] == 0 and orders[one & peer.mask] < bound:
            _repeat(peer, one)


@inner
def _done(peer: PeerRecord, known: RoundRecord, number: Scalar, now: float) -> None:
    acknowledged = bytes_at(peer.acknowledged, peer.frames)
    if number < peer.next and acknowledged[number] == 0:
        acknowledged[number] = 1
        peer.in_flight -= 1
        known.newest = max(known.newest, integers_at(peer.orders, peer.mask + 1)[number & peer.mask])
        if number == peer.timed:
            peer.timed = _NONE
            _estimate(_round_trips(peer, peer.timed_step), now - peer.timed_at)


@inner
def _estimate(found: RoundRecord, elapsed: float) -> None:
    """Set the time-out from a round trip, as a worker does without the floor of its driver."""
    if found.smoothed_s == 0.0:
        found.smoothed_s = elapsed
        found.variation_s = elapsed / 2
    else:
        found.variation_s += (abs(found.smoothed_s - elapsed) - found.variation_s) / 4
        found.smoothed_s += (elapsed - found.smoothed_s) / 8
    found.timeout_s = found.smoothed_s + max(4 * found.variation_s, found.smoothed_s) + _ACK_DELAY_S


@inner
def _repeat(peer: PeerRecord, number: Scalar) -> None:
    """Send a frame again."""
    firsts, step = integers_at(peer.firsts, peer.steps + 1), peer.step
    step = min(step, peer.steps - 1)
    while firsts[step] > number:
        step -= 1
    _put(peer, number, step)
    if number == peer.timed:
        peer.timed = _NONE  # which of the two is acknowledged cannot be told
    peer.repeats += 1


@inner
def _put(peer: PeerRecord, number: Scalar, step: Scalar) -> None:
    """Queue a frame of values."""
    is_last = number + 1 == integers_at(peer.firsts, peer.steps + 1)[step + 1]
    length = peer.last_bytes if is_last else peer.full_bytes
    header = _queue(peer, integers_at(peer.targets, peer.steps)[step], length)
    _write(header, _NUMBER, number)
    _write(header, _STEP, step)
    header[_IS_ACK] = 0
    peer.order += 1
    integers_at(peer.orders, peer.mask + 1)[number & peer.mask] = peer.order


@inner
def _queue(peer: PeerRecord, target: Scalar, length: Scalar) -> Scalar:
    """Queue a frame to a rank; return its header."""
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
