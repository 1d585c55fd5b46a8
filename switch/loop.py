"""The data plane's loop over shared-memory ports, interfaces and the UDP port, as one kernel without Python.

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
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum.native.kernels.decorators import inner, kernel, prepare
from switchsum.native.process.patience import Patience, new_patience, note_wait
from switchsum.native.process.system import READY, Watched, monotonic, poll, silence_bell, watch
from switchsum.native.process.trace import NO_SPANS, Span, Spans, is_traced, note

from .batch import CodeEntry, Output
from .clock import ClockWords, clock_us
from .entry import ENTRY_WORDS, call_program
from .pace import NAP_NS, Pace, is_fast, new_pace, note_frames
from .ports import packet_kernels, shm_kernels, udp_kernels
from .ports.base import Addresses, Batch, PortCounters, Words
from .ports.packet import PacketPorts
from .ports.packet_kernels import PacketWords
from .ports.port_set import PortSet
from .ports.shm import ShmPorts
from .ports.shm_kernels import Indices, ShmWords
from .ports.udp import UdpPort
from .ports.udp_kernels import UdpWords
from .replicas import complete

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


class _Watching(NamedTuple):
    """The descriptors on which the loop sleeps, in the form that poll(2) takes."""

    descriptors: Watched
    address: int
    bells: int
    """How many of them, the first ones, are bells that workers ring; 0 or 1."""
    mine: int
    """How many of them, the first ones, say that the loop has frames; any other one that is readable ends the loop."""
    patience: Patience
    """How long the loop looks for frames before it sleeps."""


class _Columns(NamedTuple):
    """The columns of a `Batch`."""

    addresses: Addresses
    lengths: Words
    ports: Words


class _Call(NamedTuple):
    """The call of the program and the columns of its output; see `CodeEntry` and `Output`."""

    entry: npt.NDArray[np.int64]
    result: npt.NDArray[np.uint64]
    ports: Words
    addresses: Addresses
    lengths: Words
    heads: Words
    bodies: Addresses
    clock: ClockWords
    """The time that the program sees."""


class _Stopped(NamedTuple):
    """Where the loop stopped."""

    left: npt.NDArray[np.int64]
    """Frames of the batch, how many of them ran, frames in `held`."""
    held: Indices
    """Places in the output of the frames that have to wait for their interface."""


class Loop:
    """The loop over the shared-memory ports, interfaces and UDP port of a set of ports; it has at least one of them."""

    def __init__(self, ports: PortSet, spans: Spans = NO_SPANS) -> None:
        self._spans = spans
        self._shm = next((group for group in ports.groups if isinstance(group, ShmPorts)), None)
        self._packet = next((group for group in ports.groups if isinstance(group, PacketPorts)), None)
        self._udp = next((group for group in ports.groups if isinstance(group, UdpPort)), None)
        self._counters = ports.table.counters
        self._clock = ports.table.clock.words
        bells = [] if self._shm is None else [self._shm.bell]
        mine = bells if self._packet is None else [*bells, *self._packet.sockets()]
        mine = mine if self._udp is None else [*mine, *self._udp.descriptors()]
        watched = watch([*mine, *(other for other in ports.descriptors() if other not in mine)])
        self._watching = _Watching(watched, watched.ctypes.data, len(bells), len(mine), new_patience())
        self._stopped = _Stopped(np.zeros(3, np.int64), np.zeros(0, np.int32))
        self._pace = new_pace()

    @staticmethod
    def covers(ports: PortSet) -> bool:
        """Return whether the set has ports that a loop can serve."""
        return any(isinstance(group, (ShmPorts, PacketPorts, UdpPort)) for group in ports.groups)

    def warm_up(self, output: Output) -> None:
        """Compile the kernel before there is a program; the caller makes a descriptor readable, so that it returns."""
        no_room = Batch(0)  # frames may have arrived already, and there is no program to run them
        self.run(CodeEntry(np.zeros(ENTRY_WORDS, np.int64), np.zeros(2, np.uint64)), no_room, output)
        prepare(complete, 0, output.addresses, output.lengths, output.heads, output.bodies)

    @property
    def is_blocked(self) -> bool:
        """Whether frames wait for an interface; Python sends these, and the loop must not run meanwhile."""
        return self._packet is not None and self._packet.is_blocked

    def run(self, entry: CodeEntry, batch: Batch, output: Output) -> int:
        """Move frames by way of `batch` and `output`; return DONE, UNSENT or HELD.

        Unless it returns DONE, `batch` has frames of which the first `ran` have been run.
        """
        shm, packet, udp = self._shm, self._packet, self._udp
        if len(self._stopped.held) < len(output.ports):
            self._stopped = self._stopped._replace(held=np.empty(len(output.ports), np.int32))
        ended = _run(
            None if shm is None else shm.words,
            None if packet is None else packet.words,
            None if udp is None else udp.words,
            self._counters,
            _Columns(batch.addresses, batch.lengths, batch.ports),
            _Call(
                *(entry.arguments, entry.result, output.ports, output.addresses, output.lengths),
                *(output.heads, output.bodies, self._clock),
            ),
            self._watching,
            self._pace,
            self._stopped,
            self._spans,
        )
        output.count, output.dropped = entry.result.tolist()
        batch.count = int(self._stopped.left[0])
        return int(ended)

    @property
    def ran(self) -> int:
        """How many frames of the batch have run."""
        return int(self._stopped.left[1])

    def hold(self, output: Output) -> None:
        """Queue the frames that have to wait for their interface, after `run` has returned HELD."""
        assert self._packet is not None
        held = self._stopped.held[: int(self._stopped.left[2])]
        ports = output.ports[held]
        self._packet.hold(ports, np.zeros(len(held), np.uint32), output.addresses[held], output.lengths[held])


# A kind of port that a switch does not have is None, for which numba compiles no code: a loop over shared memory alone
# compiles in a fifth of the time of all three.
@kernel
def _run(
    shm: ShmWords | None,
    packet: PacketWords | None,
    udp: UdpWords | None,
    counters: PortCounters,
    batch: _Columns,
    program: _Call,
    watching: _Watching,
    pace: Pace,
    stopped: _Stopped,
    spans: Spans,
) -> int:
    result, left = program.result, stopped.left
    result[:] = 0
    left[:] = 0
    turns = 0
    traced = is_traced(spans)
    began = monotonic()
    until = began + LONGEST_RUN_S
    while turns < TURNS and began < until:
        began = monotonic()
        count = _collect(shm, packet, udp, counters, batch, pace, began)
        if count == 0:
            if not _sleep(shm, watching):
                return DONE
            if is_fast(pace):
                poll(0, 0, NAP_NS)
            if traced:
                note(spans, Span.WAIT, began, monotonic(), 0, 0)
            turns = 0
            continue
        turns += 1
        left[0] = count
        ran = went = 0
        while ran < count:
            done = call_program(
                program.entry,
                int(batch.addresses[ran:].ctypes.data),
                int(batch.lengths[ran:].ctypes.data),
                int(batch.ports[ran:].ctypes.data),
                count - ran,
                clock_us(program.clock, began),
            )
            ran += done
            left[1] = ran
            ended = _transmit(shm, packet, udp, counters, program, done, stopped)
            if ended != DONE:
                return ended
            went += int(np.int64(result[0]))
        _release(shm)
        left[0] = 0
        if traced:
            note(spans, Span.PROGRAM, began, monotonic(), count, went)
    return DONE


@kernel
def _collect(
    shm: ShmWords | None,
    packet: PacketWords | None,
    udp: UdpWords | None,
    counters: PortCounters,
    batch: _Columns,
    pace: Pace,
    now: float,
) -> int:
    """Fill a batch; return how many frames it has.

    Sockets come first: each gives a bounded number of frames, while shared-memory workers might fill every batch.
    """
    columns = batch.addresses, batch.lengths, batch.ports
    count = 0
    if packet is not None:
        count = packet_kernels.collect(packet, counters, *columns, count)
    if udp is not None:
        count = udp_kernels.collect(udp, counters, *columns, count)
    note_frames(pace, count, now)
    if shm is not None:
        count = shm_kernels.collect(shm, counters, *columns, count)
    return count


@kernel
def _transmit(
    shm: ShmWords | None,
    packet: PacketWords | None,
    udp: UdpWords | None,
    counters: PortCounters,
    program: _Call,
    done: int,
    stopped: _Stopped,
) -> int:
    """Send what the program has made of `done` frames, if all of it is for ports of one kind; return why not, or DONE.

    `done` is 0 if not even one frame's copies fit the output: Python makes a larger one.
    """
    made = np.int64(program.result[0])
    ports, addresses, lengths = program.ports[:made], program.addresses[:made], program.lengths[:made]
    # The common case, all output for workers of this machine, sends heads and one shared body.  Other ports need whole
    # frames.
    if shm is not None and done > 0 and _all_owned(shm.owned, ports):
        shm_kernels.transmit(shm, counters, ports, addresses, lengths, program.heads, program.bodies)
        return DONE
    complete(int(made), addresses, lengths, program.heads, program.bodies)
    if packet is not None and done > 0 and _all_owned(packet.owned, ports):
        stopped.left[2] = packet_kernels.transmit(packet, counters, ports, addresses, lengths, stopped.held)
        return HELD if stopped.left[2] > 0 else DONE
    if udp is not None and done > 0 and _all_owned(udp.owned, ports):
        udp_kernels.transmit(udp, counters, addresses, lengths)
        return DONE
    return UNSENT


@inner
def _release(shm: ShmWords | None) -> None:
    """Give the workers their rows back."""
    if shm is not None:
        shm_kernels.release_all(shm)


@kernel
def _all_owned(owned: npt.NDArray[np.bool_], ports: Words) -> bool:
    for port in ports:  # noqa: SIM110  (numba has no generator expressions)
        if port >= len(owned) or not owned[port]:
            return False
    return True


@kernel
def _sleep(shm: ShmWords | None, watching: _Watching) -> bool:
    """Look for frames for a short while, then sleep until some arrive; return False if Python has something to do."""
    began, patience = monotonic(), watching.patience
    if shm is not None:
        # Only memory can be looked at without a system call; with sockets among the ports the loop sleeps at once.
        looked = watching.mine == watching.bells and shm_kernels.look(shm, patience, began)
        if looked or not shm_kernels.fall_asleep(shm):
            note_wait(patience, True, monotonic() - began)
            return True
    watched = watching.descriptors
    ready = poll(watching.address, len(watched), LONGEST_SLEEP_NS)
    if shm is not None:
        shm_kernels.set_all_sleeping(shm, 0)
    note_wait(patience, False, monotonic() - began)
    if ready < 1:
        return False
    for i in range(len(watched)):
        if watched[i, 1] & (READY if i >= watching.mine else _FAILED):
            return False  # frames that the bell was rung for are found without it, when the loop runs again
    if watching.bells > 0 and watched[0, 1] & READY:
        silence_bell(watched[0, 0])
    return True
