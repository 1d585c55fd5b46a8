"""What the event loop knows, as records that its kernels share with Python.

Times are whole picoseconds of virtual time: a byte lasts 20 of them at 400 Gbit/s, and 64 bits hold 106 days.  Indices
of -1 mean none.  Lists of frames are linked through the frames themselves, so that no queue has a size of its own.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.records import Float64, Int64, Record, dtype_of

PICOSECONDS: Final = 1_000_000_000_000
"""Picoseconds in a second."""
NEVER: Final = (1 << 63) - 1
NEAR: Final = 8
"""How many of the next events are kept in their order; a power of two."""
NONE: Final = -1


class Kind(IntEnum):
    """What a node is."""

    SWITCH = 0
    ENGINE = 1
    """A host that runs native code: a worker, a peer or a source of traffic."""
    LISTENER = 2
    """A host whose frames Python reads."""


class Happens(IntEnum):
    """What an event is; its index names the link, the node or the frame."""

    ARRIVAL = 0
    """The first frame of a link arrives."""
    WAKE = 1
    """A host, or a switch with a timer, looks whether it has something to do."""
    LATE = 2
    """A frame that others have overtaken arrives."""
    TAKEN = 3
    """A host has received a frame; it costs the host time."""
    SENT = 4
    """A frame is put on its link."""
    QUEUED = 5
    """A packet that the switch's program has taken through ingress comes to its queue; the index is its place."""
    SERVED = 6
    """A link may send the next packet of the queues before it."""


class Stop(IntEnum):
    """Why the loop returns."""

    OVER = 0
    """The time is over, or the number of events is reached."""
    FINISHED = 1
    """All hosts that were waited for have finished."""
    FAILED = 2
    """A host has given up; `WorldRecord.failed` names it."""
    IDLE = 3
    """There are no events."""
    FULL = 4
    """There may not be enough frames or events for what comes next."""
    LOG = 5
    """The log may not have room for what comes next."""


class Fate(IntEnum):
    """What becomes of a frame on a link."""

    ARRIVES = 0
    LOST = 1
    """The frame was lost by chance, by choice, or because the link was down."""
    LATE = 2
    DROPPED = 3
    """The queue was full."""


class FrameRecord(Record):
    """A frame on a link, in a switch or on a host."""

    length: Int64
    """Bytes of the frame."""
    row: Int64
    """The row that holds the frame, or its body; NONE: the body is in memory of its sender's."""
    head: Int64
    """Bytes of the frame that are in its own head; 0: the whole frame is in the row."""
    body: Int64
    """Where the rest of the frame begins: an offset in the row, or an address if there is no row."""
    next: Int64
    """The frame behind it on its link or in a host's inbox; or the next free one."""
    link: Int64
    departs: Int64
    """When the link has sent the frame's last bit."""
    fate: Int64
    """A `Fate`, and `BEHIND` times the number of frames that found the queue full directly behind it."""


class LinkRecord(Record):
    """One direction of a cable: from a port's queues to the node at the far end.

    With many hosts no record is in the cache.  So the fields that each frame needs lie in three cache lines, of the
    seven that the record fills.
    """

    # When a frame arrives.
    to: Int64
    to_port: Int64
    delay: Int64
    first: Int64
    last: Int64
    """Frames on the way, in the queue or on the cable."""
    departing: Int64
    """The first of these frames that is in the queue."""
    queued: Int64
    queued_bytes: Int64
    # When a frame is put on it.
    bits_per_s: Int64
    overhead: Int64
    """Bytes that each frame takes beside its own: preamble, checksum and gap."""
    busy: Int64
    """When the link has sent everything that waits."""
    queue_bytes: Int64
    queue_frames: Int64
    """Most bytes, and most frames, that wait or are being sent."""
    mark_bytes: Int64
    """A frame that finds more bytes than these in the queue is marked (ECN)."""
    entered: Int64
    bytes: Int64
    """Frames, and bytes, that were put on it."""
    most_queued: Int64
    most_queued_bytes: Int64
    waited: Int64
    """Sum of the times that these frames waited until their first bit was sent."""
    special: Int64
    """1: a field below `tail` is not at its default, or is written while frames pass.  So it is for hosts whose own
    queue may be full: `settled`."""
    logged: Int64
    """1: note each frame; 2: with its bytes."""
    queues: Int64
    """Address of the queues in which packets wait between ingress and egress; 0: packets do not wait there."""
    waiting: Int64
    waiting_bytes: Int64
    """Packets in these queues, and their bytes."""
    # Of links that are not plain.
    tail: Int64
    """The node that sends."""
    loss: Float64
    burst_begins: Float64
    late: Float64
    bucket: Int64
    """How much earlier than its rate allows the link may send: a token bucket (tbf)."""
    chosen_count: Int64
    outage_count: Int64
    seed: Int64
    burst_ends: Float64
    """Probabilities, for each frame, that a burst of losses begins (`burst_begins`), or ends."""
    late_by: Int64
    """Longest time by which a late frame is late."""
    burst_bits_per_s: Int64
    """Rate at which a link with a bucket sends while it is ahead."""
    twice: Float64
    """Probability that a frame arrives twice."""
    steps: Int64
    """Address of pairs, a time and the bits a second from then on; 0: the rate stays."""
    step_count: Int64
    settled: Int64
    """Frames that found the queue full, and whose forerunners have all left it, if the link is `special`."""
    chosen: Int64
    """Address of the numbers of frames that are lost, in order."""
    outages: Int64
    """Address of pairs of times between which the link is down."""
    allowed: Int64
    """When a link with a bucket has earned all that it has sent."""
    in_burst: Int64
    chosen_next: Int64
    dropped: Int64
    lost: Int64
    marked: Int64
    # Of links with queues between ingress and egress.
    queue_count: Int64
    serves_at: Int64
    """When the link looks into its queues next."""
    pace: Int64
    pace_bits_per_s: Int64
    """At most one packet goes in so many picoseconds, and so many bits in a second; 0: no limit."""
    paced_until: Int64
    padding: Annotated[npt.NDArray[np.int64], "i8", 4]


class QueueRecord(Record):
    """A queue between ingress and egress: one of a port's, chosen by the program's `priority`."""

    first: Int64
    last: Int64
    """Places of the first and the last packet; NONE if no packet waits."""
    count: Int64
    bytes: Int64
    most_frames: Int64
    most_bytes: Int64
    """Limits of this queue, beside those of the link; the packet that is being sent does not count here."""
    pace: Int64
    pace_bits_per_s: Int64
    paced_until: Int64
    """Pace of this queue alone; see `LinkRecord`."""
    dropped: Int64


class PlaceRecord(Record):
    """What the loop knows of a place (`switchsum_switch/queues/parking.py`), beside the words that lie there."""

    address: Int64
    link: Int64
    next: Int64
    """The place of the next packet in the queue."""
    at: Int64
    """When its packet came to the queue."""
    marked: Int64
    """1: the packet found so many bytes in the queue that it is marked when it leaves."""


class NodeRecord(Record):
    """A switch or a host.

    The fields that each frame of a worker needs lie in the first three cache lines, of the six that the record fills.
    """

    kind: Int64
    frames: Int64
    """Number of frames that have come."""
    is_slow: Int64
    """1: what comes may not be taken at once; `frame_cost`, `byte_cost`, `pauses` or `batch` is not 0."""
    wakes_at: Int64
    """When the node is woken next."""
    link: Int64
    """Index of a host's link, the first one if it has several."""
    # A host with native code: what it is, and the addresses of its functions.
    own: Int64
    """What a host's functions get first. Of a switch with a timer: the address of the time at which it is called."""
    fetch: Int64
    """Address of the function that fetches memory ahead; 0: there is none."""
    receive: Int64
    poll: Int64
    sent: Int64
    wake: Int64
    lead: Int64
    """Bytes in front of each frame in its row."""
    consumed: Int64
    """Address of the word that says how many frames have left."""
    queue_count: Int64
    """Address of the number of frames in the host's queue."""
    blocked: Int64
    """Address of how many frames wait for their row."""
    finished: Int64
    """Address of how many operations have ended."""
    failure: Int64
    """Address of the reason why the host gave up, 0 as long as it has not."""
    is_waited_for: Int64
    queue_rows: Int64
    queue_lengths: Int64
    """Addresses of the rows of the frames in its queue, and of their lengths."""
    store: Int64
    """Address of the memory of rows, and bytes from one row to the next."""
    stride: Int64
    head: Int64
    """Bytes at a frame's beginning that may change while it is on the link; 0: all of its bytes may."""
    body: Int64
    """Address of the bytes that follow the head of every frame; 0: they are in each frame's row."""
    flags_at: Int64
    repeated: Int64
    """Offset of a frame's flags; with one of the flags `repeated` the frame is copied whole, whatever `head` says."""
    routes: Int64
    """Address of the number of the link over which each frame goes that it sends; 0: all go over `link`."""
    # A switch.
    ports: Int64
    """Address of the index of the link behind each port, NONE where there is none."""
    port_count: Int64
    astray: Int64
    """Frames for a port without a link."""
    astray_port: Int64
    """The last such port."""
    entry: Int64
    """Address of the words of its program's `CodeEntry`."""
    result: Int64
    output: Int64
    """Address of the `OutputRecord`."""
    overflowed: Int64
    """Frames for which the output had no room, or that became longer than frames may be here."""
    pool: Int64
    """Address of the pool (`queues/parking.py`) for packets that wait between ingress and egress; 0: none waits."""
    processing: Int64
    """How long a frame is in the switch before it comes to its queue."""
    # What work costs a host, or a switch with one thread, and when it does none.
    frame_cost: Int64
    byte_cost: Int64
    """Picoseconds of the processor for each frame, and for each byte, received or sent."""
    busy: Int64
    inbox: Int64
    inbox_capacity: Int64
    """Frames that wait for the processor, the one that it works on among them, and most of them."""
    refused: Int64
    """Frames for which the inbox had no room."""
    finished_at: Int64
    """When a host that was waited for finished last."""
    pauses: Int64
    """Address of pairs of times, in order, between which the node does nothing; the last one never comes. 0: none."""
    batch: Int64
    """How long a host that has nothing to take waits for more frames behind the first one."""
    batch_at: Int64
    """When the last batch was, or will be, taken."""
    jumps: Int64
    """Address of pairs, a time and how far the host's clock jumps then; the last one never comes. 0: none."""


class WorldRecord(Record):
    """Everything that the loop knows."""

    now: Int64
    links: Int64
    link_count: Int64
    nodes: Int64
    node_count: Int64
    near_at: Annotated[npt.NDArray[np.int64], "i8", NEAR]
    near_key: Annotated[npt.NDArray[np.int64], "i8", NEAR]
    """Times and keys of the next events, as a ring."""
    near_first: Int64
    near_count: Int64
    events: Int64
    """Address of pairs, the key and the next of each of the other events, all of which come later (`events.py`)."""
    event_count: Int64
    event_capacity: Int64
    free_event: Int64
    """First of the free pairs."""
    heap: Int64
    """Address of pairs, a time and a chain of events at that time."""
    chains: Int64
    """How many of these there are."""
    tails: Int64
    """Address of pairs, a time and the last event of its chain."""
    pushed: Int64
    """Number of events ever added: of two at the same time, the one added first comes first."""
    frames: Int64
    frame_capacity: Int64
    free_frame: Int64
    """First of the free frames."""
    free_frames: Int64
    """How many there are."""
    heads: Int64
    rows: Int64
    """Address of the rows; there are as many as frames."""
    stride: Int64
    frame_bytes: Int64
    """The longest frame."""
    holders: Int64
    """Address of a number for each row: how many frames hold it."""
    next_row: Int64
    """Address of a number for each free row: the next free row."""
    free_row: Int64
    spare: Int64
    """Most frames, and most events, that one event needs."""
    parked: Int64
    """Address of the `PlaceRecord`s."""
    place_count: Int64
    places: Int64
    """Address of the addresses of the free places, a stack that all pools share."""
    free_places: Int64
    """Number of these places."""
    place_spare: Int64
    """Places that one event needs at most."""
    least_place: Int64
    """Places with smaller numbers have become too small, and are not used again."""
    looks_ahead: Int64
    """1: there are so many hosts that memory is fetched before an event needs it."""
    scratch: Int64
    """Address of four words for calls."""
    assembly: Int64
    """Address of a row in which a frame is put together."""
    log: Int64
    log_capacity: Int64
    log_used: Int64
    log_spare: Int64
    """Bytes of the log that one event needs at most."""
    waiting: Int64
    """Hosts that are waited for and have not finished."""
    failed: Int64
    handled: Int64
    """Events so far."""
    host_turns: Int64
    """How often a host has had something to do."""
    digest: Int64
    """Digest of all arrivals: two runs that differ anywhere differ in it."""


class LogRecord(Record):
    """An entry of the log about a frame; the frame's bytes follow, padded to 8."""

    at: Int64
    """When it was put on the link, or came to a listener."""
    departs: Int64
    length: Int64
    index: Int64
    """Index of the link. For a node: -1 less its number."""
    fate: Int64
    stored: Int64
    """Bytes of the frame that follow."""


FRAME: Final = dtype_of(FrameRecord)
LINK: Final = dtype_of(LinkRecord)
QUEUE: Final = dtype_of(QueueRecord)
PLACE: Final = dtype_of(PlaceRecord)
NODE: Final = dtype_of(NodeRecord)
WORLD: Final = dtype_of(WorldRecord)
LOG: Final = dtype_of(LogRecord)

FRAME_BYTES: Final = FRAME.itemsize
LINK_BYTES: Final = LINK.itemsize
NODE_BYTES: Final = NODE.itemsize
LOG_BYTES: Final = LOG.itemsize
BEHIND: Final = 8
HEAD_BYTES: Final = 192
"""Bytes of a head, lead included. A replica whose head is longer is kept whole."""
