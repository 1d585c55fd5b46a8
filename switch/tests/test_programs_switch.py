"""Tables, state that outlives packets, and what the switch does around the program."""

from __future__ import annotations

import random

import pytest

from switchsum_switch.errors import BadEntry, EntryExists, EntryMissing, ReadOnly, TableFull
from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.messages.matches import Exact, Lpm, Match, Range, Ternary
from switchsum_switch.state.tables import Entry

from .conftest import Load

NAMES = ("exact", "lpm", "ternary", "range", "optional", "keyless", "declared", "hit", "run", "wide", "valid")
ANY = Ternary(0, 0)


def key(a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> bytes:
    return a.to_bytes(1) + b.to_bytes(2, "big") + c.to_bytes(6, "big") + d.to_bytes(16, "big") + b"\0"


def found(pipeline: Pipeline, frame: bytes) -> dict[str, int]:
    """Return what each table wrote for a key."""
    [(port, out)] = pipeline.process(0, frame)
    assert port == 1
    return dict(zip(NAMES, out[26:], strict=True))


def add(pipeline: Pipeline, table: str, match: tuple[Match, ...], *params: int, priority: int = 0) -> None:
    action = f"SwitchIngress.found_{table}"
    entry = Entry(match=match, priority=priority, action=action, params=params)
    pipeline.tables[f"SwitchIngress.{table}_table"].insert(entry)


def test_defaults(load: Load) -> None:
    pipeline = load("matching")
    values = found(pipeline, key(b=0xFFFF))
    assert values == {
        **dict.fromkeys(NAMES, 0xEE),
        "hit": 0xEF,
        "run": 0x33,
        "wide": 0,
        "valid": 0,
    }
    pipeline.tables["SwitchIngress.keyless_table"].set_default("SwitchIngress.found_keyless", (5,))
    assert found(pipeline, key())["keyless"] == 5
    pipeline.tables["SwitchIngress.keyless_table"].reset_default()
    assert found(pipeline, key())["keyless"] == 0xEE
    with pytest.raises(ReadOnly):
        pipeline.tables["SwitchIngress.declared_table"].set_default("SwitchIngress.found_declared", (1,))


def test_exact_entries_come_change_and_go(load: Load) -> None:
    pipeline = load("matching")
    table = pipeline.tables["SwitchIngress.exact_table"]
    draw = random.Random(4)
    present: dict[tuple[int, int], int] = {}
    pool = [(draw.randrange(4), draw.getrandbits(48)) for _ in range(48)]
    for turn in range(600):
        where = draw.choice(pool)
        match = (Exact(where[0]), Exact(where[1]))
        entry = Entry(match=match, action="SwitchIngress.found_exact", params=(turn & 0xFF, where[1] ^ 1))
        if where in present and draw.random() < 0.5:
            table.delete(match)
            del present[where]
        elif where in present:
            table.modify(entry)
            present[where] = turn & 0xFF
        else:
            table.insert(entry)
            present[where] = turn & 0xFF
        for probe in (where, draw.choice(pool)):
            [(_, out)] = pipeline.process(0, key(a=probe[0], c=probe[1]))
            echo = probe[1] ^ 1 if probe in present else 7
            assert out[26] == present.get(probe, 0xEE)
            assert int.from_bytes(out[3:9], "big") == echo
    assert {(e.match[0], e.match[1]) for e in table.entries()} == {(Exact(a), Exact(c)) for a, c in present}


def test_direct_counters(load: Load) -> None:
    pipeline = load("matching")
    table = pipeline.tables["SwitchIngress.exact_table"]
    add(pipeline, "exact", (Exact(1), Exact(2)), 3, 4)
    entry = table.entries()[0]
    frame = key(a=1, c=2)
    for extra in (0, 10):
        pipeline.process(0, frame + bytes(extra))
    pipeline.process(0, key())
    assert table.direct_counter(entry) == (2, 2 * len(frame) + 10)
    assert table.direct_counter() == (1, len(frame))
    table.set_direct_counter(entry, 7, 8)
    pipeline.process(0, frame)
    assert table.direct_counter(entry) == (8, 8 + len(frame))


def test_longest_prefix_wins(load: Load) -> None:
    pipeline = load("matching")
    for value, (a, b, length) in enumerate(
        [(1, 0, 0), (1, 0x1200, 8), (1, 0x1230, 12), (1, 0x1234, 16), (2, 0x8000, 1)]
    ):
        add(pipeline, "lpm", (Exact(a), Lpm(b, length)), value)
    for b, value in ((0x1234, 3), (0x1235, 2), (0x1299, 1), (0xFFFF, 0)):
        assert found(pipeline, key(a=1, b=b))["lpm"] == value
    assert found(pipeline, key(a=2, b=0x9000))["lpm"] == 4
    assert found(pipeline, key(a=2, b=0x7000))["lpm"] == 0xEE
    pipeline.tables["SwitchIngress.lpm_table"].delete((Exact(1), Lpm(0x1234, 16)))
    assert found(pipeline, key(a=1, b=0x1234))["lpm"] == 2


def test_highest_priority_wins(load: Load) -> None:
    pipeline = load("matching")
    wide = 1 << 127 | 5
    add(pipeline, "ternary", (Ternary(1, 1), ANY, Exact(wide)), 1, priority=10)
    add(pipeline, "ternary", (Ternary(3, 3), Ternary(0x0F00, 0x0F00), Exact(wide)), 2, priority=20)
    add(pipeline, "ternary", (ANY, Ternary(0x0F00, 0xFFFF), Exact(wide)), 3, priority=20)  # equal: the older wins
    add(pipeline, "ternary", (ANY, ANY, Exact(wide)), 4, priority=1)
    for a, b, value in ((1, 0, 1), (3, 0x0F00, 2), (2, 0x0F00, 3), (3, 0x1FFF, 2), (2, 1, 4), (3, 1, 1)):
        assert found(pipeline, key(a=a, b=b, d=wide))["ternary"] == value
    assert found(pipeline, key(a=1, d=wide ^ 1))["ternary"] == 0xEE
    table = pipeline.tables["SwitchIngress.ternary_table"]
    table.delete((Ternary(3, 3), Ternary(0x0F00, 0x0F00), Exact(wide)), 20)
    assert found(pipeline, key(a=3, b=0x0F00, d=wide))["ternary"] == 3


def test_ranges(load: Load) -> None:
    pipeline = load("matching")
    everything = Range(0, (1 << 128) - 1)
    add(pipeline, "range", (Range(10, 20), ANY, everything), 1, priority=1)
    add(pipeline, "range", (Range(15, 0xFFFF), Ternary(7, 0xFF), everything), 2, priority=2)
    add(pipeline, "range", (Range(0, 0xFFFF), ANY, Range(1 << 100, 1 << 101)), 3, priority=3)
    for b, a, d, value in (
        (9, 0, 0, 0xEE),
        (10, 0, 0, 1),
        (20, 0, 0, 1),
        (21, 0, 0, 0xEE),
        (20, 7, 0, 2),
        (0xFFFF, 7, 0, 2),
        (20, 7, 1 << 100, 3),
        (20, 7, (1 << 101) + 1, 2),
    ):
        assert found(pipeline, key(a=a, b=b, d=d))["range"] == value


def test_optional_declared_hit_run_wide_and_valid(load: Load) -> None:
    pipeline = load("matching")
    add(pipeline, "optional", (Ternary(5, 0xFFFF),), 1, priority=2)
    add(pipeline, "optional", (ANY,), 2, priority=1)
    add(pipeline, "hit", (Exact(1),), 7)
    add(pipeline, "wide", (Exact(1 << 120),), 1 << 119 | 3)
    add(pipeline, "valid", (Exact(1), Exact(3)), 9)
    run = pipeline.tables["SwitchIngress.run_table"]
    run.insert(Entry(match=(Exact(1),), action="SwitchIngress.one"))
    run.insert(Entry(match=(Exact(2),), action="SwitchIngress.two", params=(0x20,)))
    assert [found(pipeline, key(b=b))["optional"] for b in (5, 6)] == [1, 2]
    assert [found(pipeline, key(b=b))["declared"] for b in (0x0134, 0x0100, 0x5600, 0x1234, 0x1235)] == [
        1,
        1,
        2,
        3,
        0xEE,
    ]
    assert [found(pipeline, key(a=a))["hit"] for a in (1, 2)] == [107, 0xEF]
    assert [found(pipeline, key(a=a))["run"] for a in (1, 2, 3)] == [0x11, 0x21, 0x33]
    assert [found(pipeline, key(a=a))["valid"] for a in (3, 0x13, 4)] == [9, 9, 0]
    [(_, out)] = pipeline.process(0, key(d=1 << 120))
    assert int.from_bytes(out[9:25], "big") == 1 << 119 | 3


def test_what_the_control_plane_may_not_do(load: Load) -> None:
    pipeline = load("matching")
    table = pipeline.tables["SwitchIngress.exact_table"]
    good = Entry(match=(Exact(1), Exact(2)), action="NoAction")
    table.insert(good)
    with pytest.raises(EntryExists):
        table.insert(good)
    with pytest.raises(EntryMissing):
        table.delete((Exact(1), Exact(3)))
    with pytest.raises(EntryMissing):
        table.modify(Entry(match=(Exact(1), Exact(3)), action="NoAction"))
    for bad in (
        Entry(match=(Exact(1),), action="NoAction"),
        Entry(match=(Exact(256), Exact(2)), action="NoAction"),
        Entry(match=(Exact(3), Lpm(0, 0)), action="NoAction"),
        Entry(match=(Exact(3), Exact(2)), action="nothing"),
        Entry(match=(Exact(3), Exact(2)), action="SwitchIngress.found_exact", params=(1,)),
        Entry(match=(Exact(3), Exact(2)), action="SwitchIngress.found_exact", params=(256, 1)),
        Entry(match=(Exact(3), Exact(2)), action="NoAction", priority=1),
    ):
        with pytest.raises(BadEntry):
            table.insert(bad)
    for number in range(63):
        table.insert(Entry(match=(Exact(9), Exact(number)), action="NoAction"))
    with pytest.raises(TableFull):
        table.insert(Entry(match=(Exact(9), Exact(99)), action="NoAction"))
    declared = pipeline.tables["SwitchIngress.declared_table"]
    with pytest.raises(ReadOnly):
        declared.delete(declared.entries()[0].match, declared.entries()[0].priority)
    with pytest.raises(BadEntry):
        add(pipeline, "ternary", (Ternary(2, 1), ANY, Exact(0)), 1, priority=1)
    with pytest.raises(BadEntry):
        add(pipeline, "range", (Range(2, 1), ANY, Range(0, 0)), 1, priority=1)
    with pytest.raises(BadEntry):
        add(pipeline, "lpm", (Exact(1), Lpm(0x1234, 8)), 1)


REQUEST = (16, 8, 8, 1, 7, 88, 16, 136, 32, 64)


def request(*values: int) -> bytes:
    number = 0
    for value, width in zip(values, REQUEST, strict=True):
        number = number << width | value & ((1 << width) - 1)
    return number.to_bytes(sum(REQUEST) // 8, "big")


def test_registers_and_counters(load: Load) -> None:
    pipeline = load("stateful")
    draw = random.Random(5)
    sums = [[0] * 5 for _ in range(8)]
    counts = [[0, 0] for _ in range(4)]
    for _ in range(200):
        index = draw.choice([0, 1, 7, 8, 9, 65535])
        given = [draw.getrandbits(width) for width in (1, 7, 88, 16, 136)]
        frame = request(index, draw.choice([0, 3, 4]), 0, *given, 0, 0) + bytes(draw.randrange(9))
        [(_, out)] = pipeline.process(0, frame)
        old = sums[index] if index < 8 else [0] * 5
        signs = (1, 1, 1, -1, 1)
        new = [
            (before + sign * value) % (1 << width)
            for before, sign, value, width in zip(old, signs, given, (1, 7, 88, 16, 136), strict=True)
        ]
        if index < 8:
            sums[index] = new
        assert out[4:35] == request(0, 0, 0, *new, 0, 0)[4:35]
        for counted in (index, frame[2]):
            if counted < 4:
                counts[counted][0] += 1
                counts[counted][1] += len(frame)
    for name, column in zip(("ones", "sevens", "tags", "numbers", "longs"), range(5), strict=True):
        register = pipeline.registers[f"SwitchIngress.{name}"]
        assert [register.read(index) for index in range(8)] == [row[column] for row in sums]
    counter = pipeline.counters["SwitchIngress.events"]
    assert [list(counter.read(index)) for index in range(4)] == counts


def test_random_numbers(load: Load) -> None:
    """The generator is xorshift64* (Vigna, 2016) from a fixed seed; an impossible range draws nothing."""
    pipeline = load("stateful")
    state = 0x5DEECE66D1CE4E5B
    seen = set()
    for low, high in [(0, 255), (3, 5), (7, 7), (9, 2)] * 30:
        [(_, out)] = pipeline.process(0, request(0, low, high, 0, 0, 0, 0, 0, 77, 0))
        drawn = [int.from_bytes(out[35:39], "big"), int.from_bytes(out[39:], "big")]
        expected = []
        for first, last, kept in ((low, high, 77), (0, (1 << 64) - 1, 0)):
            if first > last:
                expected.append(kept)
                continue
            for shift in (-12, 25, -27):
                state ^= state >> -shift if shift < 0 else state << shift & ((1 << 64) - 1)
            number = state * 0x2545F4914F6CDD1D % (1 << 64)
            expected.append(first + (number * (last - first + 1) >> 64))
        assert drawn == expected
        seen.add(drawn[0])
    assert {3, 4, 5, 7, 77} <= seen


def command(operation: int, argument: int = 0) -> bytes:
    return bytes([operation, argument])


def seen(port: int, instance: int, kind: int, mark: int, time: int = 0) -> bytes:
    return port.to_bytes(2, "big") + instance.to_bytes(2, "big") + bytes([kind, mark]) + time.to_bytes(6, "big")


NORMAL, REPLICATION = 0, 5


def test_one_packet_in_one_out(load: Load) -> None:
    pipeline = load("replication")
    expected = command(0) + seen(6, 0, NORMAL, 3, 1234567) + b"rest"
    assert pipeline.process(5, command(0) + b"rest", 1234567) == [(6, expected)]
    assert pipeline.process(510, command(0)) == []  # port 511 drops
    assert pipeline.process(3, command(7)) == []  # dropped in egress


def test_multicast(load: Load) -> None:
    pipeline = load("replication")
    pipeline.multicast.set(9, [(1, 7), (2, 5), (1, 8), (511, 65535)])
    expected = [(port, seen(port, rid, REPLICATION, 3)) for port, rid in ((1, 7), (2, 5), (1, 8), (511, 65535))]
    assert pipeline.process(0, command(1, 9)) == [(port, command(1, 9) + data) for port, data in expected]
    assert pipeline.process(0, command(4, 9)) == [(port, command(4, 9) + data) for port, data in expected]
    assert pipeline.process(0, command(1, 8)) == []  # no such group
    assert pipeline.process(4, command(1, 0)) == [(5, command(1, 0) + seen(5, 0, NORMAL, 3))]
    pipeline.multicast.set(2, [(1, 5), (2, 6)])
    assert pipeline.process(0, command(1, 2)) == [(2, command(1, 2) + seen(2, 6, REPLICATION, 3))]
    pipeline.multicast.set(9, [(3, 1)])
    assert [port for port, _ in pipeline.process(0, command(1, 9))] == [3]
    pipeline.multicast.delete(9)
    assert pipeline.process(0, command(1, 9)) == []
    with pytest.raises(EntryMissing):
        pipeline.multicast.delete(9)
    with pytest.raises(BadEntry):
        pipeline.multicast.set(0, [])
    with pytest.raises(BadEntry):
        pipeline.multicast.set(1, [(512, 0)])
    with pytest.raises(BadEntry):
        pipeline.multicast.set(1, [(1, 0), (1, 0)])


def test_dropping_truncating_and_leaving(load: Load) -> None:
    pipeline = load("replication")
    pipeline.multicast.set(1, [(1, 1)])
    assert pipeline.process(0, command(2)) == []  # mark_to_drop takes the group back
    assert [port for port, _ in pipeline.process(0, command(3))] == [3]  # what is said last counts
    whole = command(5, 9) + seen(1, 0, NORMAL, 3) + bytes(50)
    assert pipeline.process(0, command(5, 9) + bytes(50)) == [(1, whole[:9])]
    whole = command(5, 30) + seen(1, 0, NORMAL, 3) + bytes(50)
    assert pipeline.process(0, command(5, 30) + bytes(50)) == [(1, whole[:20])]
    assert pipeline.process(0, command(5, 0) + bytes(50)) == [(1, b"")]
    assert pipeline.process(0, command(6)) == [(1, command(6) + seen(1, 0, NORMAL, 2))]  # egress still runs
    assert pipeline.process(0, command(8)) == [(1, command(8) + seen(1, 0, NORMAL, 1))]
