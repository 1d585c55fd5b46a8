"""The parts that `driver.py` and `egress.py` share: packets in memory, standard metadata, and the words of a batch.

The functions around the graphs pass a packet on as six arguments (`Passing`) and keep the state of a batch in an array
of 64-bit words on the stack (`ARENA` and following).  A packet's *life* begins when it enters ingress, or when it is
made as a clone: `restart` then sets its metadata to 0, except for the fields that a field list keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import llvmlite.ir as ll

from ..program import ir
from ..program.passes.analysis import GRAPHS, assigned, is_wide, used_by
from .emitter import I32, POINTER, VOID, Emitter, Unit, Value, constant, integer
from .layout import ZEROS, Layout, WaitingLayout, machine_bytes, waiting_layout

ARENA, ARENA_BYTES, USED, PORTS, ADDRESSES, LENGTHS, HEADS, BODIES, ROWS, MADE, DROPPED, NOW = range(12)
"""Words of a batch: memory for frames, its size, and the bytes in use; columns of the output, their rows, and the
frames in them; frames for which there was no room; the time in microseconds."""
PORT, WAITING_COUNT, BODY, BODY_BYTES, BODY_HEADERS, PASSED, PLACE = range(12, 19)
"""Words of the frame that runs now: its port; how many packets wait to enter ingress again; the address of the body
that its replicas share, 0 before it is written; the body's bytes; a bit for each optional header that it has; how often
it entered ingress again before it waited for egress; and the place of a packet that comes from there, else 0."""
BATCH_WORDS = 19


@dataclass(frozen=True, slots=True)
class Features:
    """The features that a program uses; no code is made for the others."""

    clones: bool
    resubmits: bool
    recirculates: bool
    cuts: bool
    priorities: bool
    queueing: bool
    """The program reads the state of its queue."""

    @property
    def shares_bodies(self) -> bool:
        """Whether replicas of a packet share one body: no copy is truncated, and none enters ingress again."""
        return not (self.clones or self.resubmits or self.recirculates or self.cuts)


def features(program: ir.Program) -> Features:
    """Return the features that a program uses."""
    names, used = program.intrinsics, assigned(program)
    asked = {names.enq_qdepth, names.deq_qdepth, names.deq_timedelta, names.qid}
    return Features(
        clones=names.clone in used,
        resubmits=names.resubmit in used,
        recirculates=names.recirculate in used,
        cuts=names.cut in used,
        priorities=names.priority in used or (names.clone in used and program.queues > 1),
        queueing=any(asked & used_by(program, getattr(program, graph)) for graph in GRAPHS),
    )


class Passing(NamedTuple):
    """A packet as a function around the graphs sees it."""

    hot: Value
    context: Value
    batch: Value
    frame: Value
    length: Value
    """Bytes of the frame as it arrived, 64 bits."""
    cursor: Value
    """Address of the number of bytes that the parser has taken."""


PASSING: tuple[ll.Type, ...] = (POINTER, POINTER, POINTER, POINTER, ll.IntType(64), POINTER)
"""Types of the fields of `Passing`, the first arguments of the functions around the graphs."""


class Around:
    """Emits access to standard metadata and to the words of a batch."""

    def __init__(self, unit: Unit, graphs: dict[str, ll.Function]) -> None:
        self.unit = unit
        self.program = unit.program
        self.names = unit.program.intrinsics
        self.layout: Layout = unit.layout
        self.features = features(unit.program)
        self.waiting: WaitingLayout = waiting_layout(unit.program, unit.layout)
        self._graphs = graphs

    def run(self, emit: Emitter, name: str, packet: Passing) -> None:
        """Run a graph on a packet."""
        storage = emit.at(packet.hot, self.layout.hot_bytes)
        arguments = [packet.hot, storage, packet.context, packet.frame, packet.length, packet.cursor]
        emit.build.call(self._graphs[name], arguments)

    def get(self, emit: Emitter, hot: Value, slot: int, width: int = 64) -> Value:
        """Load a field of standard metadata as a number of `width` bits."""
        size = machine_bytes(self.program.fields[slot].width)
        loaded = emit.load(integer(8 * size), emit.at(hot, self.layout.metadata[slot]), size)
        return emit.resize(loaded, width)

    def set(self, emit: Emitter, hot: Value, slot: int, value: Value | int) -> None:
        """Store the low bits of a number in a field of standard metadata."""
        width = self.program.fields[slot].width
        size = machine_bytes(width)
        if isinstance(value, int):
            kept = constant(8 * size, value & ((1 << width) - 1))
        else:
            kept = emit.resize(emit.resize(value, width), 8 * size)
        emit.store(kept, emit.at(hot, self.layout.metadata[slot]), size)

    def word(self, emit: Emitter, batch: Value, which: int, kind: ll.Type | None = None) -> Value:
        """Load a word of the batch, as 64 bits or an address."""
        return emit.load(kind or ll.IntType(64), emit.at(batch, 8 * which), 8)

    def set_word(self, emit: Emitter, batch: Value, which: int, value: Value) -> None:
        """Store a word of the batch."""
        emit.store(value, emit.at(batch, 8 * which), 8)

    def step(self, emit: Emitter, batch: Value, which: int) -> None:
        """Add 1 to a word of the batch."""
        self.set_word(emit, batch, which, emit.build.add(self.word(emit, batch, which), constant(64, 1)))

    def restart(self) -> ll.Function:
        """Return the function (hot, hot of the life before, context, field list, instance type) that begins a new life.

        Metadata becomes 0, except for the fields of the field list and the next index of each header stack.
        """
        return self.unit.helper("restart", self._write_restart)

    def _write_restart(self) -> ll.Function:
        function = self.unit.function("restart", VOID, [POINTER, POINTER, POINTER, I32, I32])
        emit = Emitter(self.unit, function)
        build = emit.build
        # Wide metadata is set to 0 by a pointer to the cell of zeros, narrow metadata by a store.
        hot, before, context, number, instance_type = function.args
        zeros = emit.context_word(context, ZEROS)
        lengths = {header.length for header in self.program.headers if not header.metadata}
        for slot in sorted(self.layout.metadata.keys() - {*self.program.stack_counts, *lengths}):
            self.set(emit, hot, slot, 0)
        for slot, offset in self.layout.pointers.items():
            if self.program.headers[self.program.fields[slot].header].metadata:
                emit.store(zeros, emit.at(hot, offset), 8)
        end = function.append_basic_block("end")
        switch = build.switch(number, end)
        for index, slots in enumerate(self.program.field_lists):
            block = function.append_basic_block("list")
            switch.add_case(constant(32, index), block)
            build.position_at_end(block)
            for slot in slots:
                self._keep(emit, hot, before, slot)
            build.branch(end)
        build.position_at_end(end)
        self.set(emit, hot, self.names.instance_type, instance_type)
        build.ret_void()
        return function

    def _keep(self, emit: Emitter, hot: Value, before: Value, slot: int) -> None:
        if is_wide(self.program, slot):
            offset = self.layout.pointers[slot]
            emit.store(emit.load(POINTER, emit.at(before, offset), 8), emit.at(hot, offset), 8)
        else:
            width = 8 * machine_bytes(self.program.fields[slot].width)
            self.set(emit, hot, slot, self.get(emit, before, slot, width))
