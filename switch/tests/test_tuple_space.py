"""Tables whose keys are not all exact find what a scan of all entries finds, in fewer steps."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from switchsum_switch.errors import BadEntry, EntryMissing
from switchsum_switch.messages.matches import Exact, Lpm, Match, MatchKind, Range, Ternary
from switchsum_switch.state.lock import StateLock
from switchsum_switch.state.tables import MOST_PRIORITY, ActionSpec, Entry, KeySpec, Table, TableSpec

KEYS = {
    "lpm": [(12, MatchKind.LPM)],
    "lpm beside exact": [(3, MatchKind.EXACT), (12, MatchKind.LPM)],
    "ternary": [(12, MatchKind.TERNARY)],
    "wide ternary, lpm, exact": [(70, MatchKind.TERNARY), (5, MatchKind.LPM), (2, MatchKind.EXACT)],
    "range": [(8, MatchKind.RANGE), (6, MatchKind.TERNARY), (6, MatchKind.RANGE)],
    "only ranges": [(10, MatchKind.RANGE)],
}
Keys = list[tuple[int, MatchKind]]


def table_of(keys: Keys, size: int) -> Table:
    """Return an empty table."""
    specs = tuple(KeySpec(name=f"k{i}", width=width, kind=kind) for i, (width, kind) in enumerate(keys))
    spec = TableSpec(name="table", keys=specs, actions=(ActionSpec(name="act"),), size=size)
    return Table(spec, StateLock(), ("act", ()))


def covers(match: Match, value: int, width: int) -> bool:
    """Return whether one field of an entry matches a value."""
    match match:
        case Exact(wanted):
            return value == wanted
        case Lpm(wanted, length):
            return value >> (width - length) == wanted >> (width - length)
        case Ternary(wanted, mask):
            return value & mask == wanted
        case Range(low, high):
            return low <= value <= high


class Scan:
    """The same entries in a list: the oldest of those that match and have the best rank wins."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.entries: list[Entry] = []

    def lookup(self, key: tuple[int, ...]) -> Entry | None:
        """Return the entry that matches."""
        matching = [
            entry
            for entry in self.entries
            if all(covers(*one) for one in zip(entry.match, key, (width for width, _ in self.keys), strict=True))
        ]
        return max(matching, key=self._rank, default=None)  # the first of several

    def _rank(self, entry: Entry) -> int:
        lengths = [match.prefix_len for match in entry.match if isinstance(match, Lpm)]
        return entry.priority or max(lengths)


def matches(rng: random.Random, keys: Keys) -> Iterator[Match]:
    """Yield a random match for each field; masks repeat, and so do values."""
    for width, kind in keys:
        value, full = rng.getrandbits(width) & rng.getrandbits(width), (1 << width) - 1
        match kind:
            case MatchKind.LPM:
                length = rng.randrange(width + 1)
                yield Lpm(value & ~(full >> length), length)
            case MatchKind.TERNARY:
                mask = rng.choice([full, full >> 3, full ^ full >> 2, 0, rng.getrandbits(width)])
                yield Ternary(value & mask, mask)
            case MatchKind.RANGE:
                yield Range(value, rng.randrange(value, full + 1))
            case MatchKind.EXACT:
                yield Exact(value)


@pytest.mark.parametrize("name", KEYS)
def test_a_lookup_finds_what_a_scan_finds(name: str) -> None:
    keys, rng = KEYS[name], random.Random(name)
    table, scan = table_of(keys, 100), Scan(keys)
    saved, kept = table.save(), list(scan.entries)
    for _ in range(800):
        entry = Entry(
            match=tuple(matches(rng, keys)), priority=rng.randint(1, 4) if table.spec.prioritised else 0, action="act"
        )
        present = {(one.match, one.priority) for one in scan.entries}
        move = rng.random()
        if move < 0.5 and len(scan.entries) < 100 and (entry.match, entry.priority) not in present:
            table.insert(entry)
            scan.entries.append(entry)
        elif move < 0.7 and scan.entries:
            place = rng.randrange(len(scan.entries))
            old = scan.entries.pop(place)
            age = table.delete(old.match, old.priority)
            if rng.random() < 0.3:  # the deletion is taken back
                table.insert(old, age)
                scan.entries.insert(place, old)
        elif move < 0.73:
            saved, kept = table.save(), list(scan.entries)
        elif move < 0.75:
            table.restore(saved)
            scan.entries = list(kept)
        key = tuple(rng.getrandbits(width) & rng.getrandbits(width) for width, _ in keys)
        found = table.entry_of(table.lookup(key))
        assert found == scan.lookup(key)


@pytest.mark.parametrize(("name", "masks"), [("lpm", 13), ("ternary", 8)])
def test_a_lookup_takes_a_step_for_each_mask_and_not_for_each_entry(name: str, masks: int) -> None:
    table = table_of([(32, KEYS[name][0][1])], 1500)
    full = (1 << 32) - 1
    for number in range(1500):
        length = 20 + number % masks
        mask = full ^ full >> length
        value = number * 0x9E3779B1 & mask
        match: Match = Lpm(value, length) if name == "lpm" else Ternary(value, mask)
        table.insert(Entry(match=(match,), priority=0 if name == "lpm" else 1 + number, action="act"))
    assert (len(table), len(table.space)) == (1500, masks)
    for entry in table.entries():
        table.delete(entry.match, entry.priority)
    assert (len(table), len(table.space)) == (0, 0)


def test_a_priority_beyond_p4runtimes_is_refused() -> None:
    table = table_of(KEYS["ternary"], 2)
    table.insert(Entry(match=(Ternary(1, 1),), priority=MOST_PRIORITY, action="act"))
    with pytest.raises(BadEntry, match="priority 2147483648 is above 2147483647"):
        table.insert(Entry(match=(Ternary(1, 1),), priority=MOST_PRIORITY + 1, action="act"))


@pytest.mark.parametrize(
    "match",
    [
        (Exact(1), Exact(0xF)),
        (Exact(1), Lpm(0xF, 8)),
        (Exact(0), Ternary(0x10F, 0xFFFF)),
        (Exact(1),),
        (Exact(1), Ternary(0xF, 0xFF), Exact(0)),
        (Exact(1), Ternary(0xF, 0x7F)),
    ],
    ids=str,
)
def test_an_entry_is_not_found_by_a_match_that_makes_the_same_numbers(match: tuple[Match, ...]) -> None:
    """Entries are found by the numbers that their fields make side by side; another kind or width may make the same."""
    table = table_of([(8, MatchKind.EXACT), (8, MatchKind.TERNARY)], 4)
    entry = Entry(match=(Exact(1), Ternary(0xF, 0xFF)), priority=1, action="act")
    table.insert(entry)
    with pytest.raises(EntryMissing):
        table.get(match, 1)
    with pytest.raises(EntryMissing):
        table.delete(match, 1)
    assert table.get(entry.match, 1) == entry
