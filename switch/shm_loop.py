"""The switch's loop over its shared-memory ports, as one kernel: frames come, are run through the program, and go.

It does what `Switch.run` does, over and over, sleep included, until something is to be done that kernels cannot do:
frames for or from other ports, links that come or go, somebody who wants the program's state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from switchsum.protocol.kernels import kernel
from switchsum.protocol.patience import Patience, note_wait, patience, share_cores
from switchsum.protocol.system import READY, Watched, monotonic, poll, ring_bell, silence_bell, watch
from switchsum.protocol.trace import NO_SPANS, Span, Spans, is_traced, note
from switchsum.switch.batch import Entry, Output
from switchsum.switch.ports import shm_kernels
from switchsum.switch.ports.base import Addresses, Batch, Counters, Words
from switchsum.switch.ports.shm import ShmPorts
from switchsum.switch.ports.shm_kernels import Indices, Links

_WAIT: Final = int(Span.WAIT)
_PROGRAM: Final = int(Span.PROGRAM)
TURNS: Final = 64
"""A loop that never sleeps returns after so many batches, so that other ports have their turn."""
ENTRY_WORDS: Final = 9
"""Words of `Entry.arguments`."""
LONGEST_SLEEP_NS: Final = 1_000_000_000

DONE: Final = 0
"""Every frame that was taken has gone where it goes."""
LEFT: Final = 1
"""The batch has frames left, or made some for ports of other kinds; see `ShmLoop.left`."""


class ShmLoop:
    """The loop over one group of shared-memory ports."""

    def __init__(self, ports: ShmPorts, others: Sequence[int], spans: Spans = NO_SPANS) -> None:
        """Return from sleep whenever one of the descriptors `others` is readable."""
        self._spans = spans
        self._ports = ports
        self._watched = watch([*ports.descriptors(), *others])
        self._left = np.zeros(2, np.int64)
        self._patience = patience()

    def warm_up(self, batch: Batch, output: Output) -> None:
        """Have the kernel ready before the first frame; one of `others` must be readable, so that it returns."""
        self.run(Entry(np.zeros(ENTRY_WORDS, np.int64), np.zeros(2, np.uint64)), batch, output)

    def run(self, entry: Entry, batch: Batch, output: Output) -> bool:
        """Move frames, using `batch` and `output`; False if `batch` has some left, see `left`."""
        ports = self._ports
        share_cores(self._patience, len(ports.active) + 1)
        ended = _run(
            *(ports.links, ports.active, ports.port_of_link, ports.link_of_port, ports.bells, ports.sleepers),
            *(ports.table.counters, ports.owned, batch.addresses, batch.lengths, batch.ports),
            *(entry.arguments, output.ports, output.addresses, output.lengths, entry.result),
            *(self._watched, self._watched.ctypes.data, self._patience, self._left, self._spans),
        )
        output.count, output.dropped = entry.result.tolist()
        return bool(ended == DONE)

    @property
    def left(self) -> tuple[int, int]:
        """Frames in the batch, and how many of them have run; what the last of these made is in the output."""
        count, ran = self._left.tolist()
        return count, ran


def _call(_context: Any, entry: Any, addresses: Any, lengths: Any, ports: Any, count: Any, now_us: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, half, byte = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
        entry, *columns, count, now_us = arguments
        words = context.make_array(signature.args[0])(context, builder, entry)
        code, program, *outputs, result = (
            builder.load(builder.gep(words.data, [ir.Constant(word, index)])) for index in range(ENTRY_WORDS)
        )
        arena, arena_bytes, *made, rows = outputs
        values = [
            *(builder.inttoptr(value, byte) for value in (program, *columns)),
            *(builder.trunc(count, half), now_us),
            *(builder.inttoptr(arena, byte), arena_bytes),
            *(builder.inttoptr(value, byte) for value in made),
            *(builder.trunc(rows, half), builder.inttoptr(result, byte)),
        ]
        function = ir.FunctionType(half, [value.type for value in values])
        ran = builder.call(builder.inttoptr(code, function.as_pointer()), values)
        return builder.zext(ran, word)

    long = types.int64
    return types.int64(entry, long, long, long, long, long), generate


call_program: Callable[[npt.NDArray[np.int64], int, int, int, int, int], int] = intrinsic(_call)
"""Run frames through native code: its entry; addresses of the columns of addresses, lengths and ports; how many; and
the time in microseconds.  Returns how many ran."""


@kernel
def _run(
    links: Links,
    active: Indices,
    port_of_link: Indices,
    link_of_port: Indices,
    bells: npt.NDArray[np.int64],
    sleepers: Indices,
    counters: Counters,
    owned: npt.NDArray[np.bool_],
    addresses: Addresses,
    lengths: Words,
    ports: Words,
    entry: npt.NDArray[np.int64],
    out_ports: Words,
    out_addresses: Addresses,
    out_lengths: Words,
    result: npt.NDArray[np.uint64],
    watched: Watched,
    watched_address: int,
    left_to_look: Patience,
    left: npt.NDArray[np.int64],
    spans: Spans,
) -> int:
    result[:] = 0
    turns = 0
    traced = is_traced(spans)
    while turns < TURNS:
        count = shm_kernels.collect(links, active, port_of_link, counters, addresses, lengths, ports, 0)
        if count == 0:
            before = monotonic() if traced else 0.0
            if not _sleep(links, active, watched, watched_address, left_to_look):
                return DONE
            if traced:
                note(spans, _WAIT, before, monotonic(), 0, 0)
            continue
        turns += 1
        before = monotonic() if traced else 0.0
        ran = went = 0
        while ran < count:
            done = call_program(
                entry,
                int(addresses[ran:].ctypes.data),
                int(lengths[ran:].ctypes.data),
                int(ports[ran:].ctypes.data),
                count - ran,
                int(monotonic() * 1e6),
            )
            ran += done
            made = np.int64(result[0])
            if done == 0 or not _all_owned(owned, out_ports[:made]):
                left[0], left[1] = count, ran
                return LEFT
            asleep = shm_kernels.transmit(
                links,
                active,
                link_of_port,
                counters,
                out_ports[:made],
                out_addresses[:made],
                out_lengths[:made],
                sleepers,
            )
            for i in range(asleep):
                ring_bell(bells[sleepers[i]])
            went += int(made)
        shm_kernels.release_all(links, active)
        if traced:
            note(spans, _PROGRAM, before, monotonic(), count, went)
    return DONE


@kernel
def _all_owned(owned: npt.NDArray[np.bool_], ports: Words) -> bool:
    for port in ports:  # noqa: SIM110  (numba has no generator expressions)
        if port >= len(owned) or not owned[port]:
            return False
    return True


@kernel
def _sleep(links: Links, active: Indices, watched: Watched, watched_address: int, left_to_look: Patience) -> bool:
    """Look for frames for a short while, then sleep until a worker rings; False when something else wants attention."""
    began = monotonic()
    if shm_kernels.look(links, active, began + left_to_look[0]) or not shm_kernels.fall_asleep(links, active):
        note_wait(left_to_look, monotonic() - began)
        return True
    ready = poll(watched_address, len(watched), LONGEST_SLEEP_NS)
    shm_kernels.set_all_sleeping(links, active, 0)
    note_wait(left_to_look, monotonic() - began)
    if ready == 1 and watched[0, 1] & READY:
        silence_bell(watched[0, 0])
        return True
    return False  # what the bell was rung for is seen without it
