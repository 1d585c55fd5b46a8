"""Egress and what follows it: replicas, clones, frames that leave, packets that enter ingress again.

`execution/traffic.py` defines what happens here (its steps 3 to 6), `driver.py` lists the functions.

`leave` may let the packet wait for its port (`parking.py`), and runs again when its turn comes.  It may call
`replicate` (for clones), and `replicate` calls `leave` for each copy.  The recursion is bounded:
`depth` counts clones of clones.  Each call works one *level* higher in the memory of packets.  A copy of a packet is a
copy of its hot memory alone.  Wide fields are pointers there, and the bytes behind them do not change while the copies
run, with one exception: the update of checksums may write bytes in place (`_keep_from_update`).
"""

from __future__ import annotations

import llvmlite.ir as ll

from ..program.passes.analysis import written
from ..program.v1model import EGRESS_CLONE, MAX_CLONE_DEPTH, QUEUE_SHIFT, RECIRCULATED
from ..queues.queues import PORTS as PORT_NUMBERS
from ..state.state import MAX_SESSION
from .around import (
    ADDRESSES,
    ARENA,
    ARENA_BYTES,
    BODIES,
    BODY,
    BODY_BYTES,
    BODY_HEADERS,
    DROPPED,
    HEADS,
    LENGTHS,
    MADE,
    NOW,
    PASSED,
    PASSING,
    PORTS,
    ROWS,
    USED,
    WAITING_COUNT,
    Around,
    Passing,
)
from .deparser import body_function, head_function, optional_headers
from .emitter import BYTE, I32, I64, POINTER, VOID, Emitter, Value, constant
from .layout import ALIGN, QUEUES, SESSIONS, WAITING
from .parking import Parking


class Egress:
    """The functions `leave` and `replicate`, which call each other, and `wait`."""

    def __init__(self, around: Around) -> None:
        self._around = around
        unit = around.unit
        self._write_head, self._write_body = head_function(unit), body_function(unit)
        self.parking = Parking(around)
        self.leave = unit.function("leave", VOID, [*PASSING, I32, I32])
        """(packet, port, depth): runs egress on a packet, and sends it unless egress drops it; or lets it wait."""
        self.replicate = unit.function("replicate", VOID, [*PASSING, POINTER, I64, I64, I32])
        """(packet, replicas, their number, limits, depth): makes a copy for each replica, one level above the packet,
        and calls `leave` for it.  The limits are the last word of a session in `CloneSessions.directory`."""
        for function in (self.leave, self.replicate):
            function.attributes.add("noinline")

    def emit(self) -> None:
        """Write the functions."""
        self.parking.emit()
        self._write_leave()
        self._write_replicate()

    def session(self, emit: Emitter, packet: Passing) -> tuple[Value, Value, Value]:
        """Return the replicas of the session that a packet is cloned to, their number, and their limits."""
        build = emit.build
        number = build.sub(self._around.get(emit, packet.hot, self._around.names.clone), constant(64, 1))
        known = build.icmp_unsigned("<=", number, constant(64, MAX_SESSION))
        number = build.select(known, number, constant(64, MAX_SESSION + 1))
        entry = emit.at(emit.context_word(packet.context, SESSIONS), build.mul(number, constant(64, 24)))
        return (
            emit.load(POINTER, entry, 8),
            emit.load(I64, emit.at(entry, 8), 8),
            emit.load(I64, emit.at(entry, 16), 8),
        )

    def wait(self, emit: Emitter, packet: Passing, frame: Value, length: Value, kind: int, number: Value) -> None:
        """Let a packet wait to enter ingress again, unless all passes are used; `number`: field list that it keeps."""
        around, build = self._around, emit.build
        place = around.waiting
        count = around.word(emit, packet.batch, WAITING_COUNT)
        passed = build.add(count, around.word(emit, packet.batch, PASSED))
        with build.if_then(build.icmp_unsigned("<", passed, constant(64, around.program.passes - 1))):
            start = emit.at(emit.context_word(packet.context, WAITING), build.mul(count, constant(64, place.stride)))
            emit.store(frame, emit.at(start, place.FRAME), 8)
            emit.store(length, emit.at(start, place.LENGTH), 8)
            emit.store(constant(32, kind), emit.at(start, place.TYPE), 8)
            emit.store(number, emit.at(start, place.LIST), 8)
            hot = emit.at(start, place.HOT)
            # A wide field's bytes may be in storage that the next packet overwrites, so that they are copied, too.
            emit.copy(hot, packet.hot, around.layout.hot_bytes)
            for slot, size in zip(place.wide, place.sizes, strict=True):
                offset = around.layout.pointers[slot]
                kept = emit.at(start, place.wide_offset(slot))
                emit.copy(kept, emit.load(POINTER, emit.at(hot, offset), 8), size)
                emit.store(kept, emit.at(hot, offset), 8)
            around.step(emit, packet.batch, WAITING_COUNT)

    def _write_leave(self) -> None:
        around, names = self._around, self._around.names
        emit = Emitter(around.unit, self.leave)
        build = emit.build
        packet = Passing(*self.leave.args[:6])
        port, depth = self.leave.args[6:]
        queue = constant(32, 0)
        if around.features.priorities:
            queue = around.get(emit, packet.hot, names.priority, 32)
            with build.if_then(build.icmp_unsigned(">=", queue, constant(32, around.program.queues))):
                build.ret_void()
        now = around.word(emit, packet.batch, NOW)
        around.set(emit, packet.hot, names.enqueue_timestamp, now)
        if around.features.queueing:
            self._tell_queue(emit, packet, port, queue)
        self.parking.wait(emit, packet, port, queue, depth)
        for slot, value in (
            (names.egress_timestamp, now),
            (names.egress_port, port),
            (names.egress_spec, around.program.drop_port + 1),  # any other port: egress drops by setting the drop port
            (names.packet_length, around.get(emit, packet.hot, names.length)),
        ):
            around.set(emit, packet.hot, slot, value)
        around.run(emit, "egress", packet)
        base, replicas, count, limit = self._begin_clone(emit, packet, depth)
        spec = around.get(emit, packet.hot, names.egress_spec, 32)
        with build.if_then(build.icmp_unsigned("!=", spec, constant(32, around.program.drop_port))):
            self._send(emit, packet, build.or_(port, build.shl(queue, constant(32, QUEUE_SHIFT))))
        if around.features.clones:
            arguments = [base, *packet[1:], replicas, count, limit, build.add(depth, constant(32, 1))]
            with build.if_then(build.icmp_unsigned("!=", count, constant(64, 0))):
                build.call(self.replicate, arguments)
        build.ret_void()

    def _tell_queue(self, emit: Emitter, packet: Passing, port: Value, queue: Value) -> None:
        """Write the state of the queue behind egress to a packet that does not wait before it."""
        around, build, names = self._around, emit.build, self._around.names
        now = around.word(emit, packet.batch, NOW)
        # A port that does not exist reads the queue of port 0, as in `Queues.state`.
        known = build.select(build.icmp_unsigned("<", port, constant(32, PORT_NUMBERS)), port, constant(32, 0))
        number = build.add(build.mul(known, constant(32, around.program.queues)), queue)
        offset = build.mul(emit.resize(number, 64), constant(64, 16))
        cell = emit.at(emit.context_word(packet.context, QUEUES), offset)
        depth, since = emit.load(I64, cell, 8), emit.load(I64, emit.at(cell, 8), 8)
        waits = build.icmp_unsigned("!=", depth, constant(64, 0))
        around.set(emit, packet.hot, names.enq_qdepth, depth)
        around.set(emit, packet.hot, names.deq_qdepth, depth)
        waited = build.select(waits, build.sub(now, since), constant(64, 0))
        around.set(emit, packet.hot, names.deq_timedelta, waited)
        around.set(emit, packet.hot, names.qid, queue)

    def _begin_clone(self, emit: Emitter, packet: Passing, depth: Value) -> tuple[Value, Value, Value, Value]:
        """Copy a packet that is to be cloned, before checksums are updated; return copy, replicas, count and limit."""
        around, build, names = self._around, emit.build, self._around.names
        base = emit.at(packet.hot, around.layout.level_bytes)
        if not around.features.clones:
            return base, base, constant(64, 0), constant(64, 0)
        replicas, count, limit = self.session(emit, packet)
        allowed = build.icmp_unsigned("<", depth, constant(32, MAX_CLONE_DEPTH))
        count = build.select(allowed, count, constant(64, 0))
        with build.if_then(build.icmp_unsigned("!=", count, constant(64, 0))):
            emit.copy(base, packet.hot, around.layout.hot_bytes)
            number = around.get(emit, packet.hot, names.clone_list, 32)
            build.call(around.restart(), [base, packet.hot, packet.context, number, constant(32, EGRESS_CLONE)])
            self._keep_from_update(emit, base)
            around.set(emit, base, names.length, around.get(emit, packet.hot, names.length))
        return base, replicas, count, limit

    def _keep_from_update(self, emit: Emitter, base: Value) -> None:
        """Give a clone its own bytes of the wide fields that the update of checksums may write in the packet."""
        program, layout = self._around.program, self._around.layout
        storage = emit.at(base, layout.hot_bytes)
        changed = [written(program, statement) for block in program.update for statement in block.statements]
        for slot in sorted(set().union(*changed) & layout.pointers.keys()):
            own, pointer = emit.at(storage, layout.storage[slot]), emit.at(base, layout.pointers[slot])
            emit.copy(own, emit.load(POINTER, pointer, 8), program.fields[slot].width // 8)
            emit.store(own, pointer, 8)

    def _send(self, emit: Emitter, packet: Passing, port: Value) -> None:
        """Deparse a packet into the arena; the frame leaves, or enters ingress again if it is recirculated."""
        around, build, names = self._around, emit.build, self._around.names
        # There is room for the copies that `Driver._fits` has counted; clones of clones and recirculated packets are
        # more.
        used = around.word(emit, packet.batch, USED)
        end = build.add(used, build.add(packet.length, constant(64, around.program.growth_bytes)))
        made, rows = around.word(emit, packet.batch, MADE), around.word(emit, packet.batch, ROWS)
        fits = build.icmp_unsigned("<=", end, around.word(emit, packet.batch, ARENA_BYTES))
        fits = build.and_(fits, build.icmp_unsigned("<", made, rows))
        with build.if_else(fits, likely=True) as (stored, dropped):
            with stored:
                around.run(emit, "update", packet)
                target = emit.at(around.word(emit, packet.batch, ARENA, POINTER), used)
                head = build.call(self._write_head, [packet.hot, target])
                body, size = self._put_body(emit, packet, emit.at(target, head))
                size = build.add(head, size)
                if around.features.recirculates:
                    number = around.get(emit, packet.hot, names.recirculate, 32)
                    with build.if_else(build.icmp_unsigned("!=", number, constant(32, 0))) as (again, out):
                        with again:
                            self._take(emit, packet, used, size)
                            self.wait(emit, packet, target, size, RECIRCULATED, number)
                        with out:
                            self._append(emit, packet, port, target, used, size, head, body)
                else:
                    self._append(emit, packet, port, target, used, size, head, body)
            with dropped:
                around.step(emit, packet.batch, DROPPED)

    def _put_body(self, emit: Emitter, packet: Passing, target: Value) -> tuple[Value, Value]:
        """Write the body unless another replica has it; return its address there (0: it was written), and its bytes.

        To copy the body of every replica costs more than the program itself, and workers on shared memory can all read
        the same body.
        """
        around, build = self._around, emit.build
        cursor = emit.load(I64, packet.cursor, 8)
        arguments = [packet.hot, packet.frame, packet.length, cursor, target]
        if not around.features.shares_bodies:
            return ll.Constant(POINTER, None), build.call(self._write_body, arguments)
        body = around.word(emit, packet.batch, BODY, POINTER)
        present = self._optional_headers_of(emit, packet.hot)
        is_other = build.icmp_unsigned("!=", present, around.word(emit, packet.batch, BODY_HEADERS))
        is_first = build.icmp_unsigned("==", body, ll.Constant(POINTER, None))
        body = build.select(is_other, ll.Constant(POINTER, None), body)
        with build.if_then(build.or_(is_first, is_other)):
            around.set_word(emit, packet.batch, BODY_HEADERS, present)
            around.set_word(emit, packet.batch, BODY_BYTES, build.call(self._write_body, arguments))
            around.set_word(emit, packet.batch, BODY, target)
        return body, around.word(emit, packet.batch, BODY_BYTES)

    def _optional_headers_of(self, emit: Emitter, hot: Value) -> Value:
        """Return a number with a bit for each header that egress may leave out and has not."""
        build, present = emit.build, constant(64, 0)
        for place, header in enumerate(optional_headers(self._around.program)):
            valid = emit.load(BYTE, emit.at(hot, self._around.layout.valid[header]))
            bit = build.select(
                build.icmp_unsigned("!=", valid, constant(8, 0)), constant(64, 1 << place), constant(64, 0)
            )
            present = build.or_(present, bit)
        return present

    def _append(
        self,
        emit: Emitter,
        packet: Passing,
        port: Value,
        target: Value,
        used: Value,
        size: Value,
        head: Value,
        body: Value,
    ) -> None:
        """Append a frame to the columns of the output."""
        around, build = self._around, emit.build
        if around.features.cuts or around.features.clones:
            # Without a limit `cut` is 0, and 0 - 1 is the largest number.
            limit = build.sub(around.get(emit, packet.hot, around.names.cut), constant(64, 1))
            size = build.select(build.icmp_unsigned("<", limit, size), limit, size)
        row = around.word(emit, packet.batch, MADE)
        for column, value, kind in (
            (PORTS, port, I32),
            (ADDRESSES, target, POINTER),
            (LENGTHS, emit.resize(size, 32), I32),
            (HEADS, emit.resize(head, 32), I32),
            (BODIES, body, POINTER),
        ):
            start = around.word(emit, packet.batch, column, POINTER)
            build.store(value, build.gep(start, [row], source_etype=kind))
        around.set_word(emit, packet.batch, MADE, build.add(row, constant(64, 1)))
        self._take(emit, packet, used, size)

    def _take(self, emit: Emitter, packet: Passing, used: Value, size: Value) -> None:
        """Mark bytes of the arena as used, rounded up so that the next frame is aligned."""
        build = emit.build
        padded = build.and_(build.add(size, constant(64, ALIGN - 1)), constant(64, -ALIGN))
        self._around.set_word(emit, packet.batch, USED, build.add(used, padded))

    def _write_replicate(self) -> None:
        around, names = self._around, self._around.names
        function = self.replicate
        emit = Emitter(around.unit, function)
        build = emit.build
        packet = Passing(*function.args[:6])
        replicas, count, limits, depth = function.args[6:]
        limit, queue = emit.resize(emit.resize(limits, 32), 64), build.lshr(limits, constant(64, 32))
        with emit.loop(lambda: count) as number:
            replica = build.gep(replicas, [build.mul(number, constant(64, 8))], source_etype=BYTE)
            port, instance = emit.load(I32, replica, 4), emit.load(I32, emit.at(replica, 4), 4)
            copy = emit.at(packet.hot, around.layout.level_bytes)
            emit.copy(copy, packet.hot, around.layout.hot_bytes)
            # Requests to clone, resubmit or recirculate belong to the packet; its copies do not inherit them.
            for slot, used in (
                (names.clone, around.features.clones),
                (names.resubmit, around.features.resubmits),
                (names.recirculate, around.features.recirculates),
            ):
                if used:
                    around.set(emit, copy, slot, 0)
            if around.features.cuts or around.features.clones:
                limited = build.icmp_unsigned("!=", limit, constant(64, 0))
                around.set(emit, copy, names.cut, build.add(limit, emit.resize(limited, 64)))
            if around.features.clones and around.features.priorities:
                own = around.get(emit, copy, names.priority)
                is_own = build.icmp_unsigned("==", queue, constant(64, 0))
                around.set(emit, copy, names.priority, build.select(is_own, own, queue))
            around.set(emit, copy, names.egress_rid, instance)
            build.call(self.leave, [copy, *packet[1:], port, depth])
        build.ret_void()
