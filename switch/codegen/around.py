"""What the functions around the graphs share: packets' memory, standard metadata, and the batch that is being run."""

from __future__ import annotations

from dataclasses import dataclass

import llvmlite.ir as ll

from switchsum.switch import ir
from switchsum.switch.codegen.emitter import I32, POINTER, Emitter, Unit, Value, constant, integer
from switchsum.switch.codegen.layout import (
    ZEROS,
    Layout,
    WaitingLayout,
    machine_bytes,
    waiting_layout,
)
from switchsum.switch.passes.analysis import GRAPHS, assigned, is_wide, used_by

ARENA, ARENA_BYTES, USED, PORTS, ADDRESSES, LENGTHS, HEADS, BODIES, ROWS, MADE, DROPPED, NOW = range(12)
"""Words of a batch: memory for frames, its size and how much is taken; columns of what goes out, their length, and how
many frames are in them; how many found no room; the time."""
PORT, WAITING_COUNT, BODY, BODY_BYTES = range(12, 16)
"""Words of the frame at hand: its port, how many wait, and where its replicas' common body has been written, if it has,
and how long that is."""
BATCH_WORDS = 16


@dataclass(frozen=True, slots=True)
class Features:
    """What a program does beside sending a packet on; code for what it never does is left out."""

    clones: bool
    resubmits: bool
    recirculates: bool
    cuts: bool
    priorities: bool
    queueing: bool
    """The program asks how its queue is."""

    @property
    def shares_bodies(self) -> bool:
        """Whether replicas of a packet have one body in common: no copy is cut, or lives on."""
        return not (self.clones or self.resubmits or self.recirculates or self.cuts)


def features(program: ir.Program) -> Features:
    """Return what a program may do."""
    names, used = program.intrinsics, assigned(program)
    asked = {names.enq_qdepth, names.deq_qdepth, names.deq_timedelta, names.qid}
    return Features(
        clones=names.clone in used,
        resubmits=names.resubmit in used,
        recirculates=names.recirculate in used,
        cuts=names.cut in used,
        priorities=names.priority in used,
        queueing=any(asked & used_by(program, getattr(program, graph)) for graph in GRAPHS),
    )


@dataclass(frozen=True, slots=True)
class Passing:
    """A packet on its way through one of the driver's functions."""

    hot: Value
    context: Value
    batch: Value
    frame: Value
    length: Value
    """Bytes of the frame as it came in, 64 bits."""
    cursor: Value
    """Address of the number of bytes that the parser took."""


PASSING: tuple[ll.Type, ...] = (POINTER, POINTER, POINTER, POINTER, ll.IntType(64), POINTER)
"""Types of `Passing`, which begins the arguments of the driver's functions."""


class Around:
    """Standard metadata and batches, for whoever emits code around the graphs."""

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
        """Load a standard field as a number of `width` bits."""
        size = machine_bytes(self.program.fields[slot].width)
        loaded = emit.load(integer(8 * size), emit.at(hot, self.layout.metadata[slot]), size)
        return emit.resize(loaded, width)

    def set(self, emit: Emitter, hot: Value, slot: int, value: Value | int) -> None:
        """Store the low bits of a number in a standard field."""
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

        Metadata becomes zero but for the field list's and what belongs to header stacks.
        """
        if "restart" in self.unit.helpers:
            made: ll.Function = self.unit.helpers["restart"]
            return made
        function = self.unit.function("restart", ll.VoidType(), [POINTER, POINTER, POINTER, I32, I32])
        self.unit.helpers["restart"] = function
        emit = Emitter(self.unit, function)
        build = emit.build
        hot, before, context, number, instance_type = function.args
        zeros = emit.context_word(context, ZEROS)
        for slot in sorted(self.layout.metadata.keys() - set(self.program.stack_counts)):
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
