"""Tables of many masks in native code: a filter leaves few tuples to search, and never one too few."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from support.ir_programs import Draft, Pair, numbered, straight
from switchsum_switch.codegen.filters import CHOSEN, FEWEST_CHANGES, VALUES, WORD_BITS, TupleFilter
from switchsum_switch.messages.matches import MatchKind, Range, Ternary
from switchsum_switch.program import ir
from switchsum_switch.state.tables import ActionSpec, Entry, KeySpec, ParamSpec, Table, TableSpec
from switchsum_switch.state.tuple_space import TupleSpace

BITS = 40
MASKS = 150
"""More than fit two words."""


def masks(rng: random.Random) -> list[int]:
    """Return distinct masks: prefixes of the upper part beside anything below."""
    made = {((1 << 24) - (1 << 24 - rng.randrange(8, 25))) << 16 | rng.getrandbits(16) for _ in range(4 * MASKS)}
    return rng.sample(sorted(made), MASKS)


class Filtered:
    """A tuple space with its filter, and what has changed since the filter was brought up to date."""

    def __init__(self) -> None:
        self.space = TupleSpace()
        self.filter = TupleFilter(self.space, BITS // 8)
        self.present: dict[int, tuple[int, int]] = {}
        self._changed: dict[int, list[int]] = {}
        self._rows = iter(range(1, 1 << 20))

    def add(self, value: int, mask: int) -> None:
        """Add an entry."""
        row = next(self._rows)
        place = self.space.add((-1, row, row), value & mask, mask, ())
        self._changed.setdefault(place.tuple_number, []).append(value & mask)
        self.present[row] = value & mask, mask

    def remove(self, row: int) -> None:
        """Remove an entry."""
        self._changed.setdefault(self.space.remove(row).tuple_number, [])
        del self.present[row]

    def update(self) -> None:
        """Bring the filter up to date."""
        if self._changed:
            self.filter.update(self._changed)
        self._changed = {}

    def left(self, key: int) -> set[int]:
        """Return the tuples that the filter leaves, as native code reads its memory."""
        memory, words = self.filter.memory, self.filter.words
        columns = memory[CHOSEN:].reshape(CHOSEN, VALUES, words)
        bytes_of = key.to_bytes(BITS // 8, "little")
        bits = np.bitwise_and.reduce([columns[i, bytes_of[int(place)]] for i, place in enumerate(memory[:CHOSEN])])
        return {
            word * WORD_BITS + bit for word in range(words) for bit in range(WORD_BITS) if int(bits[word]) >> bit & 1
        }

    def needed(self, key: int) -> set[int]:
        """Return the tuples that have an entry for a key."""
        return {one.number for one in self.space.tuples() if key & one.mask in one.chains}

    def keys(self, rng: random.Random, count: int) -> Iterator[int]:
        """Yield keys: for most there is an entry."""
        for value, mask in rng.choices(list(self.present.values()), k=count):
            noise = rng.getrandbits(BITS)
            yield value | noise & ~mask if rng.random() < 0.8 else noise


def test_no_tuple_that_has_an_entry_is_left_out_while_entries_come_and_go() -> None:
    rng, made = random.Random(5), Filtered()
    known = masks(rng)
    for turn in range(60):
        for _ in range(rng.choice((1, 2, 30))):
            if made.present and rng.random() < (0.2 if turn < 30 else 0.7):
                made.remove(rng.choice(list(made.present)))
            else:
                made.add(rng.getrandbits(BITS), rng.choice(known))
        made.update()
        gone = set(range(made.filter.words * WORD_BITS)) - {one.number for one in made.space.tuples()}
        for key in made.keys(rng, 10) if made.present else ():
            assert made.needed(key) <= made.left(key)
            assert not made.left(key) & gone


def test_few_tuples_are_left_of_many() -> None:
    rng, made = random.Random(6), Filtered()
    for number, mask in enumerate(masks(rng) * 4):
        made.add(rng.getrandbits(BITS), mask)
        if number % 7 == 0:
            made.update()
    made.update()
    keys = list(made.keys(rng, 200))
    assert sum(len(made.left(key)) for key in keys) < 2 * sum(len(made.needed(key)) for key in keys) + len(keys)


def test_bits_of_entries_that_are_gone_do_not_gather() -> None:
    rng, made = random.Random(7), Filtered()
    mask = (1 << BITS) - 1
    made.add(0, mask)
    for _ in range(20 * FEWEST_CHANGES):
        [row] = made.present
        made.add(rng.getrandbits(BITS), mask)
        made.remove(row)
        made.update()
    left = sum(bool(made.left(rng.getrandbits(BITS))) for _ in range(300))
    assert left == 0


def test_native_code_finds_what_the_interpreter_finds_among_many_masks() -> None:
    rng, draft = random.Random(8), Draft()
    given, answer = draft.header("given", [BITS, 16]), draft.header("answer", [16])
    keys = (
        KeySpec(name="bits", width=BITS, kind=MatchKind.TERNARY),
        KeySpec(name="span", width=16, kind=MatchKind.RANGE),
    )
    action = ActionSpec(name="say", params=(ParamSpec(name="number", width=16),))
    spec = TableSpec(name="table", keys=keys, actions=(action,), size=1000)
    fields = tuple(draft.field(slot) for slot in draft.headers[given].slots)
    draft.tables.append(ir.TableInfo(spec=spec, keys=fields, default=("say", (0,)), entries=()))
    says = [ir.Assign(draft.headers[answer].slots[0], ir.Param(16, 0, 0, 0))]
    pair = Pair(
        draft.program(
            parser=straight([ir.Extract(given)]),
            ingress=numbered([([ir.SetValid(answer)], ir.Apply(0, (1,), (1,))), (says, ir.End())]),
            deparser=[answer],
        )
    )
    tables = [state.tables["table"] for state in (pair.state, pair.expected_state)]
    known, hits = masks(rng), 0
    assert pair.process(0, bytes(BITS // 8 + 2)) == [(0, bytes(2))]  # the table has never had an entry
    for turn in range(300):
        _change(rng, tables, known, 400 if turn == 0 else 2)
        entries = tables[0].entries()
        for entry in rng.choices(entries, k=4):
            bits, span = entry.match
            assert isinstance(bits, Ternary)
            assert isinstance(span, Range)
            key = bits.value | rng.getrandbits(BITS) & ~bits.mask, rng.choice((span.low, span.high, 0))
            [(_, out)] = pair.process(0, key[0].to_bytes(BITS // 8) + key[1].to_bytes(2))
            hits += int.from_bytes(out[:2]) > 0
    assert len(tables[0].space) > WORD_BITS
    assert hits > 600


def _change(rng: random.Random, tables: list[Table], known: list[int], times: int) -> None:
    """Insert and delete entries in all tables."""
    for _ in range(times):
        entries = tables[0].entries()
        if rng.random() < 0.3 and entries:
            old = rng.choice(entries)
            for table in tables:
                table.delete(old.match, old.priority)
            continue
        mask = rng.choice(known)
        low = rng.getrandbits(15)
        match = Ternary(rng.getrandbits(BITS) & mask, mask), Range(low, rng.randrange(low, 1 << 16))
        entry = Entry(match=match, priority=rng.randint(1, 9), action="say", params=(rng.randrange(1, 1 << 16),))
        for table in tables:
            table.insert(entry)
