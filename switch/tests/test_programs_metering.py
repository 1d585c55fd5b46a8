"""Meters: two rates and three colours, by packets and by bytes, arrays and one for each table entry."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from switchsum_switch import Switch
from switchsum_switch.errors import BadEntry, EntryMissing
from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.messages.matches import Exact, Ternary
from switchsum_switch.state.meters import GREEN, MAX_BURST, MAX_RATE, MICRO, RED, YELLOW, MeterRates
from switchsum_switch.state.tables import Entry

from .conftest import PROGRAMS, Load

RATES = MeterRates(committed=10, committed_burst=2, peak=20, peak_burst=5)
UNTOUCHED = {"by_packets": 0, "by_bytes": 0, "by_station": 7, "by_group": 3}
SECOND = 1_000_000


def colours(pipeline: Pipeline, now_us: int, station: int = 0, cell: int = 0, size: int = 100) -> dict[str, int]:
    [(_, frame)] = pipeline.process(1, bytes([station, cell]).ljust(size, b"\0"), now_us)
    return dict(zip(UNTOUCHED, frame[2:6], strict=True))


def test_meters_that_nobody_configured_are_green(load: Load) -> None:
    assert colours(load("metering"), 0) == UNTOUCHED


def test_a_burst_is_green_then_yellow_then_red_and_comes_back_with_time(load: Load) -> None:
    pipeline = load("metering")
    pipeline.meters["SwitchIngress.packets"].configure(3, RATES)
    burst = [colours(pipeline, 5 * SECOND, cell=3)["by_packets"] for _ in range(7)]
    assert burst == [GREEN] * 2 + [YELLOW] * 3 + [RED] * 2
    assert colours(pipeline, 5 * SECOND + 49_999, cell=3)["by_packets"] == RED
    assert colours(pipeline, 5 * SECOND + 50_000, cell=3)["by_packets"] == YELLOW  # the peak earns one in 50 ms
    assert colours(pipeline, 5 * SECOND + 100_000, cell=3)["by_packets"] == GREEN  # the committed one in 100 ms
    assert colours(pipeline, 5 * SECOND, cell=3)["by_packets"] == RED  # time does not go back
    assert colours(pipeline, 5 * SECOND, cell=4)["by_packets"] == GREEN
    assert pipeline.meters["SwitchIngress.packets"].rates(3) == RATES
    pipeline.meters["SwitchIngress.packets"].configure(3, None)
    assert colours(pipeline, 5 * SECOND, cell=3)["by_packets"] == GREEN
    assert pipeline.meters["SwitchIngress.packets"].rates(3) is None


def test_a_meter_of_one_rate_lets_an_excess_pass_as_yellow(load: Load) -> None:
    pipeline = load("metering")
    meter = pipeline.meters["SwitchIngress.packets"]
    rates = MeterRates(committed=10, committed_burst=2, peak=10, peak_burst=2, excess_burst=3)
    meter.configure(3, rates)
    assert meter.rates(3) == rates
    burst = [colours(pipeline, 5 * SECOND, cell=3)["by_packets"] for _ in range(7)]
    assert burst == [GREEN] * 2 + [YELLOW] * 3 + [RED] * 2
    # Ten tokens a second: the first two fill the committed bucket, the next three the excess bucket, and more are lost.
    assert [colours(pipeline, 5 * SECOND + 99_999, cell=3)["by_packets"]] == [RED]
    assert [colours(pipeline, 5 * SECOND + 300_000, cell=3)["by_packets"] for _ in range(4)] == [
        *[GREEN] * 2,
        YELLOW,
        RED,
    ]
    assert [colours(pipeline, 9 * SECOND, cell=3)["by_packets"] for _ in range(6)] == [*[GREEN] * 2, *[YELLOW] * 3, RED]


def test_packets_and_bytes_of_each_colour_are_counted(load: Load) -> None:
    pipeline = load("metering")
    meter = pipeline.meters["SwitchIngress.packets"]
    meter.configure(3, RATES)
    for size in (10, 20, 30, 40, 50, 60, 70):
        colours(pipeline, 0, cell=3, size=size)
    assert meter.counts(3) == ((2, 30), (3, 120), (2, 130))
    meter.configure(3, None)
    colours(pipeline, 0, cell=3, size=10)  # what nobody has configured is green
    assert meter.counts(3) == ((3, 40), (3, 120), (2, 130))
    meter.clear_counts(3)
    assert meter.counts(3) == ((0, 0),) * 3
    colours(pipeline, 0, cell=200)  # beyond the array nothing is counted
    assert [meter.counts(cell) for cell in (0, 15)] == [((0, 0),) * 3] * 2
    with pytest.raises(BadEntry, match="16 cells"):
        meter.counts(16)


def test_bytes_are_those_of_the_frame_as_it_came(load: Load) -> None:
    pipeline = load("metering")
    pipeline.meters["SwitchIngress.bytes"].configure(
        1, MeterRates(committed=1000, committed_burst=150, peak=1000, peak_burst=250)
    )
    seen = [colours(pipeline, 0, cell=1, size=size)["by_bytes"] for size in (150, 60, 41, 40, 6)]
    assert seen == [GREEN, YELLOW, RED, YELLOW, RED]


def test_beyond_the_array_nothing_happens(load: Load) -> None:
    pipeline = load("metering")
    pipeline.meters["SwitchIngress.bytes"].configure(
        3, MeterRates(committed=0, committed_burst=0, peak=0, peak_burst=0)
    )
    frame = bytes([0, 200, 9, 8, 0, 0])
    assert pipeline.process(1, frame) == [(1, bytes([0, 200, 9, 8, 7, 3]))]
    assert colours(pipeline, 0, cell=3)["by_bytes"] == RED


def test_each_entry_has_a_meter_of_its_own(load: Load) -> None:
    pipeline = load("metering")
    stations, groups = pipeline.tables["SwitchIngress.stations"], pipeline.tables["SwitchIngress.groups"]
    known = [Entry(match=(Exact(number),), action="SwitchIngress.known") for number in (1, 2)]
    for entry in known:
        stations.insert(entry)
    stations.set_direct_meter(known[0], RATES)
    group = Entry(match=(Ternary(0, 0xFE),), priority=1, action="SwitchIngress.grouped")
    groups.insert(group)
    groups.set_direct_meter(group, MeterRates(committed=1, committed_burst=200, peak=1, peak_burst=200))
    first = [colours(pipeline, 0, station=1) for _ in range(3)]
    assert [seen["by_station"] for seen in first] == [GREEN, GREEN, YELLOW]
    assert [seen["by_group"] for seen in first] == [GREEN, GREEN, RED]
    assert colours(pipeline, 0, station=2) == {**UNTOUCHED, "by_station": GREEN}
    assert colours(pipeline, 0, station=3) == UNTOUCHED  # a miss leaves the fields alone
    stations.delete((Exact(1),))
    stations.insert(known[0])  # a new entry, though in the old row
    assert stations.direct_meter(known[0]) is None
    assert colours(pipeline, 0, station=1)["by_station"] == GREEN


def test_an_entry_is_metered_by_its_key_as_it_is_written() -> None:
    switch = Switch.from_file(PROGRAMS / "metering.json", PROGRAMS / "metering.p4info.txtpb", engine="interpreter")
    stations, groups = switch.tables["stations"], switch.tables["groups"]
    stations.insert({"station": 1}, "known")
    stations.set_meter({"station": 1}, RATES)
    groups.insert({"station": "0 &&& 0xfe"}, "grouped", priority=2)
    groups.set_meter({"station": "0 &&& 0xfe"}, RATES, priority=2)
    for _ in range(3):
        switch.process(1, bytes([1, 0, 0, 0, 0, 0]))
    assert stations.meter_counts({"station": 1}) == ((2, 12), (1, 6), (0, 0))
    traced = [step.text for step in switch.trace(1, bytes([1, 0, 0, 0, 0, 0])).find("meter")]
    assert traced == [
        "meter SwitchIngress.packets[0]: green",
        "meter SwitchIngress.bytes[0]: green",
        "meter of table SwitchIngress.stations: yellow",
        "meter of table SwitchIngress.groups: red",
    ]
    assert groups.meter_counts({"station": "0 &&& 0xfe"}, priority=2) == ((0, 0), (0, 0), (3, 18))
    with pytest.raises(EntryMissing):
        stations.set_meter({"station": 2}, RATES)
    with pytest.raises(EntryMissing):
        groups.set_meter({"station": "0 &&& 0xfe"}, RATES, priority=1)
    plain = Switch.from_file(PROGRAMS / "matching.json", engine="interpreter").tables
    with pytest.raises(BadEntry, match="no direct meter"):
        plain["exact_table"].set_meter(dict.fromkeys(plain["exact_table"].keys, 0), None)


def test_engines_agree_to_the_last_packet() -> None:
    draw = random.Random(7)
    text = (PROGRAMS / "metering.json").read_bytes()
    both = [Pipeline.load(text, engine="native"), Pipeline.load(text, engine="interpreter")]
    limits = [10, 1000, MICRO, MAX_RATE]
    for cell in range(4):
        peak, burst = limits[cell], min(limits[-1 - cell] + 3, MAX_BURST)
        rates = MeterRates(committed=draw.randint(0, peak), committed_burst=burst // 2, peak=peak, peak_burst=burst)
        for pipeline in both:
            pipeline.meters["SwitchIngress.bytes"].configure(cell, rates)
            one = replace(rates, committed=peak, peak_burst=rates.committed_burst, excess_burst=burst)
            pipeline.meters["SwitchIngress.packets"].configure(cell, one if cell % 2 else rates)
    now = 0
    for _ in range(400):
        now += draw.choice([0, 1, 7, 10_000, 1 << 40])
        cell, size = draw.randrange(5), draw.choice([6, 64, 1500])
        seen = [colours(pipeline, now, cell=cell, size=size) for pipeline in both]
        assert seen[0] == seen[1]
    for name in ("packets", "bytes"):
        cells = [pipeline.meters[f"SwitchIngress.{name}"].cells.tolist() for pipeline in both]
        assert cells[0] == cells[1]


@pytest.mark.parametrize(
    "wrong",
    [
        *({"committed": 21}, {"peak": MAX_RATE + 1}, {"committed": -1}, {"peak_burst": MAX_BURST + 1}),
        {"excess_burst": 1},
        {"peak": 10, "peak_burst": 2, "excess_burst": -1},
        {"peak": 10, "peak_burst": 2, "excess_burst": MAX_BURST + 1},
    ],
)
def test_rates_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    pipeline = Pipeline.load((PROGRAMS / "metering.json").read_bytes(), engine="interpreter")
    rates = MeterRates(**{"committed": 10, "committed_burst": 2, "peak": 20, "peak_burst": 5, **wrong})
    with pytest.raises(BadEntry):
        pipeline.meters["SwitchIngress.packets"].configure(0, rates)
    with pytest.raises(BadEntry):
        pipeline.meters["SwitchIngress.packets"].configure(16, RATES)
    with pytest.raises(EntryMissing):
        pipeline.tables["SwitchIngress.stations"].set_direct_meter(
            Entry(match=(Exact(9),), action="SwitchIngress.known"), RATES
        )
