"""What the worker engine knows, as arrays that its kernels share with Python.

Numbers are 64 bits wide and signed, since numba turns a mix of such with unsigned ones into floats; only a slot's are
as narrow as they may be, so that it is one cache line.  Times are seconds of whatever clock the driver reads.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import integers_at
from switchsum_switch.kernels.records import Float64, Int64, Record, Table, UInt8, UInt32, dtype_of, table
from switchsum_switch.wires.headers import LOWER_BYTES

from . import exact, integers, kernels, narrow
from .call_times import CallTimes, Integers
from .policies.delivery import Delivery
from .policies.flight import Flight
from .policies.losses import Doubt, Order
from .policies.pacing import Pace
from .policies.round_trips import RoundTrips
from .policies.silence import Silence
from .policies.timer import Timer
from .policies.window import Window

Octets = npt.NDArray[np.uint8]

OPERATIONS: Final = 1024
"""Operations that may be under way; a power of two is not needed, a bound is: the oldest one keeps its record."""


NEVER: Final = np.iinfo(np.int64).max
"""Larger than every sequence number."""
MOST_TREES: Final = 8


class Phase(IntEnum):
    """What a slot is doing."""

    IDLE = 0
    """No operation has a column for it."""
    WAITING = 1
    """Its contribution is with the transport; the result is to come."""
    BLOCKED = 2
    """The contribution cannot be packed yet, for the transport still reads the row, or the window is full."""


class Outstanding(IntEnum):
    """Whether a switch that was restarted may lack a slot's last round; see `switchsum_host.engine.rules`."""

    NOTHING = 0
    UNANSWERED = 1
    """The switch may lack the round, and no answer about it has come since."""
    ANSWERED = 2
    """The switch may lack the round; an answer about it has come, perhaps from before the restart."""


class Held(IntEnum):
    """Whether the switch has said that it has a slot's contribution and waits for others."""

    UNKNOWN = 0
    NOW = 1
    """The switch has said so, and `seen` is its bitmap."""
    EARLIER = 2
    """The switch has said so, perhaps before another rank left the job."""


class Body(IntEnum):
    """What follows the headers of a contribution."""

    NONE = 0
    """Nothing, or padding."""
    LANES = 1
    NARROW = 2
    """Half of each lane, which the switch widens."""


WHOLE: Final = 0
"""A slot's stage: its block is added as it is.  From 1 on: that part of it (see `switchsum_host.engine.integers`); with
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
    """A second result of a slot's last round."""
    STALE = 4
    """A frame about a round before the slot's last one."""
    FOREIGN = 5
    """The frame is not from the switch to this member of this job, or its round was never contributed to."""
    BROKEN = 6
    """Lengths, version or kind are wrong."""
    UNEXPECTED = 7
    """A result that contradicts what was contributed; also everything after a failure."""
    FORGED = 8
    """The frame has another cookie than this member's."""
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
    MARKED = 18
    """Results that said that congestion was met."""
    WITHHELD = 19
    """Contributions that had to wait for the window."""
    TAKEN = 20
    """Results that the job's fallback has added, since the shared slot was taken."""


BLOCK_KERNELS: Final = (
    *(kernels.scan, kernels.pack, kernels.unpack, kernels.fill_nan),
    *(narrow.pack_narrow, narrow.unpack_narrow, narrow.limit),
    *(exact.pack_exact, exact.unpack_exact),
    *(integers.pack_integers, integers.pack_nibbles, integers.pack_part),
    *(integers.unpack_integers, integers.unpack_part),
)
"""Kernels that the state machine calls by address. Each has a field of its name in `BlockKernels`."""


class BlockKernels(Record):
    """Addresses of the kernels for blocks."""

    scan: Int64
    pack: Int64
    pack_narrow: Int64
    pack_exact: Int64
    pack_integers: Int64
    pack_nibbles: Int64
    pack_part: Int64
    unpack: Int64
    unpack_narrow: Int64
    unpack_exact: Int64
    unpack_integers: Int64
    unpack_part: Int64
    fill_nan: Int64
    limit: Int64


class MemberRecord(Record):
    """Who this member is, and what follows from the job; constant."""

    job: Int64
    epoch: Int64
    rank: Int64
    workers: Int64
    lanes_per_frame: Int64
    window: Int64
    """Slots in use."""
    first_slot: Int64
    """Number of the first slot in frames."""
    cookie: Annotated[Integers, "i8", 2]
    """High and low 32 bits of the cookie."""
    switch_mac: Int64
    switch_ip: Int64
    switch_port: Int64
    own_ip: Int64
    own_port: Int64
    in_tree: Int64
    """1: its switch hands partial sums on to another one, so that answers to repeats come from nearer than results."""
    asks_later: Int64
    """1: another member of its switch, which passes repeats on to one above, repeats before it (recovery.py)."""
    seed: Int64
    """32 bits of this member's own, for rounding at random."""
    bodies: Annotated[Integers, "i8", len(Body)]
    """Bytes behind the header, by `Body`."""
    shared_tree: Int64
    """The job's last tree, if it shares that tree's slots with others, so that operations claim them first; else -1."""
    own: Int64
    """Slots in front of the shared ones, which are the job's own."""
    shared_shift: Int64
    """How far the numbers of shared slots in frames are from those that would follow on the job's own slots."""
    bit: Int64
    """This member's bit in bitmaps."""
    takes_narrow: Int64
    """1: the switch widens values of 8 and of 4 bits."""
    lower: Annotated[Octets, "u1", len(Body), LOWER_BYTES]
    """Ethernet, IPv4 and UDP headers by `Body`."""


class SendingState(Record):
    """The rows that are sent, and how far the link is with them."""

    lead: Int64
    store: Int64
    """Address of the rows that are sent."""
    stride: Int64
    checksum: Int64
    """1: fill in UDP checksums."""
    kept: Int64
    """Address of the array `kept`."""
    sequence: Int64
    """Frames that were ever queued."""
    consumed: Int64
    """How many of these frames nobody reads any more."""
    queued: Int64
    """How many of these frames are still in the queue."""


class RecoveryState(Record):
    """What loss recovery knows beside its policies, see recovery.py."""

    timer: Timer
    doubt: Doubt
    threshold: Int64
    """So many frames later must have been sent whose results say that one is lost."""
    arrived: Int64
    """The highest sequence whose result has come, on any path."""
    searched: Int64
    """`arrived` when slots were last searched."""
    timed_at: Float64
    """When a round was last timed."""
    common: Int64
    """The newest operation of which a result has come, so that all workers have begun it."""
    common_at: Float64
    """When that first result came."""
    reordered_at: Float64
    """When the first frame has waited for the reordering window; infinity: there is none."""
    look_at: Float64
    """When to look between time-outs at flights that may be lost, and at trees that are silent; infinity: never."""
    paced_at: Float64
    """When the first contribution may leave that waits for its time alone; infinity: there is none."""
    spurious: Int64
    """Repeats that proved needless, for the result came sooner than any answer to them."""
    has_lanes: Int64
    """1: a contribution with lanes has been sent."""
    moved_at: Float64
    """When a frame was last queued or a result came."""
    unanswered: Int64
    """Slots whose last round is outstanding since a restart of the switch, without an answer about it."""
    answered: Int64
    """Slots whose last round is outstanding, with an answer that may be older than the restart."""
    resend_at: Float64
    """When to repeat these rounds."""
    resend_pause_s: Float64
    """The pause from then to the next repeat of these rounds."""


class PathState(Record):
    """A path of this worker: a tree of its job, or behind that of shared slots the way over the fallback."""

    window: Window
    trips: RoundTrips
    order: Order
    silence: Silence
    flight: Flight
    delivery: Delivery
    pace: Pace
    in_flight: Int64
    """Slots that wait for a result, or for their row alone."""
    slots: Int64
    """The tree's slots."""
    base: Int64
    """Where in the array `withheld` the path's heap of slots begins."""
    withheld: Int64
    """How many slots are in the heap."""


class Progress(Record):
    """How far the operations are, and what came of it all."""

    submitted: Int64
    """Operations that were ever submitted: the serial number of the next one."""
    oldest: Int64
    """Serial number of the oldest one that is not complete."""
    turn: Int64
    """Slot where the next one's columns begin."""
    waiting: Int64
    """Slots in phase WAITING."""
    blocked: Int64
    """Slots in phase BLOCKED whose contribution waits for its row; those that are withheld do not count."""
    rounds: Int64
    """Rounds since Python last looked."""
    failure: Int64
    failed: Int64
    """Serial number of the operation that failed."""
    reason: Int64
    """Why the switch refused."""
    counts: Annotated[Integers, "i8", len(Count)]
    """What has happened so far, by `Count`."""
    finished_count: Int64
    finished: Annotated[Integers, "i8", OPERATIONS]
    """Serial numbers of operations that ended since Python last looked, so many."""


class Core(Record):
    """The engine's own record."""

    kernels: BlockKernels
    member: MemberRecord
    sending: SendingState
    recovery: RecoveryState
    progress: Progress
    calls: CallTimes


class Slot(Record):
    """A slot in use."""

    number: Int64
    """Number of the round in flight, or of the next one when idle."""
    operation: Int64
    """Serial number of the slot's operation."""
    considered: Int64
    """The first operation that this slot has not looked at yet."""
    sent_at: Float64
    """When the slot's frame was sent last."""
    block: UInt32
    """Block of the round. NO_BLOCK: only the first block is being agreed on."""
    next_block: UInt32
    """Block that this worker names as its next one."""
    column: UInt32
    repeats: UInt32
    """Number of repeats in this round."""
    seen: UInt32
    exponent: UInt8
    next_exponent: UInt8
    phase: UInt8
    stage: UInt8
    named: UInt8
    """1: somebody named this block, so the result has lanes."""
    payload: UInt8
    """1: this worker's block is not zero."""
    late: UInt8
    """1: the round before was repeated, so this worker is behind the others here."""
    held: UInt8
    """A `Held`."""
    outstanding: UInt8
    """An `Outstanding`."""
    tree: UInt8
    """Number of the job's tree to which the slot belongs."""
    withheld: UInt8
    """1: its contribution waits for the window."""
    way: UInt8
    """1: the result comes from the fallback, which jobs that share slots have; only in slots of their shared tree."""
    passes: UInt8
    """1: the fallback adds the contribution, so that it counts in the window of that way."""


class OperationRecord(Record):
    """An operation: what it is, and how far it is."""

    # What it is, filled in by who submits it.
    address: Int64
    """Address of the array."""
    size: Int64
    """Values."""
    dtype: Int64
    operator: Int64
    format: Int64
    per_block: Int64
    """Values."""
    mapping: Int64
    """Kind of mapping from a value to a lane."""
    infinity: Int64
    """Bits of the largest magnitude of floats in order. Beyond them a value is NaN."""
    unsigned: Int64
    split: Int64
    """1: added in parts from the start."""
    dense: Int64
    """1: blocks of zeros travel, too."""
    blocks: Int64
    share: Float64
    """Factor of each sum: 1, or 1 / workers for an average."""
    scale: Float64
    """Factor of values of floats below 1, as they become lanes."""
    step: Float64
    """What one unit of a lane of such values is worth in the result."""
    part: Int64
    """Number of values in each rank's part of the array. Results of a part are for its rank alone, or for all others.
    0: all results are for all ranks."""
    root: Int64
    """Rank that the first part belongs to."""
    gathers: Int64
    """1: the results of a part are for all other ranks."""
    marks: Int64
    """Address of one byte a block, set where an integer sum does not fit."""
    digest: Int64
    """Digest of all that members must agree in. `submit` adds the serial number."""
    # How it goes on.
    columns: Int64
    first_slot: Int64
    """First slot of its columns."""
    remaining: Int64
    """Columns that have not ended."""
    kept: Int64
    """Index of the operation in `CallTimes`."""


class Row(Record):
    """A row of the frame store."""

    first_at: Float64
    """When its frame was first sent."""
    repeated_at: Float64
    """When it was sent again, if that was once; else 0."""
    first: Int64
    """Sequence of the first transmission of its frame."""
    sequence: Int64
    """Sequence of the last transmission of its frame."""
    length: Int64
    """Length of that frame."""


class Arrays(Record):
    """Addresses of the arrays of a `State`, in its order, and what their shapes follow from."""

    core: Int64
    slots: Int64
    operations: Int64
    rows: Int64
    queue: Int64
    kept: Int64
    last_sent: Int64
    withheld: Int64
    paths: Int64
    window: Int64
    lanes_per_frame: Int64


CORE: Final = dtype_of(Core)
SLOT: Final = dtype_of(Slot)
OPERATION: Final = dtype_of(OperationRecord)
ROW: Final = dtype_of(Row)
PATH: Final = dtype_of(PathState)
ARRAYS: Final = dtype_of(Arrays)


class State(NamedTuple):
    """All arrays of one engine."""

    core: Table[Core]
    """Array of one: the engine's own record."""
    slots: Table[Slot]
    """One record for each slot in use."""
    operations: Table[OperationRecord]
    """Operations by serial number modulo `OPERATIONS`."""
    rows: Table[Row]
    """Rows of the frame store: row `2 * slot + version`."""
    queue: npt.NDArray[np.int32]
    """Rows that wait for the transport, and their frames' lengths in bytes; `[2, rows]`, `core.queued` of them."""
    kept: npt.NDArray[np.uint32]
    """Sums of low halves as frames have them, `[slots, lanes_per_frame]`."""
    last_sent: npt.NDArray[np.int64]
    """Sequence of the last transmission of each slot that waits, side by side and quick to search; else `NEVER`."""
    withheld: npt.NDArray[np.int64]
    """A heap for each tree of the slots whose contributions are withheld, and one for the way over the fallback."""
    paths: Table[PathState]
    """One record for each tree; that behind the tree of shared slots is for the way over the fallback."""


def allocate(window: int, lanes_per_frame: int, zeros: Callable[..., npt.NDArray[Any]] = np.zeros) -> State:
    """Return the state of an engine that uses `window` slots, all zero but the addresses of kernels.

    `zeros` makes the arrays that are used for every frame: those of a thousand engines are best side by side, and what
    a frame needs of an engine on few pages.
    """
    last_sent, queue = zeros(window, np.int64), zeros((2, 2 * window), np.int32)
    paths, core = zeros(MOST_TREES, PATH), zeros(1, CORE)
    for kernel in BLOCK_KERNELS:
        core["kernels"][kernel.__qualname__] = kernel.address
    last_sent[:] = NEVER
    return State(
        core=table(core),
        slots=table(zeros(window, SLOT)),
        operations=table(zeros(OPERATIONS, OPERATION)),
        rows=table(zeros(2 * window, ROW)),
        queue=queue,
        kept=np.zeros((window, lanes_per_frame), np.uint32),
        last_sent=last_sent,
        withheld=np.zeros(2 * window, np.int64),
        paths=table(paths),
    )


def arrays_of(state: State, record: npt.NDArray[np.void] | None = None) -> npt.NDArray[np.void]:
    """Return the record by which kernels find a state, `[1]`; it is a given one, or new."""
    record = np.zeros(1, ARRAYS) if record is None else record
    record[0] = *map(address_of, state), len(state.slots), state.kept.shape[1]
    return record


@inner
def state_at(arrays: int) -> State:
    """Return the state of an engine, whose `Arrays` are at an address."""
    here: Arrays = carray(pointer(arrays), (1,), ARRAYS)[0]
    slots, rows = here.window, 2 * here.window
    return State(
        carray(pointer(here.core), (1,), CORE),
        carray(pointer(here.slots), (slots,), SLOT),
        carray(pointer(here.operations), (OPERATIONS,), OPERATION),
        carray(pointer(here.rows), (rows,), ROW),
        carray(pointer(here.queue), (2, rows), np.int32),
        carray(pointer(here.kept), (slots, here.lanes_per_frame), np.uint32),
        integers_at(here.last_sent, slots),
        integers_at(here.withheld, rows),
        carray(pointer(here.paths), (MOST_TREES,), PATH),
    )
