"""Meters in native code; `switch/meters.py` defines them (`Meter.execute`)."""

from __future__ import annotations

from ..meters import (
    BURST,
    COMMITTED,
    CONFIGURED,
    GREEN,
    LAST,
    MICRO,
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
    return emit.build.call(emit.unit.helper("meter", lambda: _write(emit.unit)), [cell, needed, now_us])


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

    with build.if_then(build.icmp_unsigned("==", load(CONFIGURED), constant(64, 0))):
        build.ret(constant(32, GREEN))
    last = load(LAST)
    later = build.icmp_unsigned(">", now, last)
    elapsed = build.select(later, build.sub(now, last), constant(64, 0))
    store(LAST, build.add(last, elapsed))
    enough = {}
    left = {}
    for bucket in (PEAK, COMMITTED):
        # In 128 bits nothing overflows, even after years at the highest rate.
        earned = build.mul(emit.resize(elapsed, 128), emit.resize(load(bucket + RATE), 128))
        filled = build.add(emit.resize(load(bucket + TOKENS), 128), earned)
        burst = emit.resize(load(bucket + BURST), 128)
        tokens = emit.resize(build.select(build.icmp_unsigned("<", filled, burst), filled, burst), 64)
        enough[bucket] = build.icmp_unsigned(">=", tokens, needed)
        left[bucket] = tokens, build.sub(tokens, needed)
    passes = {PEAK: enough[PEAK], COMMITTED: build.and_(enough[PEAK], enough[COMMITTED])}
    for bucket, (before, after) in left.items():
        store(bucket + TOKENS, build.select(passes[bucket], after, before))
    colour = build.select(passes[COMMITTED], constant(32, GREEN), constant(32, YELLOW))
    build.ret(build.select(passes[PEAK], colour, constant(32, RED)))
    return function
