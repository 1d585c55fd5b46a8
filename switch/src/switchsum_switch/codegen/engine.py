"""The native engine: the machine code of a program, and the memory that it shares with the state.

Native code reaches everything through one array of words, the context (`layout.py`).  This module fills it in: with the
addresses of the state's numpy arrays, and with memory for packets that belongs to the engine.  While native code runs
the lock is held, so that no array moves or changes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.machinecode import Library

from ..program import ir
from ..program.passes.analysis import assigned, multiplies
from ..program.v1model import MAX_CLONE_DEPTH
from ..queues.batch import DEFAULT_FRAMES, CodeEntry, Output
from ..queues.parking import LOST, BufferPool, Parked, parked_at, tell_depths
from ..queues.replicas import complete
from ..state.state import ProgramState
from .layout import (
    ALIGN,
    COPIES,
    DIRECTORY,
    DUMP,
    LEVELS,
    POOL,
    QUEUES,
    RANDOM,
    SESSIONS,
    TABLE_WORDS,
    TEMPLATE,
    WAITING,
    ZEROS,
    Layout,
    context_words,
    counter_word,
    digest_word,
    meter_word,
    place_layout,
    register_word,
    table_word,
    waiting_layout,
)
from .rows import TableRows

ENTRY, EGRESS_ENTRY = "switch_batch", "switch_egress"
"""Names of the exported functions.  Each returns how many frames, or packets that have waited, it ran."""

PACKET_LEVELS = 2 * MAX_CLONE_DEPTH + 4
"""Packets that exist at the same time: one, the packet that its clones are made of, a copy, and so on for clones of
clones."""

_CELL_BYTES = 4096
"""More than any register cell has, and any wide field but those of variable length."""

_PARKED_AT_ONCE = 64
"""Frames of a batch that find places for all of their copies."""
_USUAL_FRAME_BYTES = 9216

_LONG, _ADDRESS = ctypes.c_uint64, ctypes.c_void_p
_OUTPUT = _ADDRESS, _LONG, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _LONG, _ADDRESS
BatchFunction = ctypes.CFUNCTYPE(_LONG, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _LONG, _LONG, *_OUTPUT)
EgressFunction = ctypes.CFUNCTYPE(_LONG, _ADDRESS, _ADDRESS, _LONG, _LONG, *_OUTPUT)


class Native:
    """Runs a program as machine code, which works on the state's arrays themselves."""

    def __init__(self, program: ir.Program, layout: Layout, state: ProgramState, library: Library) -> None:
        """Connect the code in `library` with `state`."""
        self._library = library
        self._code = library.address(ENTRY)
        self._run = BatchFunction(self._code)
        self._egress_code = library.address(EGRESS_ENTRY)
        self._run_egress = EgressFunction(self._egress_code)
        self._state = state
        self._place_overhead = place_layout(program, layout).frame
        self._pool = BufferPool(self._place_overhead, state.queues.held)
        self._most_copies = DEFAULT_FRAMES if multiplies(program) else 0
        """Places for copies of a frame that nobody can count: as many as an `Output` has room for."""
        self._other_pool = 0
        """Address of a pool that somebody else keeps; 0: there is none."""
        self._parked: list[Parked] = []
        self._result = np.zeros(2, np.uint64)
        self._result_address = _address(self._result)
        self._output: Output | None = None
        self._output_arguments: tuple[int, ...] = ()
        self._stale: set[TableRows] = set()
        self._context = np.zeros(context_words(program), np.uint64)
        self._context_address = _address(self._context)
        self._memory: list[npt.NDArray[np.uint8]] = []
        self._share_packet(program, layout)
        self._share_state(program)

    def process_batch(
        self,
        addresses: npt.NDArray[np.uint64],
        lengths: npt.NDArray[np.uint32],
        ports: npt.NDArray[np.uint32],
        count: int,
        output: Output,
        now_us: int,
    ) -> int:
        """Run frames in one call, without the GIL."""
        self._prepare(output)
        if not count:
            output.count = output.dropped = 0
            return 0
        free = self._reserve_places(count, int(lengths[:count].max())) if self._parks() else 0
        done: int = self._run(
            *(self._context_address, _address(addresses), _address(lengths), _address(ports), count, now_us),
            *(*self._output_arguments, self._result_address),
        )
        self._note_result(output, free)
        return done

    def egress(self, packets: Sequence[Parked], output: Output, now_us: int) -> int:
        """Run packets that have waited, and free the places of those that ran; return how many did."""
        self._prepare(output)
        if not packets:
            output.count = output.dropped = 0
            return 0
        for parked in packets:
            tell_depths(parked)
        places = np.array([parked.packet for parked in packets], np.int64)
        free = self._reserve_places(len(packets), 0) if self._parks() else 0
        done: int = self._run_egress(
            *(self._context_address, _address(places), len(places), now_us),
            *(*self._output_arguments, self._result_address),
        )
        self._note_result(output, free)
        self._pool.give_back(places[:done].tolist())
        return done

    def parked(self) -> list[Parked]:
        """Return the packets that wait for egress since the last call, in order."""
        parked, self._parked = self._parked, []
        return parked

    def discard(self, packets: Sequence[Parked]) -> None:
        """Free the places of packets that wait."""
        self._pool.give_back([parked.packet for parked in packets])

    def entry(self, output: Output) -> CodeEntry:
        """Return how a kernel runs batches into `output`; valid as long as the caller holds the pipeline's lock."""
        self._prepare(output)
        words = (self._code, self._context_address, *self._output_arguments, self._result_address, self._egress_code)
        return CodeEntry(np.array(words, np.uint64).view(np.int64), self._result)

    def place_bytes(self, frame_bytes: int) -> int:
        """Return the bytes of a place for a packet made of a frame of that length."""
        return -(-(self._place_overhead + frame_bytes) // ALIGN) * ALIGN

    def park_in(self, pool: int) -> None:
        """Let packets of held ports wait in the places of a pool that the caller keeps, given its address; 0: none."""
        self._context[POOL] = self._other_pool = pool

    def _parks(self) -> bool:
        """Return whether the next call parks packets in our own pool; if not, take the pool away from native code."""
        if self._state.queues.holds and not self._other_pool:
            return True
        self._context[POOL] = self._other_pool
        return False

    def _reserve_places(self, packets: int, frame_bytes: int) -> int:
        """Prepare places for the copies of some packets; return how many places our own pool has now.

        Native code stops before a packet whose copies find no place, and the caller goes on from there.
        """
        copies = max(self._state.copies() * min(packets, _PARKED_AT_ONCE), self._most_copies)
        # Recirculation may make a frame longer.
        self._pool.reserve(copies, max(2 * frame_bytes, _USUAL_FRAME_BYTES))
        self._context[POOL] = _address(self._pool.words)
        return self._pool.free_places

    def _note_result(self, output: Output, free: int) -> None:
        output.count, output.dropped = self._result.tolist()
        complete(output.count, output.addresses, output.lengths, output.heads, output.bodies)
        if free:
            self._parked += map(parked_at, self._pool.taken(free))
            output.dropped += int(self._pool.words[LOST])
            self._pool.words[LOST] = 0

    def _prepare(self, output: Output) -> None:
        # Tables whose order of rows the control plane has changed since the last batch.
        while self._stale:
            self._stale.pop().refresh()
        self._context[COPIES] = self._state.copies()
        if output is not self._output:
            self._output, self._output_arguments = output, _output_arguments(output)

    def _reserve(self, size: int) -> npt.NDArray[np.uint8]:
        """Return zeroed memory that begins a cache line and lives as long as this engine."""
        memory = np.zeros(size + 64, np.uint8)
        self._memory.append(memory)
        start = -memory.ctypes.data % 64
        return memory[start : start + size]

    def _share_packet(self, program: ir.Program, layout: Layout) -> None:
        """Give the context memory for packets."""
        longest = max((field.width // 8 for field in program.fields), default=0)
        context, zeros = self._context, self._reserve(max(_CELL_BYTES, longest))
        template = self._reserve(layout.hot_bytes)
        # In a new packet every wide field points to the cell of zeros.
        for offset in layout.pointers.values():
            template[offset : offset + 8].view(np.uint64)[0] = zeros.ctypes.data
        context[ZEROS], context[TEMPLATE] = zeros.ctypes.data, template.ctypes.data
        context[DUMP] = self._reserve(_CELL_BYTES).ctypes.data
        context[LEVELS] = self._reserve(PACKET_LEVELS * layout.level_bytes).ctypes.data
        if assigned(program) & {program.intrinsics.resubmit, program.intrinsics.recirculate}:
            places = program.passes * waiting_layout(program, layout).stride
            context[WAITING] = self._reserve(places).ctypes.data

    def _share_state(self, program: ir.Program) -> None:
        context, state = self._context, self._state
        context[RANDOM] = state.random.ctypes.data
        context[DIRECTORY] = state.multicast.directory.ctypes.data
        context[QUEUES] = state.queues.cells.ctypes.data
        context[SESSIONS] = state.clones.directory.ctypes.data
        for number, register in enumerate(program.registers):
            context[register_word(number)] = state.registers[register.name].memory.ctypes.data
        for number, counter in enumerate(program.counters):
            context[counter_word(program, number)] = state.counters[counter.name].counts.ctypes.data
        for number, meter in enumerate(program.meters):
            context[meter_word(program, number)] = state.meters[meter.name].cells.ctypes.data
        for number, digest in enumerate(program.digests):
            context[digest_word(program, number)] = state.digests[digest.name].memory.ctypes.data
        for number, info in enumerate(program.tables):
            first = table_word(program, number, 0)
            TableRows(state.tables[info.spec.name], context[first : first + TABLE_WORDS], self._stale)


def _output_arguments(output: Output) -> tuple[int, ...]:
    return (
        *(output.arena.ctypes.data, len(output.arena)),
        *(output.ports.ctypes.data, output.addresses.ctypes.data, output.lengths.ctypes.data),
        *(output.heads.ctypes.data, output.bodies.ctypes.data, len(output.ports)),
    )


def _address(array: npt.NDArray[Any]) -> int:
    """Return the address of an array's data; `array.ctypes` takes several times as long, too much for small batches."""
    return ctypes.addressof(ctypes.c_char.from_buffer(array.data)) if array.flags.writeable else int(array.ctypes.data)
