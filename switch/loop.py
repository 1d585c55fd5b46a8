"""The switch's loop over its shared-memory, interface and UDP ports, as one kernel: frames come, are run, and go.

It does what `Switch.run` does, over and over, sleep included, until something is to be done that kernels cannot do:
frames for or from other ports or that an interface does not take yet, links that come or go, somebody who wants the
program's state.
"""

from __future__ import annotations

import select
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum.protocol.kernels import kernel
from switchsum.protocol.patience import Patience, new_patience, note_wait
from switchsum.protocol.segmentation import FrameSender
from switchsum.protocol.system import READY, Watched, monotonic, poll, silence_bell, watch
from switchsum.protocol.trace import NO_SPANS, Span, Spans, is_traced, note
from switchsum.switch.batch import Entry, Output
from switchsum.switch.entry import ENTRY_WORDS, call_program
from switchsum.switch.pace import NAP_NS, Pace, is_fast, new_pace, note_frames
from switchsum.switch.ports import packet_kernels, shm_kernels, udp_kernels
from switchsum.switch.ports.base import Addresses, Batch, Counters, Words
from switchsum.switch.ports.packet import PacketPorts
from switchsum.switch.ports.packet_kernels import PacketWords, packet_words
from switchsum.switch.ports.port_set import PortSet
from switchsum.switch.ports.shm import ShmPorts
from switchsum.switch.ports.shm_kernels import Indices, ShmWords, shm_words
from switchsum.switch.ports.udp import UdpPort
from switchsum.switch.ports.udp_kernels import UdpWords, no_udp_words
from switchsum.switch.queues import PORTS
from switchsum.switch.replicas import complete

_WAIT: Final = int(Span.WAIT)
_PROGRAM: Final = int(Span.PROGRAM)
TURNS: Final = 64
"""A loop that does not sleep returns after so many batches, so that other ports have their turn."""
LONGEST_RUN_S: Final = 0.05
"""One that does returns after this, so that links that make no sense are dropped."""
LONGEST_SLEEP_NS: Final = 1_000_000_000

DONE: Final = 0
"""Every frame that was taken has gone where it goes."""
UNSENT: Final = 1
"""The batch may have frames left, and what the last ones made is for ports of several kinds, or did not fit."""
HELD: Final = 2
"""The batch may have frames left; some of what the last ones made has to wait for its interface."""

_NOBODY: Final = np.zeros(PORTS, np.bool_)
_FAILED: Final = (select.POLLHUP | select.POLLERR) << 16


class _Watching(NamedTuple):
    """What the loop sleeps on."""

    descriptors: Watched
    address: int
    bells: int
    """How many of them, the first ones, are rung by workers; 0 or 1."""
    mine: int
    """How many say that frames have come for the loop; whatever else becomes readable ends it."""


class _Columns(NamedTuple):
    """A batch."""

    addresses: Addresses
    lengths: Words
    ports: Words


class _Program(NamedTuple):
    """How to call the program, and what it makes of a batch; see `Entry` and `Output`."""

    entry: npt.NDArray[np.int64]
    result: npt.NDArray[np.uint64]
    ports: Words
    addresses: Addresses
    lengths: Words
    heads: Words
    bodies: Addresses


class Loop:
    """The loop over shared-memory ports, interfaces and UDP port of one set of ports, of which there must be some."""

    def __init__(self, ports: PortSet, spans: Spans = NO_SPANS) -> None:
        self._spans = spans
        self._shm = next((group for group in ports.groups if isinstance(group, ShmPorts)), None)
        self._packet = next((group for group in ports.groups if isinstance(group, PacketPorts)), None)
        self._udp = next((group for group in ports.groups if isinstance(group, UdpPort)), None)
        self._counters = ports.table.counters
        bells = [] if self._shm is None else [self._shm.bell]
        mine = bells if self._packet is None else [*bells, *self._packet.sockets()]
        mine = mine if self._udp is None else [*mine, *self._udp.descriptors()]
        watched = watch([*mine, *(other for other in ports.descriptors() if other not in mine)])
        self._watching = _Watching(watched, watched.ctypes.data, len(bells), len(mine))
        self._no_shm, self._no_packet = shm_words(0, _NOBODY), packet_words(0, _NOBODY, FrameSender())
        self._udp_words = no_udp_words() if self._udp is None else self._udp.words
        self._held: Indices = np.zeros(0, np.int32)
        self._left = np.zeros(3, np.int64)
        self._patience, self._pace = new_patience(), new_pace()

    @staticmethod
    def covers(ports: PortSet) -> bool:
        """Return whether there are ports that a loop is for."""
        return any(isinstance(group, (ShmPorts, PacketPorts, UdpPort)) for group in ports.groups)

    def warm_up(self, output: Output) -> None:
        """Have the kernel ready before a program is; something else must be readable, so that it returns."""
        no_room = Batch(0)  # frames may have come already
        self.run(Entry(np.zeros(ENTRY_WORDS, np.int64), np.zeros(2, np.uint64)), no_room, output)

    @property
    def is_blocked(self) -> bool:
        """Whether interfaces must be waited for, which the loop does not do."""
        return self._packet is not None and self._packet.is_blocked

    def run(self, entry: Entry, batch: Batch, output: Output) -> int:
        """Move frames, using `batch` and `output`; return DONE, UNSENT or HELD.

        Unless all is done, `batch` has frames of which the first `ran` have run.
        """
        shm, packet = self._shm, self._packet
        if len(self._held) < len(output.ports):
            self._held = np.empty(len(output.ports), np.int32)
        ended = _run(
            self._no_shm if shm is None else shm.words,
            self._no_packet if packet is None else packet.words,
            self._udp_words,
            self._counters,
            _Columns(batch.addresses, batch.lengths, batch.ports),
            _Program(
                *(entry.arguments, entry.result, output.ports, output.addresses, output.lengths),
                *(output.heads, output.bodies),
            ),
            self._watching,
            self._patience,
            self._pace,
            self._held,
            self._left,
            self._spans,
        )
        output.count, output.dropped = entry.result.tolist()
        batch.count = int(self._left[0])
        return int(ended)

    @property
    def ran(self) -> int:
        """How many frames of the batch have run."""
        return int(self._left[1])

    def hold(self, output: Output) -> None:
        """Let frames that have been made wait for their interface, after `run` has returned HELD."""
        assert self._packet is not None
        held = self._held[: int(self._left[2])]
        ports = output.ports[held]
        self._packet.hold(ports, np.zeros(len(held), np.uint32), output.addresses[held], output.lengths[held])


@kernel
def _run(
    shm: ShmWords,
    packet: PacketWords,
    udp: UdpWords,
    counters: Counters,
    batch: _Columns,
    program: _Program,
    watching: _Watching,
    patience: Patience,
    pace: Pace,
    held: Indices,
    left: npt.NDArray[np.int64],
    spans: Spans,
) -> int:
    result = program.result
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
            if not _sleep(shm, watching, patience):
                return DONE
            if is_fast(pace):
                poll(0, 0, NAP_NS)
            if traced:
                note(spans, _WAIT, began, monotonic(), 0, 0)
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
                int(began * 1e6),
            )
            ran += done
            left[1] = ran
            made = np.int64(result[0])
            ports, addresses, lengths = program.ports[:made], program.addresses[:made], program.lengths[:made]
            if done > 0 and _all_owned(shm.owned, ports):
                shm_kernels.transmit(shm, counters, ports, addresses, lengths, program.heads, program.bodies)
                went += int(made)
                continue
            complete(int(made), addresses, lengths, program.heads, program.bodies)
            if done > 0 and _all_owned(packet.owned, ports):
                left[2] = packet_kernels.transmit(packet, counters, ports, addresses, lengths, held)
                if left[2] > 0:
                    return HELD
            elif done > 0 and _all_owned(udp.owned, ports):
                udp_kernels.transmit(udp, counters, addresses, lengths)
            else:
                return UNSENT
            went += int(made)
        shm_kernels.release_all(shm)
        left[0] = 0
        if traced:
            note(spans, _PROGRAM, began, monotonic(), count, went)
    return DONE


@kernel
def _collect(
    shm: ShmWords, packet: PacketWords, udp: UdpWords, counters: Counters, batch: _Columns, pace: Pace, now: float
) -> int:
    """Fill a batch; return how many frames it has.

    Sockets come first: they give a bounded number of frames each, while workers in memory might fill every batch.
    """
    columns = batch.addresses, batch.lengths, batch.ports
    count = packet_kernels.collect(packet, counters, *columns, 0)
    count = udp_kernels.collect(udp, counters, *columns, count)
    note_frames(pace, count, now)
    return shm_kernels.collect(shm, counters, *columns, count)


@kernel
def _all_owned(owned: npt.NDArray[np.bool_], ports: Words) -> bool:
    for port in ports:  # noqa: SIM110  (numba has no generator expressions)
        if port >= len(owned) or not owned[port]:
            return False
    return True


@kernel
def _sleep(shm: ShmWords, watching: _Watching, patience: Patience) -> bool:
    """Look for frames for a short while, then sleep until some come; False when something else wants attention."""
    began = monotonic()
    looked = watching.mine == watching.bells and shm_kernels.look(shm, patience, began)  # sockets cannot be looked at
    if looked or not shm_kernels.fall_asleep(shm):
        note_wait(patience, True, monotonic() - began)
        return True
    watched = watching.descriptors
    ready = poll(watching.address, len(watched), LONGEST_SLEEP_NS)
    shm_kernels.set_all_sleeping(shm, 0)
    note_wait(patience, False, monotonic() - began)
    if ready < 1:
        return False
    for i in range(len(watched)):
        if watched[i, 1] & (READY if i >= watching.mine else _FAILED):
            return False  # what the bell was rung for is seen without it
    if watching.bells > 0 and watched[0, 1] & READY:
        silence_bell(watched[0, 0])
    return True
