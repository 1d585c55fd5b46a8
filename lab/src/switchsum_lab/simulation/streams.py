"""A bulk stream such as TCP's, beside which jobs run: Reno's window, selective acknowledgements, ECN or not.

A `Sender` has always something to send.  Its window grows by one frame for each acknowledged one in slow start, and by
one in each round trip after that (RFC 5681).  A loss halves it, and so does a mark of congestion if it asks for marks
(RFC 3168); both at most once in a round trip.  A frame is lost when three that were sent later have been acknowledged
(RFC 8985), or when nothing has come for a time-out (RFC 6298, with Linux's minimum of 200 ms).

At most two frames wait on the sender's own link, as Linux has it (TCP small queues), and the window grows only where it
has held the sender back in the last round trip (RFC 7661).  Otherwise a sender behind a slow link of its own would have
a window of frames that are not sent yet.  A loss would not slow it down then, and a full port behind its link would
stay full.

Frames are IPv4 and look like TCP's: the number of a frame stands where TCP counts bytes.  A `Receiver` acknowledges
each frame at once.  Nothing is opened or closed, and the receiver's window has no end.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import Scalar, bytes_at, integers_at, words_at
from switchsum_switch.kernels.outlined import Outlined
from switchsum_switch.kernels.records import Float64, Int64, Record, dtype_of
from switchsum_switch.wires.headers import ECN_CAPABLE, Address, internet_checksum

_HEADER_BYTES: Final = 54
"""Length of the headers: Ethernet, IPv4 and TCP."""
_ACK_BYTES: Final = 60
_ETHERNET: Final = struct.Struct("!6s6sH")
_IPV4: Final = struct.Struct("!BBHHHBBHII")
_TCP: Final = 6
_TOS, _SEQUENCE, _ACKNOWLEDGED, _FLAGS = 15, 38, 42, 47
"""Offsets of fields in a frame."""
_ECHO, _ACK = 0x40, 0x10
"""Flags of TCP: ECE, a mark has come; ACK, the frame acknowledges."""
_MARKED: Final = 3
_RING: Final = 4096
"""Places for the frames that the sender keeps track of; the window is smaller."""
_MOST_IN_FLIGHT: Final = 2048.0
_ROWS: Final = 256
"""Most frames that are sent in one turn."""
_FIRST_WINDOW: Final = 10.0
_LEAST_WINDOW: Final = 2.0
_MOST_WAITING: Final = 2
"""Frames that wait on the sender's own link."""
_THRESHOLD: Final = 3
_LEAST_TIMEOUT_S: Final = 0.2
_MOST_DOUBLINGS: Final = 6
_NONE: Final = -1


class StreamRecord(Record):
    """One end of a stream."""

    sends: Int64
    """1: this end is the sender."""
    obeys: Int64
    """1: this end asks for marks, and obeys them."""
    length: Int64
    """Length of its frames."""
    # The sender.
    window: Float64
    threshold: Float64
    """Window above which slow start is over."""
    next: Int64
    """The number of the next new frame."""
    base: Int64
    """The number of the oldest frame that is not acknowledged."""
    in_flight: Int64
    acknowledged: Int64
    """How many frames were acknowledged."""
    is_done: Int64
    """Address of a ring with a number for each frame; 1: it is acknowledged."""
    orders: Int64
    """Address of a ring with the `order` of each frame when it was sent last."""
    order: Int64
    newest: Int64
    """The largest of the `orders` of acknowledged frames."""
    cut_at: Int64
    """`order` when the window was last made smaller: the fate of earlier frames tells nothing new."""
    full_at: Int64
    """`order` when the window last held the sender back."""
    cuts: Int64
    repeats: Int64
    timed: Int64
    """`order` of the frame whose round trip is being timed."""
    timed_at: Float64
    smoothed_s: Float64
    variation_s: Float64
    heard_at: Float64
    doublings: Int64
    # Frames that are queued.
    store: Int64
    queue_rows: Int64
    queue_lengths: Int64
    row: Int64
    """How many frames were queued so far."""
    queued: Int64
    consumed: Int64
    """How many of them have left the link."""
    blocked: Int64
    """1: the sender waits for a frame to leave its link."""
    finished: Int64
    failure: Int64


STREAM: Final = dtype_of(StreamRecord)


class _End:
    """One end of a stream, as a `NativeHost`."""

    most_frames = _ROWS

    def __init__(self, own: Address, far: Address, length: int, *, sends: bool, obeys: bool) -> None:
        self._record: Any = np.zeros(1, STREAM)
        header = np.frombuffer(_header(own, far, length, ECN_CAPABLE if obeys and sends else 0), np.uint8)
        store = np.zeros((_ROWS, length), np.uint8)
        store[:, :_HEADER_BYTES] = header
        self._keep: dict[str, npt.NDArray[Any]] = {
            "store": store,
            "is_done": np.zeros(_RING, np.uint8),
            "orders": np.zeros(_RING, np.int64),
            "queue_rows": np.zeros(_ROWS, np.uint32),
            "queue_lengths": np.zeros(_ROWS, np.uint32),
        }
        for name, array in self._keep.items():
            self._record[name] = address_of(array)
        values = {"sends": sends, "obeys": obeys, "length": length, "window": _FIRST_WINDOW, "cut_at": _NONE}
        for name, value in (values | {"threshold": _MOST_IN_FLIGHT, "timed": _NONE, "newest": _NONE}).items():
            self._record[name] = value

    def facts(self) -> Mapping[str, int]:
        """Return the fields of this end's `NodeRecord`."""
        own = address_of(self._record)
        fields: Any = STREAM.fields
        found = {
            "own": own,
            "receive": _receive.address,
            "poll": _poll.address,
            "sent": _sent.address,
            "wake": _tell_wake_at.address,
            "queue_count": own + int(fields["queued"][1]),
            "queue_rows": int(self._record["queue_rows"][0]),
            "queue_lengths": int(self._record["queue_lengths"][0]),
            "store": int(self._record["store"][0]),
            "stride": int(self._record["length"][0]),
        }
        return found | {name: own + int(fields[name][1]) for name in ("consumed", "blocked", "finished", "failure")}


class Sender(_End):
    """The end that sends, from the time when it is woken (`World.wake`).

    Example:
        >>> from switchsum_lab.simulation.placement import host_address
        >>> near, far = host_address(30), host_address(31)
        >>> number = network.native_host("h30", Sender(near, far, obeys=True))  # doctest: +SKIP
        >>> network.world.wake(number, at_s=1.0)  # doctest: +SKIP

    """

    def __init__(self, own: Address, far: Address, *, length: int = 1514, obeys: bool = False) -> None:
        """Send frames of `length` bytes; with `obeys` marks of congestion count, else losses alone."""
        super().__init__(own, far, length, sends=True, obeys=obeys)

    @property
    def bytes(self) -> int:
        """Bytes of the frames that were acknowledged."""
        return int(self._record["acknowledged"][0] * self._record["length"][0])

    @property
    def repeats(self) -> int:
        """Frames that this end has sent again."""
        return int(self._record["repeats"][0])

    @property
    def cuts(self) -> int:
        """How often this end halved its window."""
        return int(self._record["cuts"][0])


class Receiver(_End):
    """The end that acknowledges."""

    def __init__(self, own: Address, far: Address) -> None:
        super().__init__(own, far, _ACK_BYTES, sends=False, obeys=False)


def _header(own: Address, far: Address, length: int, ecn: int) -> bytes:
    ip = bytearray(_IPV4.pack(0x45, ecn, length - _ETHERNET.size, 0, 0x4000, 64, _TCP, 0, own.ip, far.ip))
    ip[10:12] = internet_checksum(bytes(ip)).to_bytes(2)
    tcp = bytearray(20)
    tcp[12], tcp[13] = 0x50, _ACK
    return _ETHERNET.pack(far.mac.to_bytes(6), own.mac.to_bytes(6), 0x0800) + bytes(ip) + bytes(tcp)


@inner
def _stream_at(own: int) -> StreamRecord:
    return carray(pointer(own), (1,), STREAM)[0]  # type: ignore[no-any-return]


@Outlined
def _receive(own: int, frames: int, stride: int, rows: int, lengths: int, bodies: int, count: int, now: float) -> int:
    """Take one frame: an acknowledgement, or a frame to acknowledge."""
    stream = _stream_at(own)
    header = bytes_at(frames, _HEADER_BYTES)
    if stream.sends == 0:
        answer = _queue(stream)
        for place in range(4):
            answer[_ACKNOWLEDGED + place] = header[_SEQUENCE + place]
        answer[_FLAGS] = _ACK | (_ECHO if header[_TOS] & _MARKED == _MARKED else 0)
        return 0
    number = np.int64(0)
    for place in range(4):
        number = number << 8 | np.int64(header[_ACKNOWLEDGED + place])
    _acknowledged(stream, number, header[_FLAGS] & _ECHO != 0, now)
    return 0


@Outlined
def _poll(own: int, now: float) -> int:
    """Repeat what is lost, and send what the window allows."""
    stream = _stream_at(own)
    if stream.sends == 0:
        return 0
    if stream.in_flight > 0 and now >= _timeout_at(stream):
        _cut(stream)
        stream.window = 1.0
        stream.doublings += 1
        stream.heard_at = now
        _repeat(stream, stream.base)
    stream.blocked = 0
    while stream.in_flight + 1 <= stream.window and stream.queued < _ROWS and stream.next - stream.base < _RING:
        if stream.row - stream.consumed >= _MOST_WAITING:
            stream.blocked = 1
            break
        if stream.in_flight == 0:
            stream.heard_at = now
        bytes_at(stream.is_done, _RING)[stream.next % _RING] = 0
        _put(stream, stream.next)
        if stream.timed == _NONE:
            stream.timed = stream.order
            stream.timed_at = now
        stream.next += 1
        stream.in_flight += 1
    if stream.in_flight + 1 > stream.window:
        stream.full_at = stream.order
    return 0


@Outlined
def _sent(own: int, count: int) -> int:
    """Note that all that was queued is on its link."""
    _stream_at(own).queued = 0
    return 0


@Outlined
def _tell_wake_at(own: int, target: int) -> int:
    """Write the time of the time-out to an address."""
    stream = _stream_at(own)
    at = _timeout_at(stream) if stream.in_flight > 0 else np.inf
    carray(pointer(target), (1,), np.float64)[0] = at
    return 0


@inner
def _timeout_at(stream: StreamRecord) -> Scalar:
    timeout_s = max(stream.smoothed_s + 4 * stream.variation_s, _LEAST_TIMEOUT_S)
    return stream.heard_at + timeout_s * (1 << min(stream.doublings, _MOST_DOUBLINGS))


@inner
def _acknowledged(stream: StreamRecord, number: Scalar, is_marked: bool, now: float) -> None:
    """Take an acknowledgement."""
    is_done, orders = bytes_at(stream.is_done, _RING), integers_at(stream.orders, _RING)
    stream.heard_at = now
    stream.doublings = 0
    if number < stream.base or is_done[number % _RING] != 0:
        return
    order = orders[number % _RING]
    is_done[number % _RING] = 1
    stream.acknowledged += 1
    stream.in_flight -= 1
    stream.newest = max(stream.newest, order)
    if order >= stream.timed and stream.timed != _NONE:
        if order == stream.timed:
            _estimate(stream, now - stream.timed_at)
        stream.timed = _NONE
    while stream.base < stream.next and is_done[stream.base % _RING] != 0:
        stream.base += 1
    if is_marked and stream.obeys == 1 and order > stream.cut_at:
        _cut(stream)
    elif stream.window < _MOST_IN_FLIGHT and order <= stream.full_at:
        stream.window += 1.0 if stream.window < stream.threshold else 1.0 / stream.window
    if stream.base < stream.next and orders[stream.base % _RING] + _THRESHOLD <= stream.newest:
        for one in range(stream.base, stream.next):
            if stream.queued == _ROWS:
                break
            if is_done[one % _RING] == 0 and orders[one % _RING] + _THRESHOLD <= stream.newest:
                if orders[one % _RING] > stream.cut_at:
                    _cut(stream)
                _repeat(stream, one)


@inner
def _estimate(stream: StreamRecord, elapsed: float) -> None:
    """Follow RFC 6298, section 2."""
    if stream.smoothed_s == 0.0:
        stream.smoothed_s = elapsed
        stream.variation_s = elapsed / 2
    else:
        stream.variation_s += (abs(stream.smoothed_s - elapsed) - stream.variation_s) / 4
        stream.smoothed_s += (elapsed - stream.smoothed_s) / 8


@inner
def _cut(stream: StreamRecord) -> None:
    """Halve the window."""
    stream.threshold = max(min(stream.window, float(stream.in_flight)) / 2, _LEAST_WINDOW)
    stream.window = stream.threshold
    stream.cut_at = stream.order
    stream.cuts += 1


@inner
def _repeat(stream: StreamRecord, number: Scalar) -> None:
    """Send a frame again."""
    _put(stream, number)
    stream.repeats += 1


@inner
def _put(stream: StreamRecord, number: Scalar) -> None:
    """Queue a frame."""
    header = _queue(stream)
    for place in range(4):
        header[_SEQUENCE + place] = (number >> (24 - 8 * place)) & 0xFF
    stream.order += 1
    integers_at(stream.orders, _RING)[number % _RING] = stream.order


@inner
def _queue(stream: StreamRecord) -> Scalar:
    """Queue a frame that has only its headers so far; return it."""
    row = stream.row % _ROWS
    stream.row += 1
    words_at(stream.queue_rows, _ROWS)[stream.queued] = row
    words_at(stream.queue_lengths, _ROWS)[stream.queued] = stream.length
    stream.queued += 1
    return bytes_at(stream.store + row * stream.length, _HEADER_BYTES)
