"""What the worker engine knows, as arrays that its kernels share with Python.

Numbers are 64 bits wide and signed, since numba turns a mix of such with unsigned ones into floats; only a slot's are
as narrow as they may be, so that it is one cache line.  Times are seconds of whatever clock the driver reads.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum.native.kernels import Outlined
from switchsum.native.plain import table
from switchsum.protocol.frame import LOWER_BYTES, LaneFormat

from . import integers, kernels

Record = Any
"""One entry of a structured array; numba knows its fields, mypy does not."""
Table = npt.NDArray[Any]
"""A structured array."""

OPERATIONS: Final = 1024
"""Operations that may be in flight; a power of two is not needed, a bound is: the oldest one keeps its record."""


NEVER: Final = np.iinfo(np.int64).max
"""Beyond every sequence."""


class Phase(IntEnum):
    """What a slot is doing."""

    IDLE = 0
    """No operation has a column for it."""
    WAITING = 1
    """Its contribution is with the transport; the result is to come."""
    BLOCKED = 2
    """The contribution cannot be packed yet, for the transport still reads the row."""


WHOLE: Final = 0
"""A slot's stage: its block is added as it is.  From 1 on: that part of it (see `switchsum.host.engine.integers`); with
integers the stage travels as the exponent, so that it is part of what all must agree in."""


class Failure(IntEnum):
    """Why the engine gave up."""

    NONE = 0
    MISMATCH = 1
    """Members contributed different operations to a round."""
    REJECTED = 2
    """The switch refused a contribution; `reason` says why."""


class Count(IntEnum):
    """Index of each counter; what happened to a frame that came is one of the first nine."""

    ROUNDS = 0
    """A result that was waited for."""
    HELD = 1
    """The switch has the contribution and waits for others."""
    REJECTED = 2
    """The switch refused a contribution."""
    DUPLICATE = 3
    """A result of a slot's last round once more."""
    STALE = 4
    """About a round before that."""
    FOREIGN = 5
    """Not from the switch to this member of this job, or about a round that was never contributed to."""
    BROKEN = 6
    """Lengths, version or kind are wrong."""
    UNEXPECTED = 7
    """A result that contradicts what was contributed; also everything after a failure."""
    FORGED = 8
    """With another cookie than this member's."""
    FRAMES_RECEIVED = 9
    BYTES_RECEIVED = 10
    FRAMES_SENT = 11
    BYTES_SENT = 12
    OVERTAKEN = 13
    """Repeats because results of later frames have passed."""
    PROBES = 14
    """Repeats because nothing came for a while."""
    BLOCKED = 15
    """Contributions that had to wait for their row."""
    OVERFLOWS = 16
    """Rounds whose integer sums overflowed on the way and were added again in halves."""
    RECALLED = 17
    """Repeats of a round that is over here, for a switch that may have been restarted."""


BLOCK_KERNELS: Final[dict[str, Outlined]] = {
    "scan": kernels.scan,
    "pack": kernels.pack,
    "pack_narrow": kernels.pack_narrow,
    "pack_integers": integers.pack_integers,
    "pack_part": integers.pack_part,
    "unpack": kernels.unpack,
    "unpack_narrow": kernels.unpack_narrow,
    "unpack_integers": integers.unpack_integers,
    "unpack_part": integers.unpack_part,
    "fill_nan": kernels.fill_nan,
}
"""What the state machine calls by address, by the name of its field in `CORE`."""

CORE: Final = np.dtype(
    [
        # Addresses of the kernels for blocks.
        *((name, "i8") for name in BLOCK_KERNELS),
        # The membership and the link; constant.
        ("job", "i8"),
        ("epoch", "i8"),
        ("rank", "i8"),
        ("lanes", "i8"),
        ("padding", "i8"),  # bytes behind the header of a frame without payload
        ("window", "i8"),  # slots in use
        ("first_slot", "i8"),  # what the first of them is called in frames
        ("cookie", "i8", (2,)),  # its high and its low 32 bits
        ("switch_mac", "i8"),
        ("switch_ip", "i8"),
        ("switch_port", "i8"),
        ("own_ip", "i8"),
        ("own_port", "i8"),
        ("lead", "i8"),
        ("store", "i8"),  # address of the rows that are sent
        ("kept", "i8"),  # address of the array `kept`
        ("stride", "i8"),
        ("checksum", "i8"),  # 1: fill in UDP checksums
        ("seed", "i8"),  # 32 bits of this member's own, for rounding at random
        # The operations: serial numbers of the next one to come and of the oldest that is not complete.
        ("submitted", "i8"),
        ("oldest", "i8"),
        # Where the next one's columns begin among the slots of those that are not urgent and of those that are, and how
        # many slots the latter have to themselves.
        ("turn", "i8", (2,)),
        ("reserved", "i8"),
        # Slots in each phase but idle.
        ("waiting", "i8"),
        ("blocked", "i8"),
        # Sending: how many frames were ever queued, how many of them nobody reads any more, how many still queue.
        ("sequence", "i8"),
        ("consumed", "i8"),
        ("queued", "i8"),
        # Loss recovery, see recovery.py.
        ("passed", "i8"),  # highest sequence whose result has come
        ("searched", "i8"),  # `passed` when slots were last searched
        ("timed_at", "f8"),  # when a round was last timed
        ("evident_at", "f8"),  # when `overtaken` was last heard of
        ("credit", "i8"),  # frames that may be taken for lost because results of repeats have passed them
        ("overtaken", "i8"),  # the same, of slots that are in step with the other workers'
        ("threshold", "i8"),
        ("timeouts", "i8"),  # how often the time-out was doubled
        ("silent", "i8"),  # time-outs in a row without any answer
        ("smoothed_s", "f8"),
        ("variation_s", "f8"),
        ("timeout_s", "f8"),
        ("timeout_min_s", "f8"),
        ("timeout_max_s", "f8"),
        ("moved_at", "f8"),  # when a frame was last queued or a result came
        # After a restart of the switch: slots whose last round it may not know, without an answer about it and with one
        # that may be older, when to repeat, and the next pause.
        ("owed", "i8"),
        ("doubted", "i8"),
        ("owed_at", "f8"),
        ("owed_pause_s", "f8"),
        # What came of it all.
        ("progress", "i8"),  # rounds since Python last looked
        ("failure", "i8"),
        ("failed", "i8"),  # the operation concerned
        ("reason", "i8"),  # why the switch refused
        ("counts", "i8", (len(Count),)),  # by `Count`
        ("finished", "i8", (OPERATIONS,)),  # serial numbers of operations that ended since Python last looked
        ("finished_count", "i8"),
        # Tables: by lane format and exponent what values are multiplied by and what one unit of a lane is worth;
        # Ethernet, IPv4 and UDP headers of frames without and with payload.
        ("scales", "f8", (len(LaneFormat) + 1, 256)),
        ("steps", "f8", (len(LaneFormat) + 1, 256)),
        ("lower", "u1", (2, LOWER_BYTES)),
    ],
    align=True,
)

SLOT: Final = np.dtype(
    [
        ("number", "i8"),  # of the round in flight, or of the next one when idle
        ("operation", "i8"),  # serial number
        ("considered", "i8"),  # the first operation that this slot has not looked at yet
        ("sent_at", "f8"),  # the last transmission
        ("block", "u4"),  # of the round; NO_BLOCK while only the first block is being agreed on
        ("next_block", "u4"),  # what this worker names
        ("column", "u4"),
        ("repeats", "u4"),  # of this round
        ("seen", "u4"),
        ("exponent", "u1"),
        ("next_exponent", "u1"),
        ("phase", "u1"),
        ("stage", "u1"),
        ("named", "u1"),  # 1: somebody named this block, so the result has lanes
        ("payload", "u1"),  # 1: this worker's block is not zero
        ("late", "u1"),  # 1: the round before was repeated, so this worker is behind the others here
        ("held", "u1"),  # 1: the switch has said so, and `seen` is its bitmap
        ("owed", "u1"),  # the switch was restarted, and may not know the last round; 1: no answer since, 2: some answer
    ],
    align=True,
)

OPERATION: Final = np.dtype(
    [
        # What it is, filled in by who submits it.
        ("address", "i8"),  # of the array
        ("size", "i8"),  # values
        ("dtype", "i8"),
        ("operator", "i8"),
        ("format", "i8"),
        ("per_block", "i8"),  # values
        ("mapping", "i8"),  # what a lane holds of a value
        ("infinity", "i8"),  # of floats in order: a magnitude's bits beyond which it is NaN
        ("unsigned", "i8"),
        ("split", "i8"),  # 1: added in parts from the start
        ("dense", "i8"),  # 1: blocks of zeros travel, too
        ("blocks", "i8"),
        ("urgent", "i8"),
        ("share", "f8"),  # what each sum is multiplied by: 1, or 1 / workers for an average
        ("marks", "i8"),  # address of one byte a block, set where an integer sum does not fit
        ("digest", "i8"),  # of what all members must agree in; `submit` adds the serial number
        # How it goes on.
        ("columns", "i8"),
        ("base", "i8"),  # first of the slots that it may use, and how many these are
        ("width", "i8"),
        ("first_slot", "i8"),  # where among these its columns begin
        ("remaining", "i8"),  # columns that have not ended
    ],
    align=True,
)

ROW: Final = np.dtype([("sequence", "i8"), ("length", "i8")], align=True)


class State(NamedTuple):
    """All arrays of one engine."""

    core: Table
    """One `CORE`."""
    slots: Table
    """`SLOT` of each slot in use."""
    operations: Table
    """`OPERATION` by serial number modulo `OPERATIONS`."""
    rows: Table
    """`ROW` of each row of the frame store; row `2 * slot + version`."""
    queue: npt.NDArray[np.int32]
    """Rows that wait for the transport, and their frames' lengths in bytes; `[2, rows]`, `core.queued` of them."""
    kept: npt.NDArray[np.uint32]
    """Sums of low halves as frames have them, `[slots, lanes]`."""
    unanswered: npt.NDArray[np.int64]
    """Sequence of the last transmission of each slot that waits, side by side and quick to search; else `NEVER`."""


def allocate(window: int, lanes: int) -> State:
    """Return the state of an engine that uses `window` slots, all zero but the addresses of kernels."""
    core = np.zeros(1, CORE)
    for name, outlined in BLOCK_KERNELS.items():
        core[name] = outlined.address
    return State(
        core=table(core),
        slots=table(np.zeros(window, SLOT)),
        operations=table(np.zeros(OPERATIONS, OPERATION)),
        rows=table(np.zeros(2 * window, ROW)),
        queue=np.zeros((2, 2 * window), np.int32),
        kept=np.zeros((window, lanes), np.uint32),
        unanswered=np.full(window, NEVER, np.int64),
    )
