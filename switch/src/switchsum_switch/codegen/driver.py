"""The switch around the program: from a batch of frames to packets that enter egress, at once or after they waited.

`execution/traffic.py` defines what happens here and gives the steps.  The functions of the native code are:

    switch_batch    for each frame of the batch: `enter`, then `enter` again for each packet that waits
    enter           parse, verify checksums, ingress, clone, then resubmit or go on to the group or the port
    replicate       (egress.py) one copy of the packet for each replica, each through `leave`
    leave           (egress.py) queue, egress, deparse, recirculate or append to the output, clone
    turn            (parking.py) called by `leave` before egress: write a packet whose port is held to a place
    switch_egress   for each of some places: `leave` again, then `enter` for each packet that recirculates

The copies of a packet are made in *levels*: an array of packets in memory, in which a copy stands one level above the
packet that it was made of.  So no memory is allocated while frames run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import llvmlite.ir as ll

from ..program.passes.analysis import GRAPHS
from ..program.v1model import INGRESS_CLONE, NORMAL, REPLICATION, RESUBMITTED
from ..state.state import MAX_GROUP
from .around import ARENA_BYTES, BATCH_WORDS, BODY, DROPPED, MADE, NOW, PORT, ROWS, USED, WAITING_COUNT, Around, Passing
from .egress import Egress
from .emitter import I32, I64, POINTER, VOID, Emitter, Unit, Value, constant
from .engine import EGRESS_ENTRY, ENTRY
from .graphs import graph_function
from .layout import ALIGN, COPIES, DIRECTORY, LEVELS, TEMPLATE, TIME, WAITING

_OUTPUT: tuple[ll.Type, ...] = (
    *(POINTER, I64),  # arena, its bytes
    *(POINTER, POINTER, POINTER, POINTER, POINTER, I64),  # columns of the output (batch.Output), their rows
    POINTER,  # result: frames of the output, and frames for which there was no room, 64 bits each
)
ARGUMENTS: tuple[ll.Type, ...] = (POINTER, POINTER, POINTER, POINTER, I64, I64, *_OUTPUT)
"""Arguments of `ENTRY`: context; addresses, lengths and ports of frames, and how many; time in microseconds; output."""
EGRESS_ARGUMENTS: tuple[ll.Type, ...] = (POINTER, POINTER, I64, I64, *_OUTPUT)
"""Arguments of `EGRESS_ENTRY`: context; addresses of the places of packets, and how many; time in microseconds;
output.
"""


class Driver:
    """Emits the functions around the graphs."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._around = Around(unit, {name: graph_function(unit, name) for name in GRAPHS})
        self._names = unit.program.intrinsics
        self._egress = Egress(self._around)
        self._ingress = unit.function("enter", VOID, [POINTER, POINTER, POINTER, I64, POINTER])
        """(context, batch, frame, its length, place where the packet waited or null): runs a packet from the parser
        on."""

    def emit(self) -> None:
        """Write all functions."""
        self._egress.emit()
        self._write_ingress()
        self._write_entry()
        self._write_egress_entry()

    def _write_entry(self) -> None:
        """Write `switch_batch`: run frames until all have run or the output may have no room for the next."""
        around = self._around
        emit = self._exported(ENTRY, ARGUMENTS)
        build = emit.build
        context, addresses, lengths, ports, count, now, *outputs, rows, result = emit.function.args
        batch = emit.stack(I64, BATCH_WORDS, 8)
        self._begin(emit, context, batch, now, outputs, rows)

        def length_of(row: Value) -> Value:
            return emit.resize(build.load(build.gep(lengths, [row], source_etype=I32), typ=I32), 64)

        with self._while_it_fits(emit, context, batch, count, result, length_of) as (row, length):
            frame = build.load(build.gep(addresses, [row], source_etype=POINTER), typ=POINTER)
            port = build.load(build.gep(ports, [row], source_etype=I32), typ=I32)
            around.set_word(emit, batch, PORT, emit.resize(port, 64))
            build.call(self._ingress, [context, batch, frame, length, ll.Constant(POINTER, None)])

    def _write_egress_entry(self) -> None:
        """Write `switch_egress`: run packets that have waited, until all have run or one may have no room."""
        emit = self._exported(EGRESS_ENTRY, EGRESS_ARGUMENTS)
        build, parking = emit.build, self._egress.parking
        context, places, count, now, *outputs, rows, result = emit.function.args
        batch = emit.stack(I64, BATCH_WORDS, 8)
        self._begin(emit, context, batch, now, outputs, rows)

        def place_of(row: Value) -> Value:
            return build.load(build.gep(places, [row], source_etype=POINTER), typ=POINTER)

        def length_of(row: Value) -> Value:
            return parking.frame_length(emit, place_of(row))

        with self._while_it_fits(emit, context, batch, count, result, length_of) as (row, _):
            packet, port, depth = parking.resume(emit, place_of(row), context, batch)
            build.call(self._egress.leave, [*packet, port, depth])

    def _exported(self, name: str, arguments: Sequence[ll.Type]) -> Emitter:
        function = ll.Function(self._unit.module, ll.FunctionType(I64, arguments), name)
        function.attributes.add("nounwind")
        return Emitter(self._unit, function)

    @contextmanager
    def _while_it_fits(
        self,
        emit: Emitter,
        context: Value,
        batch: Value,
        count: Value,
        result: Value,
        length_of: Callable[[Value], Value],
    ) -> Iterator[tuple[Value, Value]]:
        """Write the loop of an exported function around the run of a row, and its end; gives row and frame length.

        `length_of` writes how long the frame of a row is.
        """
        # A loop in LLVM: `head` tests the row, `check` asks whether its copies fit, `body` runs it.  `row` is a phi
        # node, which takes 0 from the block before the loop and row + 1 from the end of the body.
        around, build, before = self._around, emit.build, emit.build.block
        head, check, body, done = (emit.function.append_basic_block(name) for name in ("head", "check", "body", "done"))
        build.branch(head)
        build.position_at_end(head)
        row = build.phi(I64)
        row.add_incoming(constant(64, 0), before)
        build.cbranch(build.icmp_unsigned("<", row, count), check, done)
        build.position_at_end(check)
        length = length_of(row)
        fits = build.and_(
            self._fits(emit, context, batch, length), self._egress.parking.has_places(emit, context, length)
        )
        build.cbranch(fits, body, done)
        build.position_at_end(body)
        yield row, length
        if around.features.resubmits or around.features.recirculates:
            self._run_waiting(emit, context, batch)
        row.add_incoming(build.add(row, constant(64, 1)), build.block)
        build.branch(head)
        build.position_at_end(done)
        for offset, which in ((0, MADE), (8, DROPPED)):
            emit.store(around.word(emit, batch, which), emit.at(result, offset), 8)
        build.ret(row)

    def _begin(
        self, emit: Emitter, context: Value, batch: Value, now: Value, outputs: Sequence[Value], rows: Value
    ) -> None:
        around = self._around
        arena, arena_bytes, *columns = outputs
        none = constant(64, 0)
        words = [arena, arena_bytes, none, *columns, rows, none, none, now]
        words += [none] * (BATCH_WORDS - len(words))
        for which, value in enumerate(words):
            around.set_word(emit, batch, which, value)
        emit.store(now, emit.at(context, 8 * TIME), 8)

    def _fits(self, emit: Emitter, context: Value, batch: Value, length: Value) -> Value:
        """Return whether there is room for the most copies of a frame that `pipeline.room` counts."""
        around, build = self._around, emit.build
        copies = emit.context_word(context, COPIES, I64)
        needed = build.mul(copies, build.add(length, constant(64, self._unit.program.growth_bytes + ALIGN)))
        end = build.add(around.word(emit, batch, USED), needed)
        last = build.add(around.word(emit, batch, MADE), copies)
        return build.and_(
            build.icmp_unsigned("<=", end, around.word(emit, batch, ARENA_BYTES)),
            build.icmp_unsigned("<=", last, around.word(emit, batch, ROWS)),
        )

    def _run_waiting(self, emit: Emitter, context: Value, batch: Value) -> None:
        """Run the packets that were resubmitted or recirculated, and those that they become in turn."""
        # Places are used in order and never again for the same frame: `wait` stops adding when all are taken, which is
        # also the limit of passes.
        around, build, place = self._around, emit.build, self._around.waiting
        with emit.loop(lambda: around.word(emit, batch, WAITING_COUNT)) as number:
            start = emit.at(emit.context_word(context, WAITING), build.mul(number, constant(64, place.stride)))
            frame = emit.load(POINTER, emit.at(start, place.FRAME), 8)
            length = emit.load(I64, emit.at(start, place.LENGTH), 8)
            build.call(self._ingress, [context, batch, frame, length, start])
        around.set_word(emit, batch, WAITING_COUNT, constant(64, 0))

    def _write_ingress(self) -> None:
        """Write `enter`."""
        around, names = self._around, self._names
        emit = Emitter(self._unit, self._ingress)
        build = emit.build
        context, batch, frame, length, waited = self._ingress.args
        cursor = emit.stack(I64)
        packet = Passing(emit.context_word(context, LEVELS), context, batch, frame, length, cursor)
        self._parse(emit, packet, waited)
        # A new packet has a body of its own, which its first replica writes.
        around.set_word(emit, batch, BODY, constant(64, 0))
        for name in ("verify", "ingress"):
            around.run(emit, name, packet)
        if around.features.clones:
            self._clone(emit, packet)
        if around.features.resubmits:
            number = around.get(emit, packet.hot, names.resubmit, 32)
            with build.if_then(build.icmp_unsigned("!=", number, constant(32, 0))):
                self._egress.wait(emit, packet, frame, length, RESUBMITTED, number)
                build.ret_void()
        self._go_on(emit, packet)

    def _parse(self, emit: Emitter, packet: Passing, waited: Value) -> None:
        """Begin with fresh hot memory (the template), set the standard metadata, and parse the frame."""
        around, names = self._around, self._names
        emit.copy(packet.hot, emit.context_word(packet.context, TEMPLATE), around.layout.hot_bytes)
        emit.build.store(constant(64, 0), packet.cursor)
        self._set_origin(emit, packet, waited)
        around.set(emit, packet.hot, names.packet_length, packet.length)
        around.set(emit, packet.hot, names.length, packet.length)
        around.run(emit, "parser", packet)

    def _set_origin(self, emit: Emitter, packet: Passing, waited: Value) -> None:
        """Set the metadata with which a packet enters ingress: from a port, or from its life before."""
        around, build, names, place = self._around, emit.build, self._names, self._around.waiting

        def from_port() -> None:
            around.set(emit, packet.hot, names.ingress_port, around.word(emit, packet.batch, PORT))
            around.set(emit, packet.hot, names.ingress_timestamp, around.word(emit, packet.batch, NOW))

        # `waited` is null for a packet from a port; a program that never lets a packet wait needs no test.
        if not (around.features.resubmits or around.features.recirculates):
            from_port()
            return
        with build.if_else(build.icmp_unsigned("==", waited, ll.Constant(POINTER, None))) as (first, again):
            with first:
                from_port()
            with again:
                number = emit.load(I32, emit.at(waited, place.LIST), 8)
                kind = emit.load(I32, emit.at(waited, place.TYPE), 8)
                arguments = [packet.hot, emit.at(waited, place.HOT), packet.context, number, kind]
                build.call(around.restart(), arguments)

    def _clone(self, emit: Emitter, packet: Passing) -> None:
        """Send clones of a packet as it arrived: parsed anew, with its ingress port but without other metadata."""
        around, build, names = self._around, emit.build, self._names
        replicas, count, limit = self._egress.session(emit, packet)
        with build.if_then(build.icmp_unsigned("!=", count, constant(64, 0))):
            cursor = emit.stack(I64)
            build.store(constant(64, 0), cursor)
            # The clone is made one level above the packet, which goes on afterwards.
            hot = emit.at(packet.hot, around.layout.level_bytes)
            copy = Passing(hot, packet.context, packet.batch, packet.frame, packet.length, cursor)
            emit.copy(hot, emit.context_word(packet.context, TEMPLATE), around.layout.hot_bytes)
            around.set(emit, hot, names.ingress_port, around.word(emit, packet.batch, PORT))
            for name in ("parser", "verify"):
                around.run(emit, name, copy)
            number = around.get(emit, packet.hot, names.clone_list, 32)
            build.call(around.restart(), [hot, packet.hot, packet.context, number, constant(32, INGRESS_CLONE)])
            around.set(emit, hot, names.length, packet.length)
            self._replicate(emit, copy, replicas, count, limit)
        around.set(emit, packet.hot, names.clone, 0)

    def _go_on(self, emit: Emitter, packet: Passing) -> None:
        """Send a packet to its multicast group or its port, or drop it."""
        around, build, names = self._around, emit.build, self._names
        multicast, unicast, single, end = (
            emit.function.append_basic_block(name) for name in ("multicast", "unicast", "single", "end")
        )
        # As in BMv2 a multicast group takes precedence over egress_spec, even over the drop port; mark_to_drop clears
        # it.
        group = around.get(emit, packet.hot, names.mcast_grp)
        build.cbranch(build.icmp_unsigned("!=", group, constant(64, 0)), multicast, unicast)
        build.position_at_end(unicast)
        spec = around.get(emit, packet.hot, names.egress_spec, 32)
        build.cbranch(build.icmp_unsigned("==", spec, constant(32, self._unit.program.drop_port)), end, single)
        build.position_at_end(single)
        around.set(emit, packet.hot, names.instance_type, NORMAL)
        build.call(self._egress.leave, [*packet, spec, constant(32, 0)])
        build.branch(end)
        build.position_at_end(multicast)
        around.set(emit, packet.hot, names.instance_type, REPLICATION)
        known = build.icmp_unsigned("<=", group, constant(64, MAX_GROUP))
        group = build.select(known, group, constant(64, 0))  # the directory has no replicas for group 0
        entry = emit.at(emit.context_word(packet.context, DIRECTORY), build.mul(group, constant(64, 16)))
        replicas, count = emit.load(POINTER, entry, 8), emit.load(I64, emit.at(entry, 8), 8)
        self._replicate(emit, packet, replicas, count, constant(64, 0))
        build.branch(end)
        build.position_at_end(end)
        build.ret_void()

    def _replicate(self, emit: Emitter, packet: Passing, replicas: Value, count: Value, limit: Value) -> None:
        emit.build.call(self._egress.replicate, [*packet, replicas, count, limit, constant(32, 0)])
