"""Links whose functions are compiled: for the loop as they are, and for all others as Python methods over them.

Functions that several of them have stand here, too.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import SwitchLost
from switchsum_protocol.frame import FRAME_BYTES
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.outlined import Native, Outlined, prepare
from switchsum_switch.process.system import monotonic, poll
from switchsum_switch.wires.headers import Address
from switchsum_switch.wires.rows import LEAD_BYTES, allocate_rows

from ..engine.link import LINK, LinkFunctions, LinkRecord, Stop
from .base import LONGEST_WAIT_S, Frames, Indices, Received, int32_at

_MOST_TAKES: Final = 16
"""Most batches in one `receive`: more frames may come all the time."""
NAP_S: Final = 0.002
"""Sockets nap for this long at most."""


@Outlined
def tell_time(link: int) -> int:
    """Tell what the operating system's clock says: the `now` of all native links."""
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    here.time = monotonic()
    return 0


@Outlined
def keep_nothing(link: int) -> int:
    """Do nothing: the `release` of a link whose next `take` overwrites the rows."""
    return 0


@Outlined
def all_pushed(link: int) -> int:
    """Return as many as were handed over: the `consumed` of a link of which the operating system copies."""
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    return int(here.pushed)


@inner
def sleep(link: LinkRecord, watched: int) -> int:
    """Nap, or sleep until a descriptor (address of one that is watched) is ready; return what `poll` does."""
    if link.nap_s > 0:
        return poll(0, 0, nanoseconds(link.nap_s))
    return poll(watched, 1, nanoseconds(link.until - link.time))


@inner
def nanoseconds(seconds: float) -> int:
    """Return a time as `poll` takes it, where a negative one or infinity would mean something else."""
    return int(min(max(seconds, 0.0), LONGEST_WAIT_S) * 1e9)


class NativeTransport:
    """A `Transport` over compiled functions."""

    natives: ClassVar[Mapping[str, Native]]
    """The functions, by name."""
    address: Address
    max_frame_bytes: int
    tx_frames: Frames
    lead = LEAD_BYTES
    reopened = 0
    """Sockets outlive the switch."""
    now = staticmethod(time.monotonic)
    _functions: LinkFunctions
    own: npt.NDArray[np.void]
    """State that only the functions know: sockets, with `first`, `stride` and `watched`."""

    def functions(self) -> LinkFunctions:
        """Return what the loop calls."""
        return self._functions

    def close(self) -> None:
        """Close the link; see `Transport`."""
        raise NotImplementedError

    def set_functions(self, own: npt.NDArray[np.void], *keep: object) -> None:
        """Have functions on `own`, the record of what only they know, and on what that points to."""
        prepare(self.natives.values())
        self.own = own
        self._functions = LinkFunctions(own, *keep)
        record = self._functions.record
        for name, outlined in self.natives.items():
            record[name] = outlined.address
        record["own"] = address_of(own)

    def send_from(self, frames: Frames) -> None:
        """Send from the rows of another frame store from now on, which links of one worker have in common."""
        self.own["first"] += frames.ctypes.data - self.tx_frames.ctypes.data
        self.own["stride"] = frames.strides[0]
        self.tx_frames = frames

    @property
    def descriptor(self) -> int:
        """Return the descriptor of the socket, which is ready when something has come."""
        return int(int32_at(int(self.own["watched"][0]), 1)[0])

    def _call(self, name: str) -> int:
        """Call a function of the link; raises SwitchLost."""
        record = self._functions.record
        record["stop"] = Stop.NONE
        result = self.natives[name].function(self._functions.address)
        if record["stop"][0] == Stop.BROKEN:
            raise SwitchLost(
                "the switch's side of the shared-memory link holds numbers that cannot be: restart the switch"
            )
        return result

    @property
    def pushed(self) -> int:
        """Return how many frames have been handed over."""
        return int(self._functions.record["pushed"][0])

    @property
    def consumed(self) -> int:
        """Return how many of these nobody reads any more."""
        return self._call("consumed")

    def send(self, rows: Indices, lengths: Indices) -> int:
        """Hand over the frames in `rows`, as many as there is room for."""
        record, before = self._functions.record, self.pushed
        record["queue_rows"], record["queue_lengths"] = address_of(rows), address_of(lengths)
        record["queued"] = len(rows)
        self._call("send")
        return self.pushed - before

    def receive(self) -> Received:
        """Return copies of the frames that have come, each in one piece."""
        frames: list[bytes] = []
        for _ in range(_MOST_TAKES):
            taken = self._take()
            if not taken:
                break
            frames += taken
        copies = allocate_rows(max(len(frames), 1), self.max_frame_bytes)
        for copy, frame in zip(copies, frames, strict=False):
            copy[LEAD_BYTES : LEAD_BYTES + len(frame)] = np.frombuffer(frame, np.uint8)
        copies.flags.writeable = False
        lengths = np.array([len(frame) for frame in frames], np.int32)
        return Received(copies, np.arange(len(frames), dtype=np.int32), lengths)

    def _take(self) -> list[bytes]:
        """Return the frames of one `take`, without those that were too long for their rows."""
        count, record = self._call("take"), self._functions.record[0]
        first, stride, bodies = (int(record[name]) for name in ("frames", "stride", "bodies"))
        rows, lengths = (int32_at(int(record[name]), count).tolist() for name in ("rows", "lengths"))
        frames = []
        for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            body = ctypes.c_int64.from_address(bodies + 8 * place).value if bodies else 0
            whole = FRAME_BYTES if body else min(length, self.max_frame_bytes)
            frame = ctypes.string_at(first + row * stride + LEAD_BYTES, whole)
            frames.append(frame + ctypes.string_at(body, length - whole) if body else frame)
        return [frame for frame in frames if frame]

    def release(self) -> None:
        """Give the rows of the last `receive` back."""
        self._call("release")

    def wait(self, timeout_s: float) -> bool:
        """Block until something may be received; raises SwitchLost."""
        record, end = self._functions.record, self.now() + timeout_s
        while True:
            record["time"] = now = self.now()
            record["until"], record["nap_s"] = end, 0.0
            if self._call("wait"):
                return True
            if now >= end or record["stop"][0] != Stop.NONE:
                return False
