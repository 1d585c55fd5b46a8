"""Random updates of table entries beside a model: which are taken, and with which code others are refused."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, Final

from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.messages.p4runtime import Code, encode_uint, parse_p4info, v1
from switchsum_switch.p4runtime.entities import Entities

PROGRAM: Final = Path(__file__).parent / "p4runtime" / "entities.json"
UPDATES: Final = 1500
INSERT, MODIFY, DELETE = v1.Update.INSERT, v1.Update.MODIFY, v1.Update.DELETE
EXACT, LPM, TERNARY, RANGE, OPTIONAL = 2, 3, 4, 5, 6
"""Values of p4.config.v1.MatchField.MatchType."""
DEFAULT_ONLY = 2
MALFORMED: Final[tuple[Code, ...]] = (Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE)


class Model:
    """What a client knows of a program's tables: it keeps the entries that should be there."""

    def __init__(self, p4info: Any, random: Random) -> None:
        self.tables = [
            table
            for table in p4info.tables
            if table.match_fields and not table.is_const_table and not table.implementation_id
        ]
        self.entries: dict[bytes, Any] = {}
        self._actions = {action.preamble.id: action for action in p4info.actions}
        self._random = random

    def entry(self) -> Any:
        """Return a well-formed entry, whose values come from so few that some entries meet again."""
        random, table = self._random, self._random.choice(self.tables)
        entry = v1.TableEntry(table_id=table.preamble.id)
        for field in table.match_fields:
            self._match(entry, field)
        if any(field.match_type in (TERNARY, RANGE, OPTIONAL) for field in table.match_fields):
            entry.priority = random.randint(1, 3)
        refs = [ref.id for ref in table.action_refs if ref.scope != DEFAULT_ONLY]
        entry.action.action.action_id = random.choice(refs)
        for param in self._actions[entry.action.action.action_id].params:
            entry.action.action.params.add(param_id=param.id, value=self._value(param.bitwidth))
        return entry

    def _number(self, width: int) -> int:
        full = (1 << width) - 1
        return self._random.choice((0, 1, 2, full, 1 << (width - 1), self._random.getrandbits(width))) & full

    def _value(self, width: int) -> bytes:
        return encode_uint(self._number(width)) if width else b"name" + bytes([97 + self._random.randrange(3)])

    def _match(self, entry: Any, field: Any) -> None:
        random, width, full = self._random, field.bitwidth, (1 << field.bitwidth) - 1
        if field.match_type == EXACT:
            entry.match.add(field_id=field.id).exact.value = self._value(width)
        elif random.random() < 1 / 3:
            return  # it matches everything
        elif field.match_type == OPTIONAL:
            entry.match.add(field_id=field.id).optional.value = self._value(width)
        elif field.match_type == LPM:
            length = random.choice((1, width, random.randint(1, width)))
            prefix = self._number(width) >> (width - length) << (width - length)
            entry.match.add(field_id=field.id).lpm.MergeFrom(
                v1.FieldMatch.LPM(value=encode_uint(prefix), prefix_len=length)
            )
        elif field.match_type == TERNARY:
            mask = random.choice((full, 1, 1 << (width - 1)))
            made = v1.FieldMatch.Ternary(value=encode_uint(self._number(width) & mask), mask=encode_uint(mask))
            entry.match.add(field_id=field.id).ternary.MergeFrom(made)
        elif field.match_type == RANGE:
            low, high = sorted((self._number(width), self._number(width)))
            if (low, high) != (0, full):
                made = v1.FieldMatch.Range(low=encode_uint(low), high=encode_uint(high))
                entry.match.add(field_id=field.id).range.MergeFrom(made)

    def broken(self, entry: Any) -> Any:
        """Return an entry that no table takes, whatever the update does."""
        made = v1.TableEntry()
        made.CopyFrom(entry)
        [table] = (one for one in self.tables if one.preamble.id == entry.table_id)
        ways = ["table", "priority", "field", *["twice", "empty", "unset"] * bool(made.match)]
        match self._random.choice(ways):
            case "table":
                made.table_id ^= 0x5A5A
            case "priority":
                made.priority = self._random.choice((0, -1) if made.priority else (1, -1))
            case "field":
                made.match.add(field_id=1 + max(field.id for field in table.match_fields)).exact.value = b"\1"
            case "twice":
                made.match.add().CopyFrom(made.match[0])
            case "empty":
                match = made.match[0]
                kind = match.WhichOneof("field_match_type")
                setattr(getattr(match, kind), "low" if kind == "range" else "value", b"")
            case "unset":
                made.match[0].ClearField(made.match[0].WhichOneof("field_match_type"))
        return made

    def expected(self, kind: int, entry: Any) -> tuple[Code, ...]:
        """Return the codes that a well-formed update may have, and take it over if it succeeds."""
        place = self._place(entry)
        if kind != INSERT and place not in self.entries:
            return (Code.NOT_FOUND,)
        if kind == INSERT and place in self.entries:
            return (Code.ALREADY_EXISTS,)
        [table] = (one for one in self.tables if one.preamble.id == entry.table_id)
        if kind == INSERT and sum(one.table_id == entry.table_id for one in self.entries.values()) >= table.size:
            return (Code.RESOURCE_EXHAUSTED,)
        if kind == DELETE:
            del self.entries[place]
        else:
            self.entries[place] = entry
        return (Code.OK,)

    def _place(self, entry: Any) -> bytes:
        key = v1.TableEntry(table_id=entry.table_id, priority=entry.priority, match=entry.match)
        return bytes(key.SerializeToString(deterministic=True))


def check(program: Path, updates: int, seed: int) -> int:
    """Write random updates to a switch and to the model; return how many entries there are in the end."""
    random = Random(seed)
    p4info = parse_p4info(program.with_suffix(".p4info.txtpb").read_text())
    pipeline = Pipeline.load(program.read_bytes(), engine="interpreter")
    switch, model = Entities(v1.ForwardingPipelineConfig(p4info=p4info), pipeline.state), Model(p4info, random)
    for number in range(updates):
        known = list(model.entries.values()) if random.random() < 1 / 2 else []
        entry, kind = model.entry(), random.choice((INSERT, INSERT, MODIFY, DELETE))
        if known and kind != INSERT:
            old = random.choice(known)
            if old.table_id == entry.table_id or kind == DELETE:
                entry = v1.TableEntry(
                    table_id=old.table_id,
                    priority=old.priority,
                    match=old.match,
                    action=(old, entry)[kind == MODIFY].action,
                )
        if random.random() < 1 / 10:
            entry, codes = model.broken(entry), MALFORMED
        else:
            codes = model.expected(kind, entry)
        [outcome] = switch.write(
            [v1.Update(type=kind, entity=v1.Entity(table_entry=entry))], v1.WriteRequest.CONTINUE_ON_ERROR
        )
        assert outcome.code in codes, (number, outcome, kind, entry)
    read = [one.table_entry for one in switch.read(v1.Entity(table_entry=v1.TableEntry()))]
    tables = {table.preamble.id for table in model.tables}
    found = sorted(one.SerializeToString(deterministic=True) for one in read if one.table_id in tables)
    assert found == sorted(one.SerializeToString(deterministic=True) for one in model.entries.values())
    return len(found)


def test_random_updates_are_taken_and_refused_as_the_model_says() -> None:
    assert check(PROGRAM, UPDATES, seed=1) > 20
