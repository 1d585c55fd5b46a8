"""The native engine on several cores; `switch/shards.py` says how a batch is divided.

Each shard has a context of its own, with its own memory for packets and its own random numbers; tables, registers and
counters are those of the state, for all shards.  A kernel calls `shards.run_batch` in the place of the program's code.
"""

from __future__ import annotations

import os
import weakref
from threading import Thread
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.native.patience import new_patience

from .. import ir, shards
from ..batch import Output
from ..state import RANDOM_FACTOR, ProgramState
from .driver import SHARDS
from .engine import BatchFunction, Native
from .layout import (
    ALIGN,
    COPIES,
    COUNTS,
    FIRST_ARRAY,
    RANDOM,
    SHARD,
    SHARD_MASK,
    Layout,
    counter_word,
    table_word,
)
from .machine import Library

_SEED_MASK: Final = (1 << 64) - 1


class Sharded(Native):
    """Runs a program that was compiled for shards on one thread for each; the threads end with this object."""

    def __init__(self, program: ir.Program, layout: Layout, state: ProgramState, library: Library, count: int) -> None:
        """Connect the code in `library` with `state`, for `count` shards, a power of two."""
        super().__init__(program, layout, state, library)
        self._contexts = np.tile(self._context, (count, 1))
        self._head = np.zeros(shards.HEAD_WORDS, np.int64)
        self._columns = np.zeros((count, 2, shards.MOST_FRAMES), np.uint64)
        self._found = np.zeros(shards.MOST_FRAMES, np.uint64)
        self._random = np.zeros(count, np.uint64)
        self.lines: npt.NDArray[np.int64] = (
            self._reserve(count * 8 * shards.LINE_WORDS).view(np.int64).reshape(count, shards.LINE_WORDS)
        )
        for shard in range(count):
            self._fill(program, layout, shard)
        self._share_counts(program, state, count)
        head = self._head
        head[shards.SHARDS] = count
        head[shards.GROWTH] = ALIGN + sum(program.headers[header].width // 8 for header in program.deparser)
        head[shards.CODE], head[shards.CONTEXT] = self._code, self._context_address
        head[shards.FIND], head[shards.FOUND] = library.address(SHARDS), self._found.ctypes.data
        head[shards.LINES] = self.lines.ctypes.data
        head[shards.PATIENCE :].view(np.float64)[:] = new_patience()
        # From here on this engine's "code" is the function that divides a batch, and its "context" are the words above.
        self._code = shards.run_batch.address
        self._run = BatchFunction(self._code)
        self._context_address = head.ctypes.data
        self._start(count)

    def _share_counts(self, program: ir.Program, state: ProgramState, count: int) -> None:
        """Give every shard but the first, which the caller's thread runs, counts of its own."""
        places = {
            counter_word(program, at): state.counters[one.name].counted for at, one in enumerate(program.counters)
        }
        for at, table in enumerate(program.tables):
            if table.spec.has_counters:
                places[table_word(program, at, COUNTS)] = state.tables[table.spec.name].counted
        self._count_words = list(places)
        self._count_addresses = np.array(
            [[one.share().ctypes.data for one in places.values()] for _ in range(1, count)], np.uint64
        ).reshape(count - 1, len(places))

    def _fill(self, program: ir.Program, layout: Layout, shard: int) -> None:
        """Fill in the context and the line of a shard."""
        # Each shard begins its random numbers elsewhere; a state of 0 would stay 0.
        context, line, columns = self._contexts[shard], self.lines[shard], self._columns[shard]
        self._share_packet(program, layout, context)
        self._random[shard] = int(self._state.random[0]) * (RANDOM_FACTOR + 2 * shard) & _SEED_MASK or 1
        context[RANDOM] = self._random[shard:].ctypes.data
        context[SHARD], context[SHARD_MASK] = shard, len(self.lines) - 1
        line[shards.ADDRESSES] = columns[0].ctypes.data
        line[shards.LENGTHS] = columns[1].ctypes.data
        line[shards.PORTS] = columns[1, shards.MOST_FRAMES // 2 :].ctypes.data
        line[shards.ENTRY], line[shards.ENTRY + 1] = self._code, context.ctypes.data
        line[shards.RESULT - 1] = line[shards.RESULT :].ctypes.data

    def _start(self, count: int) -> None:
        bells = [os.eventfd(0) for _ in range(2 * count - 2)]
        threads = []
        # Called once here with END, so that it is compiled before the threads start.
        shards.help_out(np.full(shards.LINE_WORDS, shards.END).ctypes.data, new_patience())
        for shard in range(1, count):
            line = self.lines[shard]
            line[shards.AWAKE_BELL], line[shards.DONE_BELL] = bells[2 * shard - 2 : 2 * shard]
            arguments = line.ctypes.data, new_patience()
            threads.append(Thread(target=shards.help_out, args=arguments, name=f"shard {shard}", daemon=True))
            threads[-1].start()
        self.close = weakref.finalize(self, _end, self.lines, threads, bells)
        """Ends the threads; it is also called when this object is garbage."""

    def _prepare(self, output: Output) -> None:
        super()._prepare(output)
        self._contexts[:, FIRST_ARRAY:] = self._context[FIRST_ARRAY:]
        self._contexts[1:, self._count_words] = self._count_addresses
        self._contexts[:, COPIES] = self._context[COPIES]
        self._head[shards.COPIES] = self._context[COPIES]


def _end(lines: npt.NDArray[np.int64], threads: list[Thread], bells: list[int]) -> None:
    for line, thread in zip(lines[1:], threads, strict=True):
        shards.end(line.ctypes.data)
        thread.join()
    for bell in bells:
        os.close(bell)
