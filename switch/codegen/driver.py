"""The switch around the program: from a batch of frames to the frames that go out."""

from __future__ import annotations

from dataclasses import dataclass

import llvmlite.ir as ll

from switchsum.switch.codegen.deparser import deparser_function
from switchsum.switch.codegen.emitter import I32, I64, POINTER, Emitter, Unit, Value, constant, integer
from switchsum.switch.codegen.graphs import graph_function
from switchsum.switch.codegen.layout import (
    ALIGN,
    DIRECTORY,
    HOT,
    HOT_COPY,
    LARGEST_GROUP,
    STORAGE,
    STORAGE_COPY,
    TEMPLATE,
    machine_bytes,
)
from switchsum.switch.passes.analysis import GRAPHS
from switchsum.switch.state import MAX_GROUP
from switchsum.switch.v1model import DROP_PORT, NORMAL, REPLICATION

ENTRY = "switch_batch"
"""Name of the exported function; `ARGUMENTS` are its parameters, its result the number of frames that ran (32 bits)."""

ARGUMENTS: tuple[ll.Type, ...] = (
    *(POINTER, POINTER, POINTER, POINTER, I32, I64),  # context; addresses, lengths, ports of frames, count; now
    *(POINTER, I64),  # arena, its bytes
    *(POINTER, POINTER, POINTER, I32, POINTER),  # ports, addresses, lengths that go out, rows; where to put the count
)


@dataclass(slots=True)
class _Frame:
    """What the parts of the driver need to know of the frame at hand."""

    context: Value
    frame: Value
    length: Value
    cursor: Value
    now: Value


class Driver:
    """Builds the functions around the graphs."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._names = unit.program.intrinsics
        self._graphs = {name: graph_function(unit, name) for name in GRAPHS}
        self._deparse = deparser_function(unit)
        self._leave = self._make_leave()

    def emit(self) -> None:
        """Make the exported function."""
        function = ll.Function(self._unit.module, ll.FunctionType(I32, ARGUMENTS), ENTRY)
        function.attributes.add("nounwind")
        emit = Emitter(self._unit, function)
        build = emit.build
        context, addresses, lengths, ports, count, now, arena, arena_bytes, *outputs, rows, made = function.args
        used, cursor = emit.stack(I64), emit.stack(I64)
        build.store(constant(64, 0), used)
        build.store(constant(32, 0), made)
        before = build.block
        head, room, body, following, done = (
            function.append_basic_block(name) for name in ("head", "room", "body", "following", "done")
        )
        build.branch(head)
        build.position_at_end(head)
        index = build.phi(I32)
        index.add_incoming(constant(32, 0), before)
        build.cbranch(build.icmp_unsigned("<", index, count), room, done)

        build.position_at_end(room)
        row = emit.resize(index, 64)
        length = emit.resize(build.load(build.gep(lengths, [row], source_etype=I32), typ=I32), 64)
        copies = emit.context_word(context, LARGEST_GROUP, I64)
        growth = sum(self._unit.program.headers[header].width // 8 for header in self._unit.program.deparser)
        needed = build.mul(copies, build.add(length, constant(64, growth + ALIGN)))
        fits = build.icmp_unsigned("<=", build.add(build.load(used, typ=I64), needed), arena_bytes)
        all_rows = build.add(emit.resize(build.load(made, typ=I32), 64), copies)
        fits = build.and_(fits, build.icmp_unsigned("<=", all_rows, emit.resize(rows, 64)))
        build.cbranch(fits, body, done)

        build.position_at_end(body)
        frame = build.load(build.gep(addresses, [row], source_etype=POINTER), typ=POINTER)
        port = build.load(build.gep(ports, [row], source_etype=I32), typ=I32)
        self._one(emit, _Frame(context, frame, length, cursor, now), port, [arena, used, *outputs, made], following)

        build.position_at_end(following)
        index.add_incoming(build.add(index, constant(32, 1)), following)
        build.branch(head)
        build.position_at_end(done)
        build.ret(index)

    def _one(self, emit: Emitter, packet: _Frame, port: Value, outputs: list[Value], following: ll.Block) -> None:
        """Run one frame and send off what becomes of it."""
        build, names = emit.build, self._names
        hot = emit.context_word(packet.context, HOT)
        storage = emit.context_word(packet.context, STORAGE)
        emit.copy(hot, emit.context_word(packet.context, TEMPLATE), self._unit.layout.hot_bytes)
        build.store(constant(64, 0), packet.cursor)
        for slot, value in (
            (names.ingress_port, port),
            (names.packet_length, packet.length),
            (names.length, packet.length),
            (names.ingress_timestamp, packet.now),
        ):
            self._set(emit, hot, slot, value)
        for name in ("parser", "verify", "ingress"):
            self._call_graph(emit, name, hot, storage, packet)

        group = emit.resize(self._get(emit, hot, names.mcast_grp), 64)
        multicast, unicast, single = (
            emit.function.append_basic_block(name) for name in ("multicast", "unicast", "single")
        )
        build.cbranch(build.icmp_unsigned("!=", group, constant(64, 0)), multicast, unicast)
        build.position_at_end(unicast)
        spec = self._get(emit, hot, names.egress_spec)
        dropped = build.icmp_unsigned("==", emit.resize(spec, 32), constant(32, DROP_PORT))
        build.cbranch(dropped, following, single)
        build.position_at_end(single)
        self._set(emit, hot, names.instance_type, constant(32, NORMAL))
        self._send(emit, packet, hot, storage, emit.resize(spec, 32), outputs)
        build.branch(following)
        build.position_at_end(multicast)
        self._replicate(emit, packet, hot, group, outputs, following)

    def _replicate(
        self, emit: Emitter, packet: _Frame, hot: Value, group: Value, outputs: list[Value], following: ll.Block
    ) -> None:
        """Send a copy for each replica of a group."""
        build, names = emit.build, self._names
        known = build.icmp_unsigned("<=", group, constant(64, MAX_GROUP))
        group = build.select(known, group, constant(64, 0))
        entry = emit.at(emit.context_word(packet.context, DIRECTORY), build.mul(group, constant(64, 16)))
        replicas, count = emit.load(POINTER, entry, 8), emit.load(I64, emit.at(entry, 8), 8)
        copy, storage = (emit.context_word(packet.context, word) for word in (HOT_COPY, STORAGE_COPY))
        head, body = (emit.function.append_basic_block(name) for name in ("replicas", "replica"))
        before = build.block
        build.branch(head)
        build.position_at_end(head)
        number = build.phi(I64)
        number.add_incoming(constant(64, 0), before)
        build.cbranch(build.icmp_unsigned("<", number, count), body, following)
        build.position_at_end(body)
        replica = emit.at(replicas, build.mul(number, constant(64, 8)))
        port, instance = emit.load(I32, replica, 4), emit.load(I32, emit.at(replica, 4), 4)
        emit.copy(copy, hot, self._unit.layout.hot_bytes)
        self._set(emit, copy, names.instance_type, constant(32, REPLICATION))
        self._set(emit, copy, names.egress_rid, instance)
        self._send(emit, packet, copy, storage, port, outputs)
        number.add_incoming(build.add(number, constant(64, 1)), build.block)
        build.branch(head)

    def _send(
        self, emit: Emitter, packet: _Frame, hot: Value, storage: Value, port: Value, outputs: list[Value]
    ) -> None:
        """Run egress; append what leaves to the outputs."""
        build = emit.build
        arena, used, out_ports, out_addresses, out_lengths, made = outputs
        start = build.load(used, typ=I64)
        target = emit.at(arena, start)
        arguments = [hot, storage, packet.context, packet.frame, packet.length, packet.cursor, port, packet.now, target]
        length = build.call(self._leave, arguments)
        with build.if_then(build.icmp_signed(">=", length, constant(64, 0))):
            row = emit.resize(build.load(made, typ=I32), 64)
            build.store(port, build.gep(out_ports, [row], source_etype=I32))
            build.store(target, build.gep(out_addresses, [row], source_etype=POINTER))
            build.store(emit.resize(length, 32), build.gep(out_lengths, [row], source_etype=I32))
            build.store(emit.resize(build.add(row, constant(64, 1)), 32), made)
            padded = build.and_(build.add(length, constant(64, ALIGN - 1)), constant(64, -ALIGN))
            build.store(build.add(start, padded), used)

    def _make_leave(self) -> ll.Function:
        """Make the function that runs egress on a packet and writes it; returns its length, or -1 if it is dropped."""
        function = self._unit.function(
            "leave", I64, [POINTER, POINTER, POINTER, POINTER, I64, POINTER, I32, I64, POINTER]
        )
        function.attributes.add("noinline")
        emit = Emitter(self._unit, function)
        build, names = emit.build, self._names
        hot, storage, context, frame, length, cursor, port, now, target = function.args
        packet = _Frame(context, frame, length, cursor, now)
        for slot, value in (
            (names.egress_timestamp, now),
            (names.enqueue_timestamp, now),
            (names.egress_port, port),
            (names.egress_spec, constant(32, DROP_PORT + 1)),
            (names.packet_length, self._get(emit, hot, names.length)),
        ):
            self._set(emit, hot, slot, value)
        self._call_graph(emit, "egress", hot, storage, packet)
        spec = self._get(emit, hot, names.egress_spec)
        with build.if_then(build.icmp_unsigned("==", emit.resize(spec, 32), constant(32, DROP_PORT))):
            build.ret(constant(64, -1))
        self._call_graph(emit, "update", hot, storage, packet)
        size = build.call(self._deparse, [hot, frame, length, emit.load(I64, cursor, 8), target])
        cut = emit.resize(self._get(emit, hot, names.cut), 64)
        limit = build.sub(cut, constant(64, 1))  # no cut: the largest number
        build.ret(build.select(build.icmp_unsigned("<", limit, size), limit, size))
        return function

    def _call_graph(self, emit: Emitter, name: str, hot: Value, storage: Value, packet: _Frame) -> None:
        arguments = [hot, storage, packet.context, packet.frame, packet.length, packet.cursor]
        emit.build.call(self._graphs[name], arguments)

    def _get(self, emit: Emitter, hot: Value, slot: int) -> Value:
        size = machine_bytes(self._unit.program.fields[slot].width)
        address = emit.at(hot, self._unit.layout.metadata[slot])
        return emit.load(integer(8 * size), address, size)

    def _set(self, emit: Emitter, hot: Value, slot: int, value: Value) -> None:
        """Store the low bits of a number in a standard field."""
        width = self._unit.program.fields[slot].width
        size = machine_bytes(width)
        kept = emit.resize(emit.resize(value, width), 8 * size)
        emit.store(kept, emit.at(hot, self._unit.layout.metadata[slot]), size)
