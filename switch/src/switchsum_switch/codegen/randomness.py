"""Random numbers: xorshift64*, as `ProgramState.next_random` computes it."""

from __future__ import annotations

from ..state.state import RANDOM_FACTOR
from .emitter import I64, Emitter, Value, constant
from .layout import RANDOM


def next_random(emit: Emitter, context: Value, wanted: Value) -> Value:
    """Advance the generator if `wanted` is 1, and return its next 64 bits."""
    build, generator = emit.build, emit.context_word(context, RANDOM)
    old = emit.load(I64, generator, 8)
    state = old
    for shift, amount in ((build.lshr, 12), (build.shl, 25), (build.lshr, 27)):
        state = build.xor(state, shift(state, constant(64, amount)))
    emit.store(build.select(wanted, state, old), generator, 8)
    return build.mul(state, constant(64, RANDOM_FACTOR))


def draw(emit: Emitter, context: Value, low: Value, high: Value, wanted: Value) -> Value:
    """Return a random number from `low` to `high`, 64 bits each; nothing is drawn unless `wanted` is 1."""
    # The number is scaled to the range in 136 bits, so that nothing overflows.
    build = emit.build
    number = emit.resize(next_random(emit, context, wanted), 136)
    span = build.add(emit.resize(build.sub(high, low), 136), constant(136, 1))
    return build.add(low, emit.resize(build.lshr(build.mul(number, span), constant(136, 64)), 64))
