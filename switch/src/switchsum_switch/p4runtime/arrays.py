"""Indexed counters, meters and registers: CounterEntry, MeterEntry and RegisterEntry (P4Runtime, 9.4 to 9.8).

simple_switch_grpc answers UNIMPLEMENTED for registers; this switch reads and writes them.  Each `write` returns a
function that takes the write back, for atomic batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy.typing as npt

from switchsum_switch.messages.p4runtime import Code, v1

from .refusal import Refused, invalid
from .schema import Schema, lookup
from .table_entries import MODIFY
from .targets import Undo
from .translate import (
    check_colours,
    decode_counts,
    decode_rates,
    decode_register,
    encode_colours,
    encode_counts,
    encode_rates,
    encode_register,
)

Array = TypeVar("Array")


class Counters:
    """The indexed counters of one program; every method is called under the program's lock."""

    def __init__(self, schema: Schema) -> None:
        self._counters = schema.counters

    def write(self, kind: int, message: Any) -> Undo:
        """Carry out an update of a CounterEntry; without an index, of all cells."""
        _require_modify("counters", kind)
        counter = lookup("counter", self._counters, message.counter_id)
        cells = _cells(message, counter.size, counter.name)
        memory = counter.counts[cells.start : cells.stop]
        undo = _restoring(memory)
        if message.HasField("data"):
            memory[:] = decode_counts(message.data)
        return undo

    def read(self, query: Any) -> Iterator[Any]:
        """Yield the counter cells that a CounterEntry selects."""
        for identifier, counter in _selected("counter", self._counters, query.counter_id, query):
            for index in _cells(query, counter.size, counter.name):
                message = v1.CounterEntry(counter_id=identifier, data=encode_counts(*counter.read(index)))
                message.index.index = index
                yield message


class Meters:
    """The indexed meters of one program; every method is called under the program's lock."""

    def __init__(self, schema: Schema) -> None:
        self._meters = schema.meters

    def write(self, kind: int, message: Any) -> Undo:
        """Carry out an update of a MeterEntry; without an index, of all cells, without a config, to always green."""
        _require_modify("meters", kind)
        schema = lookup("meter", self._meters, message.meter_id)
        meter = schema.meter
        check_colours(message.counter_data)
        cells = _cells(message, meter.size, meter.name)
        rates = decode_rates(message.config, schema.kind) if message.HasField("config") else None
        undo = _restoring(meter.cells[cells.start : cells.stop])
        for index in cells:
            meter.configure(index, rates)
            if message.HasField("counter_data"):
                meter.clear_counts(index)
        return undo

    def read(self, query: Any) -> Iterator[Any]:
        """Yield the meter cells that a MeterEntry selects; a cell that is not configured has no config."""
        for identifier, schema in _selected("meter", self._meters, query.meter_id, query):
            meter = schema.meter
            for index in _cells(query, meter.size, meter.name):
                message = v1.MeterEntry(meter_id=identifier)
                message.index.index = index
                if (rates := meter.rates(index)) is not None:
                    message.config.CopyFrom(encode_rates(rates))
                if query.HasField("counter_data"):
                    message.counter_data.CopyFrom(encode_colours(meter, index))
                yield message


class Registers:
    """The registers of one program; every method is called under the program's lock."""

    def __init__(self, schema: Schema) -> None:
        self._registers = schema.registers

    def write(self, kind: int, message: Any) -> Undo:
        """Carry out an update of a RegisterEntry; without an index, of all cells."""
        _require_modify("registers", kind)
        schema = lookup("register", self._registers, message.register_id)
        register = schema.register
        cells = _cells(message, register.size, register.name)
        value = decode_register(schema, message.data)
        undo = _restoring(register.memory[cells.start * register.stride : cells.stop * register.stride])
        for index in cells:
            register.write(index, value)
        return undo

    def read(self, query: Any) -> Iterator[Any]:
        """Yield the register cells that a RegisterEntry selects."""
        for identifier, schema in _selected("register", self._registers, query.register_id, query):
            register = schema.register
            for index in _cells(query, register.size, register.name):
                message = v1.RegisterEntry(register_id=identifier, data=encode_register(schema, register.read(index)))
                message.index.index = index
                yield message


def _restoring(memory: npt.NDArray[Any]) -> Undo:
    """Return a function that gives memory its present contents back."""
    old = memory.copy()

    def undo() -> None:
        memory[:] = old

    return undo


def _require_modify(what: str, kind: int) -> None:
    if kind != MODIFY:
        raise invalid(f"{what} can only be modified")


def _selected(what: str, by_id: Mapping[int, Array], identifier: int, query: Any) -> list[tuple[int, Array]]:
    if identifier:
        return [(identifier, lookup(what, by_id, identifier))]
    if query.HasField("index"):
        raise invalid(f"an index needs a {what} id")
    return list(by_id.items())


def _cells(message: Any, size: int, name: str) -> range:
    """Return the indices that a message's index names: one, or all where it is left out."""
    if not message.HasField("index"):
        return range(size)
    index = message.index.index
    if index < 0:
        raise invalid(f"{name}: the index {index} is negative")
    if index >= size:
        raise Refused(Code.OUT_OF_RANGE, f"{name} has {size} cells, none of index {index}")
    return range(index, index + 1)
