"""Meters in native code; `state/meters.py` defines them (`Meter.execute`)."""

from __future__ import annotations

from ..state.meters import (
    BURST,
    COMMITTED,
    CONFIGURED,
    COUNTS,
    GREEN,
    LAST,
    MICRO,
    ONE_RATE,
    PEAK,
    RATE,
    RED,
    TOKENS,
    YELLOW,
    MeterUnit,
)
from .emitter import I32, I64, POINTER, Emitter, Unit, Value, constant


def colour_of(emit: Emitter, cell: Value, unit: MeterUnit, frame_bytes: Value, now_us: Value) -> Value:
    """Pass a packet through the cell of a meter; return its colour, 32 bits."""
    needed = constant(64, MICRO)
    if unit is MeterUnit.BYTES:
        needed = emit.build.mul(frame_bytes, needed)
    colour = emit.build.call(emit.unit.helper("meter", lambda: _write(emit.unit)), [cell, needed, now_us])
    counts = emit.at(
        cell, emit.build.add(constant(64, 8 * COUNTS), emit.build.shl(emit.resize(colour, 64), constant(64, 4)))
    )
    for offset, amount in ((0, constant(64, 1)), (8, frame_bytes)):
        place = emit.at(counts, offset)
        emit.store(emit.build.add(emit.load(I64, place, 8), amount), place, 8)
    return colour


def _write(unit: Unit) -> Value:
    """Return the function (cell, tokens that the packet needs, time) -> colour."""
    function = unit.function("meter", I32, [POINTER, I64, I64])
    emit = Emitter(unit, function)
    build = emit.build
    cell, needed, now = function.args

    def load(word: int) -> Value:
        return emit.load(I64, emit.at(cell, 8 * word), 8)

    def store(word: int, value: Value) -> None:
        emit.store(value, emit.at(cell, 8 * word), 8)

    configured = load(CONFIGURED)
    with build.if_then(build.icmp_unsigned("==", configured, constant(64, 0))):
        build.ret(constant(32, GREEN))
    of_one = build.icmp_unsigned("==", configured, constant(64, ONE_RATE))
    last = load(LAST)
    later = build.icmp_unsigned(">", now, last)
    elapsed = build.select(later, build.sub(now, last), constant(64, 0))
    store(LAST, build.add(last, elapsed))
    # In 128 bits nothing overflows, even after years at the highest rate.
    filled, burst = {}, {}
    for bucket in (PEAK, COMMITTED):
        earned = build.mul(emit.resize(elapsed, 128), emit.resize(load(bucket + RATE), 128))
        filled[bucket] = build.add(emit.resize(load(bucket + TOKENS), 128), earned)
        burst[bucket] = emit.resize(load(bucket + BURST), 128)
    over = build.icmp_unsigned(">", filled[COMMITTED], burst[COMMITTED])
    rest = build.select(over, build.sub(filled[COMMITTED], burst[COMMITTED]), constant(128, 0))
    excess = build.add(emit.resize(load(PEAK + TOKENS), 128), rest)
    filled[PEAK] = build.select(of_one, excess, filled[PEAK])
    tokens, enough = {}, {}
    for bucket in (PEAK, COMMITTED):
        fits = build.icmp_unsigned("<", filled[bucket], burst[bucket])
        tokens[bucket] = emit.resize(build.select(fits, filled[bucket], burst[bucket]), 64)
        enough[bucket] = build.icmp_unsigned(">=", tokens[bucket], needed)
    green = build.and_(enough[COMMITTED], build.or_(of_one, enough[PEAK]))
    # A green packet pays from the committed bucket, and with two rates from the peak bucket as well.
    pays = {PEAK: build.and_(enough[PEAK], build.not_(build.and_(green, of_one))), COMMITTED: green}
    for bucket, before in tokens.items():
        store(bucket + TOKENS, build.select(pays[bucket], build.sub(before, needed), before))
    other = build.select(enough[PEAK], constant(32, YELLOW), constant(32, RED))
    build.ret(build.select(green, constant(32, GREEN), other))
    return function
