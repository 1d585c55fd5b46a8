"""Between ingress and egress: a packet that waits for its port is written to a place, and read from there for egress.

`queues/parking.py` describes pools and places.  A place must stand by itself, for what a packet refers to changes while
it waits: the frame's memory is used again, and registers are written.  So the payload is copied, and so are the bytes
of each wide field, wherever its pointer leads.
"""

from __future__ import annotations

import llvmlite.ir as ll

from ..queues.parking import (
    BYTES,
    CLONE_DEPTH,
    CURSOR,
    DEQ_DEPTH,
    ENQ_DEPTH,
    ENQUEUED_US,
    FRAME_BYTES,
    FRAME_LENGTH,
    FREE,
    HELD,
    LOST,
    ORIGIN,
    PASSED,
    PLACES,
    PORT,
    QUEUE,
)
from ..queues.queues import PORTS as PORT_NUMBERS
from . import around as words
from .around import PASSING, Around, Passing
from .emitter import BIT, BYTE, I32, I64, POINTER, Emitter, Value, constant
from .layout import COPIES, LEVELS, POOL, ZEROS, PlaceLayout, place_layout


class Parking:
    """The function `turn`, which stands between ingress and egress, and what leads to it."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self.place: PlaceLayout = place_layout(around.program, around.layout)
        self._turn = around.unit.function("turn", BIT, [*PASSING, I32, I32, I32])
        """(packet, port, queue, depth): writes a packet to a free place if its port is held; returns whether it was
        held.  Otherwise, if the packet comes from its place, tells it how it has waited."""
        self._turn.attributes.add("noinline")

    def emit(self) -> None:
        """Write the function."""
        emit = Emitter(self._around.unit, self._turn)
        packet = Passing(*self._turn.args[:6])
        port, queue, depth = self._turn.args[6:]
        self._tell(emit, packet, queue)
        self._park(emit, packet, port, queue, depth)

    def has_places(self, emit: Emitter, context: Value, length: Value) -> Value:
        """Return whether the pool, if there is one, has places for the most copies of a frame of that length."""
        build, pool = emit.build, emit.context_word(context, POOL)
        before = build.block
        with build.if_then(self._exists(emit, pool)):
            asked = build.block
            enough = build.and_(
                build.icmp_unsigned(">=", self._word(emit, pool, FREE), emit.context_word(context, COPIES, I64)),
                build.icmp_unsigned("<=", length, self._word(emit, pool, FRAME_BYTES)),
            )
        fits = build.phi(BIT)
        fits.add_incoming(constant(1, 1), before)
        fits.add_incoming(enough, asked)
        return fits

    def wait(self, emit: Emitter, packet: Passing, port: Value, queue: Value, depth: Value) -> None:
        """Write a packet to a place and return from the function, if its port is held and it has not waited yet."""
        build = emit.build
        # One test that fails for nearly every packet of a switch whose ports have no rates.
        pool = emit.context_word(packet.context, POOL, I64)
        either = build.or_(pool, self._around.word(emit, packet.batch, words.PLACE))
        with build.if_then(build.icmp_unsigned("!=", either, constant(64, 0)), likely=False):
            waits = build.call(self._turn, [*packet, port, queue, depth])
            with build.if_then(waits):
                build.ret_void()

    def resume(self, emit: Emitter, place: Value, context: Value, batch: Value) -> tuple[Passing, Value, Value]:
        """Read a packet from its place; return it, its port and the depth of clones."""
        around, build = self._around, emit.build
        hot = emit.context_word(context, LEVELS)
        emit.copy(hot, emit.at(place, self.place.HOT), self.place.hot_bytes)
        cursor = emit.stack(I64)
        build.store(self._word(emit, place, CURSOR), cursor)
        for to, which in ((words.PORT, ORIGIN), (words.PASSED, PASSED)):
            around.set_word(emit, batch, to, self._word(emit, place, which))
        around.set_word(emit, batch, words.BODY, constant(64, 0))
        around.set_word(emit, batch, words.PLACE, place)
        frame, length = emit.at(place, self.place.frame), self._word(emit, place, FRAME_LENGTH)
        packet = Passing(hot, context, batch, frame, length, cursor)
        port, depth = self._word(emit, place, PORT), self._word(emit, place, CLONE_DEPTH)
        return packet, emit.resize(port, 32), emit.resize(depth, 32)

    def frame_length(self, emit: Emitter, place: Value) -> Value:
        """Return the bytes of the frame of a packet that waits."""
        return self._word(emit, place, FRAME_LENGTH)

    def _exists(self, emit: Emitter, pool: Value) -> Value:
        return emit.build.icmp_unsigned("!=", pool, ll.Constant(POINTER, None))

    def _word(self, emit: Emitter, record: Value, which: int, kind: ll.Type = I64) -> Value:
        return emit.load(kind, emit.at(record, 8 * which), 8)

    def _set_word(self, emit: Emitter, record: Value, which: int, value: Value) -> None:
        emit.store(value, emit.at(record, 8 * which), 8)

    def _tell(self, emit: Emitter, packet: Passing, queue: Value) -> None:
        """Write to a packet that comes from its place how it has waited, and return from the function."""
        around, build, names = self._around, emit.build, self._around.names
        place = around.word(emit, packet.batch, words.PLACE, POINTER)
        with build.if_then(self._exists(emit, place)):
            # The copies that egress makes of the packet have not waited.
            around.set_word(emit, packet.batch, words.PLACE, constant(64, 0))
            since = self._word(emit, place, ENQUEUED_US)
            around.set(emit, packet.hot, names.enqueue_timestamp, since)
            if around.features.queueing:
                around.set(emit, packet.hot, names.enq_qdepth, self._word(emit, place, ENQ_DEPTH))
                around.set(emit, packet.hot, names.deq_qdepth, self._word(emit, place, DEQ_DEPTH))
                waited = build.sub(around.word(emit, packet.batch, words.NOW), since)
                around.set(emit, packet.hot, names.deq_timedelta, waited)
                around.set(emit, packet.hot, names.qid, queue)
            build.ret(constant(1, 0))

    def _park(self, emit: Emitter, packet: Passing, *waiting: Value) -> None:
        """Write a packet to a place if its port is held, and return whether it is; `waiting`: port, queue, depth."""
        around, build = self._around, emit.build
        port, queue, depth = (emit.resize(number, 64) for number in waiting)
        pool = emit.context_word(packet.context, POOL)
        known = build.icmp_unsigned("<", port, constant(64, PORT_NUMBERS))
        held = emit.load(
            BYTE, emit.at(self._word(emit, pool, HELD, POINTER), build.select(known, port, constant(64, 0)))
        )
        with build.if_then(build.not_(build.and_(known, build.icmp_unsigned("!=", held, constant(8, 0))))):
            build.ret(constant(1, 0))
        free = self._word(emit, pool, FREE)
        # The driver has counted places for the usual copies of a frame; clones of clones and packets that enter
        # ingress again may be more, or longer.
        fits = build.icmp_unsigned("<=", packet.length, self._word(emit, pool, FRAME_BYTES))
        with build.if_then(build.or_(build.not_(fits), build.icmp_unsigned("==", free, constant(64, 0)))):
            self._set_word(emit, pool, LOST, build.add(self._word(emit, pool, LOST), constant(64, 1)))
            build.ret(constant(1, 1))
        free = build.sub(free, constant(64, 1))
        self._set_word(emit, pool, FREE, free)
        place = build.load(build.gep(self._word(emit, pool, PLACES, POINTER), [free], source_etype=I64), typ=POINTER)
        cursor = emit.load(I64, packet.cursor, 8)
        passed = build.add(
            around.word(emit, packet.batch, words.PASSED), around.word(emit, packet.batch, words.WAITING_COUNT)
        )
        for which, value in (
            (PORT, port),
            (QUEUE, queue),
            (BYTES, around.get(emit, packet.hot, around.names.length)),
            (ENQUEUED_US, around.word(emit, packet.batch, words.NOW)),
            (ENQ_DEPTH, constant(64, 0)),
            (DEQ_DEPTH, constant(64, 0)),
            (FRAME_LENGTH, packet.length),
            (CURSOR, cursor),
            (CLONE_DEPTH, depth),
            (PASSED, passed),
            (ORIGIN, around.word(emit, packet.batch, words.PORT)),
        ):
            self._set_word(emit, place, which, value)
        hot = emit.at(place, self.place.HOT)
        emit.copy(hot, packet.hot, self.place.hot_bytes)
        self._keep_wide_fields(emit, packet, place)
        # Only the payload is read again, for each wide field has its own bytes now.
        payload = emit.at(emit.at(place, self.place.frame), cursor)
        emit.copy(payload, emit.at(packet.frame, cursor), build.sub(packet.length, cursor))
        build.ret(constant(1, 1))

    def _keep_wide_fields(self, emit: Emitter, packet: Passing, place: Value) -> None:
        """Copy the bytes of each wide field to a place; pointers to the cell of zeros stay as they are."""
        if not self.place.pointers:
            return
        build = emit.build
        zeros = emit.context_word(packet.context, ZEROS)
        # A loop over a table of offsets and sizes: a program may have a hundred such fields.
        table = b"".join(
            number.to_bytes(8, "little")
            for row in zip(self.place.pointers, self.place.wide, self.place.sizes, strict=True)
            for number in row
        )
        rows = self._around.unit.constant_bytes(table)
        with emit.loop(lambda: constant(64, len(self.place.pointers))) as number:
            row = emit.at(rows, build.mul(number, constant(64, 24)))
            pointer, offset, size = (emit.load(I64, emit.at(row, start), 8) for start in (0, 8, 16))
            source = emit.load(POINTER, emit.at(packet.hot, pointer), 8)
            with build.if_then(build.icmp_unsigned("!=", source, zeros)):
                own = emit.at(place, offset)
                emit.copy(own, source, size)
                emit.store(own, emit.at(emit.at(place, self.place.HOT), pointer), 8)
