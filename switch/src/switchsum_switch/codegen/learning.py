"""Records of digests; `state/digests.py` defines their form."""

from __future__ import annotations

from collections.abc import Sequence

from ..state.digests import CAPACITY, HEAD_BYTES, record_bytes, value_bytes
from .emitter import I64, Emitter, Value, constant


def append_record(emit: Emitter, memory: Value, values: Sequence[Value]) -> None:
    """Append a record to a digest's memory, or count it as lost."""
    build = emit.build
    count = emit.load(I64, memory, 8)
    fits = build.icmp_unsigned("<", count, constant(64, CAPACITY))
    with build.if_else(fits, likely=True) as (stored, full):
        with stored:
            size = record_bytes([value.type.width for value in values])
            place = emit.at(emit.at(memory, HEAD_BYTES), build.mul(count, constant(64, size)))
            for value in values:
                whole = value_bytes(value.type.width)
                emit.store_network(emit.resize(value, 8 * whole), place)
                place = emit.at(place, whole)
            emit.store(build.add(count, constant(64, 1)), memory, 8)
        with full:
            lost = emit.at(memory, 8)
            emit.store(build.add(emit.load(I64, lost, 8), constant(64, 1)), lost, 8)
