"""Comparisons are made in turn, one run of each, and say how sure they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks.bench import compare, page, start
from checks.bench.compare import Run
from checks.bench.records import Record, pairs, processor, save


def test_a_ratio_is_of_pairs_and_not_of_medians() -> None:
    ours, theirs = [1.0, 2.0, 4.0, 8.0, 16.0, 1.0, 1.0], [2.0, 4.0, 8.0, 16.0, 32.0, 1.5, 3.0]
    assert pairs(ours, theirs).median == 2
    assert pairs(ours, theirs).interval == (1.5, 3)


def run_of(seconds: float) -> Run:
    return Run(seconds=seconds, cpu_seconds=3 * seconds, worker_seconds=seconds)


def test_a_record_has_the_interval_of_its_ratio_and_the_workers_own_time() -> None:
    taken = {
        ("256", 10**6): [run_of(second) for second in (0.1, 0.2, 0.1)],
        ("gloo", 10**6): [run_of(second) for second in (0.2, 0.4, 0.3)],
    }
    ours, _ = compare.records("p", 4, taken)
    assert ours.more["x gloo"] == pytest.approx(2)
    assert ours.intervals["x gloo"] == pytest.approx((2, 3))
    assert ours.more["CPU s/GB"] == pytest.approx(3 * ours.more["of it a worker's"])


@pytest.mark.parametrize(
    ("described", "kind"),
    [
        ("AMD EPYC, 2 cores, Linux 6", "AMD EPYC, 2 cores"),
        ("Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz, 4 cores, Linux 6", "Intel Xeon Platinum 8375C, 4 cores"),
        ("AMD EPYC 7763 64-Core Processor, 2 cores", "AMD EPYC 7763, 2 cores"),
        ("", "not recorded"),
    ],
)
def test_a_kind_of_processor_is_its_model_and_its_cores(described: str, kind: str) -> None:
    assert processor(described) == kind


def row(name: str, machine: str, value: float) -> dict[str, object]:
    one = {"name": name, "machine": machine, "value": value, "unit": "s", "spread": 0.4, "conditions": ""}
    return {**one, "peer": None, "ratio": None, "more": {"x gloo": 1.5}, "intervals": {"x gloo": (1.25, 1.75)}}


def test_each_kind_of_processor_has_columns_of_its_own() -> None:
    rows = [row("a", "AMD EPYC, 2 cores", 1), row("b", "AMD EPYC, 2 cores", 2), row("b", "Intel Xeon, 2 cores", 3)]
    head, _, first, second = page.table(rows)
    assert head.count("x gloo, AMD EPYC, 2 cores") == head.count("x gloo, Intel Xeon, 2 cores") == 1
    assert first == "| `a` | 1 s | 40% (!) | 1.5 (1.25 to 1.75) | not measured |  |  |"
    assert second == "| `b` | 2 s | 40% (!) | 1.5 (1.25 to 1.75) | 3 s | 40% (!) | 1.5 (1.25 to 1.75) |"


def test_a_chosen_figure_stands_beside_those_of_the_others() -> None:
    rows = [row("p.256", "AMD", 1), row("p.gloo", "AMD", 2), row("p.openmpi", "AMD", 3), row("q.256", "Xeon", 4)]
    rows.append(row("p.gloo", "took no chosen figure", 5))
    lines = page.choice(rows, {"p.256": ("P", "in turn"), "q.256": ("Q", "the same")})
    columns = ("switchsum", "others", "speed-up (below 1: slower)")
    heads = [f"{column}, {kind}" for kind in ("AMD", "Xeon") for column in columns]
    assert lines[0] == f"|  | {' | '.join(heads)} | what was measured |"
    beside = "1 s, spread 40% (!) | gloo 2, Open MPI 3 | gloo 1.5 (1.25 to 1.75)"
    assert lines[2] == f"| P | {beside} | not measured |  |  | in turn |"
    assert lines[3] == "| Q | not measured |  |  | 4 s, spread 40% (!) |  | gloo 1.5 (1.25 to 1.75) | the same |"


def test_a_figure_of_another_kind_of_processor_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured_on(machine: str, value: float) -> None:
        monkeypatch.setattr("checks.bench.records.machine", lambda: machine)
        save([Record(name="a", value=value, unit="s", conditions="")], "command", tmp_path / "records")

    for machine, value in (("AMD EPYC, 2 cores, Linux 1", 1), ("Xeon, 2 cores", 2), ("AMD EPYC, 2 cores, Linux 2", 3)):
        measured_on(machine, value)
    text = (tmp_path / "records").read_text()
    assert ('"value": 1' not in text, '"value": 2' in text, '"value": 3' in text) == (True, True, True)


def test_a_table_says_once_for_each_machine_what_it_was_measured_on() -> None:
    one = {"machine": "AMD", "commit": "b", "date": "2026-11-02", "load": (1.0, 3.0)}
    other = {"machine": "AMD", "commit": "a", "date": "2026-11-01", "load": (0.5, 2.0)}
    found = page._measured([one, other, {"machine": "AMD"}, {"machine": "Xeon"}])
    assert found == [
        "Measured on AMD, commit a, b, not recorded, 2026-11-01, 2026-11-02, date not recorded, load 0.5 to 3.0.  ",
        "Measured on Xeon, commit not recorded, date not recorded, load not recorded.  ",
    ]


def test_starts_are_compared_by_turns() -> None:
    ours, *_ = start.records({"switchsum": [4.0, 8.0, 4.0], "gloo": [2.0, 8.0, 3.0]})
    assert (ours.value, ours.runs) == (4.0, 3)
    assert ours.more == {"x gloo": 0.75}
    assert ours.intervals == {"x gloo": (0.5, 1.0)}
