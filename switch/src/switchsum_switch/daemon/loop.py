"""The data plane's loop over shared-memory ports, interfaces, UDP peers and the UDP port, as one kernel without Python.

It does what `SwitchProcess.run` does, sleep included: collect a batch of frames, run the program, send the output.
It returns when something has to be done that a kernel cannot do:

- frames are for the CPU port, or for ports of several kinds at once (`UNSENT`);
- an interface does not take a frame now, which has to wait (`HELD`);
- a worker connects or disconnects, or a control-plane thread wants the lock: each makes a descriptor readable on which
  the loop sleeps (`DONE`);
- it has run for a while without sleeping, and other ports are to have their turn (`DONE`).

`SwitchProcess._run_loop` then does the rest in Python and calls it again.
"""

from __future__ import annotations

import select
from typing import Final

import numpy as np

from switchsum_switch.kernels.decorators import inner, prepare
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import bytes_at, call, integers_at, longs_at
from switchsum_switch.kernels.outlined import Outlined
from switchsum_switch.kernels.records import Int64, Record, Table, dtype_of, table
from switchsum_switch.process.patience import FIELDS, new_patience, note_wait
from switchsum_switch.process.system import READY, monotonic, poll, silence_bell, watch
from switchsum_switch.process.trace import NO_SPANS, Span, Spans, is_traced, note

from ..execution.entry import ENTRY_WORDS, call_program
from ..ports.base import BATCH, Batch, BatchRecord, Words
from ..ports.operations import GROUP, GroupRecord, Indices, Operations, output_at
from ..ports.packet import PacketPorts
from ..ports.peers import PeerPorts
from ..ports.port_set import PortSet
from ..ports.shm import ShmPorts
from ..ports.udp import UdpPort
from ..queues.batch import OUTPUT, CodeEntry, Output, OutputRecord
from ..queues.queues import PORTS
from ..queues.replicas import complete
from ..state.clock import clock_us
from .pace import FIELDS as PACE_FIELDS
from .pace import NAP_NS, Pace, is_fast, new_pace, note_frames

TURNS: Final = 64
"""A loop that does not sleep returns after this many batches, so that other ports have their turn."""
LONGEST_RUN_S: Final = 0.05
"""A loop returns after this time, so that Python drops links that a worker has corrupted."""
LONGEST_SLEEP_NS: Final = 1_000_000_000

DONE: Final = 0
"""All frames that were collected have been run and sent."""
UNSENT: Final = 1
"""The output is for ports of several kinds, or did not fit, and is not sent.  The batch may have frames left."""
HELD: Final = 2
"""Some frames of the output have to wait for their interface.  The batch may have frames left."""

_FAILED: Final = (select.POLLHUP | select.POLLERR) << 16


class LoopRecord(Record):
    """What the loop works on; addresses, where nothing else is said."""

    groups: Int64
    """Addresses of the groups' records, in the order in which frames are collected."""
    known: Int64
    """How many groups there are."""
    sleeper: Int64
    """Address of the record of the group that is looked at before the loop sleeps. 0: there is none."""
    batch: Int64
    output: Int64
    entry: Int64
    """Address of the words of a `CodeEntry`."""
    result: Int64
    clock: Int64
    """Address of the words of the clock that the program sees."""
    pace: Int64
    patience: Int64
    """Address of the record that says how long the loop looks for frames before it sleeps."""
    watched: Int64
    """Address of the descriptors on which the loop sleeps, in the form that poll(2) takes."""
    watching: Int64
    """How many these are."""
    bells: Int64
    """How many of them, the first ones, are bells that workers ring; 0 or 1."""
    mine: Int64
    """How many of them, the first ones, say that the loop has frames; any other one that is readable ends the loop."""
    spans: Int64
    span_rows: Int64
    ran: Int64
    """Number of frames of the batch that had run when the loop stopped."""
    left: Int64
    """Frames of the output that have to wait for their interface; their places are in `Output.held`."""


LOOP: Final = dtype_of(LoopRecord)


_COVERED: Final = (PacketPorts, PeerPorts, UdpPort, ShmPorts)


class Loop:
    """The loop over the ports of a set whose kinds it covers; it has at least one of them."""

    def __init__(self, ports: PortSet, spans: Spans = NO_SPANS) -> None:
        covered = [group for group in ports.groups if isinstance(group, _COVERED)]
        # Sockets come first: each gives a bounded number of frames, while workers in memory might fill every batch.
        covered.sort(key=lambda group: not group.operations.kind.is_wire)
        self.groups: list[Operations] = [group.operations for group in covered]
        """The operations of the ports, in the order in which frames are collected."""
        self._packet = next((group for group in covered if isinstance(group, PacketPorts)), None)
        sleeper = next((group for group in covered if isinstance(group, ShmPorts)), None)
        bells = [] if sleeper is None else [sleeper.bell]
        mine = [*bells, *(one for group in covered if not isinstance(group, ShmPorts) for one in group.sockets())]
        watched = watch([*mine, *(other for other in ports.descriptors() if other not in mine)])
        groups = np.array([group.address for group in self.groups], np.int64)
        patience, pace, clock = new_patience(), new_pace(), ports.table.clock.words
        self._keep = covered, watched, groups, patience, pace, clock, spans
        self._record: Table[LoopRecord] = table(np.zeros(1, LOOP))
        record = self._record
        record["groups"], record["known"] = address_of(groups), len(groups)
        record["sleeper"] = 0 if sleeper is None else sleeper.operations.address
        record["clock"], record["pace"], record["patience"] = map(address_of, (clock, pace, patience))
        record["watched"], record["watching"] = address_of(watched), len(watched)
        record["bells"], record["mine"] = len(bells), len(mine)
        record["spans"], record["span_rows"] = address_of(spans), len(spans)
        self._address = address_of(record.view(np.int64))

    @staticmethod
    def covers(ports: PortSet) -> bool:
        """Return whether the set has ports that a loop can serve."""
        return any(isinstance(group, _COVERED) for group in ports.groups)

    def warm_up(self, output: Output) -> None:
        """Compile the kernel before there is a program; the caller makes a descriptor readable, so that it returns."""
        full = Batch(0)  # frames may have arrived already, and there is no program to run them
        self.run(CodeEntry(np.zeros(ENTRY_WORDS, np.int64), np.zeros(2, np.uint64)), full, output)
        prepare(complete, 0, output.addresses, output.lengths, output.heads, output.bodies)

    @property
    def is_blocked(self) -> bool:
        """Whether frames wait for an interface; Python sends these, and the loop must not run meanwhile."""
        return self._packet is not None and self._packet.is_blocked

    def run(self, entry: CodeEntry, batch: Batch, output: Output) -> int:
        """Move frames by way of `batch` and `output`; return DONE, UNSENT or HELD.

        Unless it returns DONE, `batch` has frames of which the first `ran` have been run.
        """
        record = self._record
        record["batch"], record["output"] = batch.address, output.address
        record["entry"], record["result"] = address_of(entry.arguments), address_of(entry.result)
        ended = run(self._address)
        output.count, output.dropped = entry.result.tolist()
        batch.count = int(batch.record["count"][0])
        return ended

    @property
    def ran(self) -> int:
        """How many frames of the batch have run."""
        return int(self._record["ran"][0])

    def hold(self, output: Output) -> None:
        """Queue the frames that have to wait for their interface, after `run` has returned HELD."""
        assert self._packet is not None
        held: Indices = output.held[: int(self._record["left"][0])]
        ports = output.ports[held]
        self._packet.hold(ports, np.zeros(len(held), np.uint32), output.addresses[held], output.lengths[held])


@Outlined
def run(loop: int) -> int:
    """Move frames until something has to be done that a kernel cannot do; return DONE, UNSENT or HELD."""
    here: LoopRecord = carray(pointer(loop), (1,), LOOP)[0]
    batch: BatchRecord = carray(pointer(here.batch), (1,), BATCH)[0]
    result, entry, clock = longs_at(here.result, 2), integers_at(here.entry, ENTRY_WORDS), integers_at(here.clock, 2)
    pace = carray(pointer(here.pace), (PACE_FIELDS,), np.float64)
    spans = carray(pointer(here.spans), (here.span_rows, 5), np.int64)
    result[:] = 0
    batch.count = here.ran = here.left = 0
    turns = 0
    traced = is_traced(spans)
    began = monotonic()
    until = began + LONGEST_RUN_S
    while turns < TURNS and began < until:
        began = monotonic()
        _collect(here, batch, pace, began)
        count = batch.count
        if count == 0:
            if not _sleep(here):
                return DONE
            if is_fast(pace):
                poll(0, 0, NAP_NS)
            if traced:
                note(spans, Span.WAIT, began, monotonic(), 0, 0)
            turns = 0
            continue
        turns += 1
        ran = went = 0
        while ran < count:
            done = call_program(
                entry,
                batch.addresses + 8 * ran,
                batch.lengths + 4 * ran,
                batch.ports + 4 * ran,
                count - ran,
                clock_us(clock, began),
            )
            ran += done
            here.ran = ran
            made = int(np.int64(result[0]))
            ended = _transmit(here, made, done)
            if ended != DONE:
                return ended
            went += made
        _release(here)
        batch.count = 0
        if traced:
            note(spans, Span.PROGRAM, began, monotonic(), count, went)
    return DONE


@inner
def _collect(here: LoopRecord, batch: BatchRecord, pace: Pace, now: float) -> None:
    """Fill a batch."""
    groups, came = integers_at(here.groups, here.known), 0
    for address in groups:
        group: GroupRecord = carray(pointer(address), (1,), GROUP)[0]
        batch.count = call(group.collect, address, here.batch)
        if group.is_wire != 0:
            came = batch.count
    note_frames(pace, came, now)


@inner
def _transmit(here: LoopRecord, made: int, done: int) -> int:
    """Send what the program has made of `done` frames, if all of it is for ports of one kind; return why not, or DONE.

    `done` is 0 if not even one frame's copies fit the output: Python makes a larger one.
    """
    output: OutputRecord = carray(pointer(here.output), (1,), OUTPUT)[0]
    output.count = made
    ports, addresses, lengths, heads, bodies, _ = output_at(here.output)
    owner = _owner(here, ports) if done > 0 else 0
    # The common case, all output for workers of this machine, sends heads and one shared body.  Other ports need whole
    # frames.
    group: GroupRecord = carray(pointer(owner if owner != 0 else integers_at(here.groups, 1)[0]), (1,), GROUP)[0]
    if owner == 0 or group.takes_bodies == 0:
        complete(made, addresses, lengths, heads, bodies)
    if owner == 0:
        return UNSENT
    here.left = call(group.transmit, owner, here.output)
    return HELD if here.left > 0 else DONE


@inner
def _owner(here: LoopRecord, ports: Words) -> int:
    """Return the address of the record of the group that has all of some ports; 0: there is none."""
    groups = integers_at(here.groups, here.known)
    for address in groups:
        group: GroupRecord = carray(pointer(address), (1,), GROUP)[0]
        owned, mine = bytes_at(group.owned, PORTS), True
        for port in ports:
            mine = mine and port < PORTS and owned[port] != 0
            if not mine:
                break
        if mine:
            return int(address)
    return 0


@inner
def _release(here: LoopRecord) -> None:
    """Give the memory of the batch back."""
    groups = integers_at(here.groups, here.known)
    for address in groups:
        group: GroupRecord = carray(pointer(address), (1,), GROUP)[0]
        if group.release != 0:
            call(group.release, address)


@inner
def _sleep(here: LoopRecord) -> bool:
    """Look for frames for a short while, then sleep until some arrive; return False if Python has something to do."""
    began, patience = monotonic(), carray(pointer(here.patience), (FIELDS,), np.float64)
    first = integers_at(here.groups, 1)[0]
    sleeper: GroupRecord = carray(pointer(here.sleeper if here.sleeper != 0 else first), (1,), GROUP)[0]
    if here.sleeper != 0:
        # Only memory can be looked at without a system call; with sockets among the ports the loop sleeps at once.
        looked = here.mine == here.bells and call(sleeper.look, here.sleeper, here.patience) != 0
        if looked or call(sleeper.fall_asleep, here.sleeper) == 0:
            note_wait(patience, True, monotonic() - began)
            return True
    watched = carray(pointer(here.watched), (here.watching, 2), np.int32)
    ready = poll(here.watched, here.watching, LONGEST_SLEEP_NS)
    if here.sleeper != 0:
        call(sleeper.awake, here.sleeper)
    note_wait(patience, False, monotonic() - began)
    if ready < 1:
        return False
    for i in range(len(watched)):
        if watched[i, 1] & (READY if i >= here.mine else _FAILED):
            return False  # frames that the bell was rung for are found without it, when the loop runs again
    if here.bells > 0 and watched[0, 1] & READY:
        silence_bell(watched[0, 0])
    return True
