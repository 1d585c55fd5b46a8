"""RECONCILE_AND_COMMIT: what one program has kept goes over to another one (P4Runtime specification, section 14).

What P4Info gives the same id is the same thing.  State that the new program has no place for is an error, and then
nothing has changed: the new program's state is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy.typing as npt

from switchsum_switch.messages.p4runtime import Code, v1

from .entities import Entities
from .refusal import invalid
from .schema import Schema

_INSERT, _MODIFY = v1.Update.INSERT, v1.Update.MODIFY


def carry_over(old: Entities, new: Entities) -> None:
    """Write the state of one program to another one, which has just been loaded; raises Refused."""
    for update in _updates(old):
        [outcome] = new.write([update], v1.WriteRequest.CONTINUE_ON_ERROR)
        if outcome.code is not Code.OK:
            kind = update.entity.WhichOneof("entity")
            raise invalid(f"the program has no place for a {kind} of the one that runs: {outcome.message}")
    for what, memories in _arrays(old.schema).items():
        _copy(what, memories, _arrays(new.schema)[what])


def _updates(old: Entities) -> Iterator[Any]:
    """Yield what has to be written to a new program, each thing after those that it names."""
    yield from _as_updates(_INSERT, old.read(v1.Entity(action_profile_member={})))
    yield from _as_updates(_INSERT, old.read(v1.Entity(action_profile_group={})))
    entries = old.read(v1.Entity(table_entry={"counter_data": {}, "meter_config": {}}))
    yield from _as_updates(_INSERT, (entity for entity in entries if not entity.table_entry.is_const))
    for identifier, schema in old.schema.tables.items():
        if not schema.table.has_initial_default:
            query = v1.TableEntry(table_id=identifier, is_default_action=True, counter_data={})
            yield from _as_updates(_MODIFY, old.read(v1.Entity(table_entry=query)))
    sets = old.read(v1.Entity(value_set_entry={}))
    yield from _as_updates(_MODIFY, (entity for entity in sets if entity.value_set_entry.members))
    yield from _as_updates(_INSERT, old.read(v1.Entity(digest_entry={})))
    for kind in ("multicast_group_entry", "clone_session_entry"):
        yield from _as_updates(_INSERT, old.read(v1.Entity(packet_replication_engine_entry={kind: {}})))


def _as_updates(kind: int, entities: Iterable[Any]) -> Iterator[Any]:
    for entity in entities:
        yield v1.Update(type=kind, entity=entity)


_Arrays = Mapping[tuple[Any, ...], npt.NDArray[Any]]
"""Memories by id and form: an array of another form is another one."""


def _arrays(schema: Schema) -> dict[str, _Arrays]:
    """Return the memory of each array by kind."""
    return {
        "counter": {(number,): counter.counts for number, counter in schema.counters.items()},
        "register": {(number, one.register.width): one.register.memory for number, one in schema.registers.items()},
        "meter": {(number, one.kind, one.meter.unit): one.meter.cells for number, one in schema.meters.items()},
    }


def _copy(what: str, old: _Arrays, new: _Arrays) -> None:
    """Copy arrays that both programs have; raises Refused if one of them is not empty and has no place."""
    for form, memory in old.items():
        target = new.get(form)
        if target is not None and target.shape == memory.shape:
            target[:] = memory
        elif memory.any():
            raise invalid(f"the program has no {what} {form[0]} of the size and type of the one that runs")
