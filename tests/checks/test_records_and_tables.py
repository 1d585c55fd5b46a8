"""The benchmarks' own machinery: what is recorded, how it is shown, and what counts as a wrong sum."""

from __future__ import annotations

import importlib
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import checks.bench.__main__ as bench
from checks.bench import compare, kernels, page, plots, swept
from checks.bench.__main__ import PARTS, main, options_of
from checks.bench.ages import unmarked
from checks.bench.choice import NARROWING
from checks.bench.compare import Run
from checks.bench.records import RESULTS, Record, Samples, exceeded, measured_on, record, save, spread


def one(name: str, value: float = 1.0, **more: float) -> Record:
    return Record(name=name, value=value, unit="MB/s per worker", conditions="here", more=more)


def rows(path: Path) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(path.read_text())
    return loaded


def test_pieces_of_a_table_add_up_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "results" / "records.json"
    save([one("b", 1), one("a", 2)], "python -m checks.bench --only b", path)
    save([one("b", 3)], "python -m checks.bench --only b --runs 7", path)
    found = rows(path)
    assert [(row["name"], row["value"]) for row in found] == [("a", 2), ("b", 3)]
    assert found[1]["command"].endswith("--runs 7")
    assert "numpy" in found[1]["machine"]


def test_a_record_says_where_when_and_of_what_it_is(tmp_path: Path) -> None:
    save([record("a", Samples(values=[1.0, 2.0, 3.0]), "s", "here")], "command", tmp_path / "records", load_before=0.5)
    (row,) = rows(tmp_path / "records")
    assert row["runs"] == 3
    assert row["load"][0] == 0.5
    where = measured_on(row)
    assert row["machine"] in where
    assert f"load 0.5 to {row['load'][1]}" in where
    assert datetime.now(UTC).date().isoformat()[:7] in where
    assert measured_on({}).count("not recorded") == 4


def test_a_large_spread_is_marked() -> None:
    assert (spread(0.3), spread(0.31)) == ("30%", "31% (!)")


def test_the_pages_are_those_of_the_records() -> None:
    pages = page.results(rows(RESULTS))
    assert {path.stem for path in (page.ROOT / "docs/results").glob("*.md")} == {
        *pages,
        "accuracy",
        "ages",
        "conformance",
        "convergence",
        "cores",
        "validated",
        "watching",
        "scale",
        "shared-slots",
        "congestion",
        "slow-links",
        "sparse",
        "sparse-blocks",
        "sparse-topk",
        "sparse-ways",
        "method",
        "experiments",
        "experiments-links",
        "not-built",
        "bmv2",
        "late-ranks",
        "line",
        "loss-in-trees",
        "processor-time",
        "pytorch-tests",
        "searches",
        "tree-rates",
        "trees",
    }
    for name, lines in pages.items():
        text = unmarked((page.ROOT / f"docs/results/{name}.md").read_text())
        assert text == "\n".join(lines), "make bench ARGS=--publish"


def test_a_table_has_a_column_for_each_further_figure(tmp_path: Path) -> None:
    save([one("x.1kB", 5, **{"x gloo": 1.5}), one("x.2kB", 6, **{"bus MB/s": 9})], "command", tmp_path / "records")
    head, _, first, second = page.table(rows(tmp_path / "records"))
    assert head == "| figure | median | spread | x gloo | bus MB/s |"
    assert first.endswith("| 1.5 |  |")
    assert second.endswith("|  | 9 |")


def test_rows_are_in_the_order_of_their_numbers() -> None:
    names = ["s.10MB.4workers.a", "s.4B.16workers.a", "s.1MB.4workers.a", "s.4B.2workers.a", "s.100kB.4workers.a"]
    ordered = sorted(({"name": name} for name in names), key=page._place)
    assert [row["name"].split(".")[1] for row in ordered] == ["4B", "4B", "100kB", "1MB", "10MB"]
    assert ordered[0]["name"] == "s.4B.2workers.a"


def test_ratios_say_how_many_times_better_we_are() -> None:
    def runs(seconds: float) -> list[Run]:
        return [Run(seconds=seconds, cpu_seconds=4 * seconds, own_bytes=100)] * 3

    taken = {("256", 4): runs(1e-4), ("256", 10**6): runs(0.1), ("gloo", 4): runs(3e-4), ("gloo", 10**6): runs(0.05)}
    found = {item.name: item for item in compare.records("p", 4, taken, "200mbit")}
    small, large = found["p.4B.4workers.256"], found["p.1MB.4workers.256"]
    assert small.unit == "us"
    assert small.value == pytest.approx(100)
    assert small.more["x gloo"] == pytest.approx(3)
    assert large.value == pytest.approx(10)
    assert large.more["x gloo"] == pytest.approx(0.5)
    assert large.more["bus MB/s"] == pytest.approx(15)
    assert large.more["share of line"] == pytest.approx(0.4)
    assert large.more["CPU s/GB"] == pytest.approx(100)
    assert "x gloo" not in found["p.1MB.4workers.gloo"].more


def test_what_is_slow_beside_a_copy_is_named() -> None:
    name, limit = "kernels.pack", kernels.LIMITS["kernels.pack"]
    fine, slow = (record(name, Samples(values=[limit * share]), "copies", "") for share in (0.99, 1.01))
    assert exceeded([fine], kernels.LIMITS) == []
    assert exceeded([slow, fine], kernels.LIMITS) == [f"kernels.pack: {slow.value:.3g} copies, at most {limit:g}"]


def test_plots_find_their_records() -> None:
    found = plots._of([{"name": "allreduce.shm.100MB.16workers.2048"}, {"name": "loss.256"}], "allreduce.shm.100MB")
    assert list(found) == [(16, "2048")]


def test_a_bar_that_is_missing_has_its_place() -> None:
    row: dict[str, Any] = {"value": 1, "spread": 0}
    drawn = list(plots.bars({(2, "gloo"): row, (2, "256"): row, (4, "256"): row}))
    assert [(name, found) for _, _, name, found in drawn] == [("256", row), ("gloo", row), ("256", row), ("gloo", None)]
    places = [place for place, *_ in drawn]
    assert places == sorted(places)


def test_the_median_lies_in_its_interval_19_times_of_20() -> None:
    dice = np.random.default_rng(3)
    intervals = [Samples(values=list(dice.exponential(size=101))).interval for _ in range(500)]
    inside = sum(low <= np.log(2) <= high for low, high in intervals)
    assert 0.93 * 500 <= inside <= 0.99 * 500


@pytest.mark.parametrize("part", PARTS)
def test_a_part_takes_the_options_that_it_looks_at_and_no_others(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Path(str(importlib.import_module(f"checks.bench.{part}").__file__)).read_text()
    if "swept.TAKES" in source:
        source += Path(swept.__file__).read_text()
    looked_at = {name for name in NARROWING if re.search(rf"\bchoice\.{name}\b", source)}
    assert set(options_of(part)) == looked_at
    for name in {*NARROWING} - looked_at:
        monkeypatch.setattr(sys, "argv", ["bench", "--only", part, f"--{name}", "3"])
        with pytest.raises(SystemExit) as refused:
            main()
        assert refused.value.code == 2
        assert f"{part} does not take --{name}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--workers", "3"], "--only says which part is meant"),
        (["--small", "--only", "links"], "--small goes with no other option"),
        (["--publish", "--out", "x"], "--publish goes with no other option"),
    ],
)
def test_options_that_would_be_dropped_are_refused(
    options: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", *options])
    with pytest.raises(SystemExit):
        main()
    assert said in capsys.readouterr().err


def test_measurements_stay_out_of_the_committed_records_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = RESULTS.read_bytes()
    assert RESULTS.parent not in bench.OUT.parents
    for out in (tmp_path / "default.json", tmp_path / "asked.json"):
        monkeypatch.setattr(bench, "OUT", tmp_path / "default.json")
        monkeypatch.setattr(
            sys, "argv", ["bench", "--only", "kernels", *(["--out", str(out)] if "asked" in out.name else [])]
        )
        monkeypatch.setattr(kernels, "run", lambda: [one("a")])
        assert main() == 0
        assert [row["name"] for row in rows(out)] == ["a"]
    assert RESULTS.read_bytes() == before
