"""What compressed trainings learn: a few steps of a small model, what a real step is attached to, and the tables."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from checks.lab import convergence_times
from checks.lab.convergence import train
from checks.lab.convergence_page import (
    BEGIN,
    COLOURS,
    END,
    PAGE,
    measured,
    smoothed,
    table,
    tables,
    targets_of,
    trained,
)
from checks.lab.convergence_results import Results
from checks.lab.convergence_tasks import TASKS
from checks.lab.convergence_times import Measured, medians
from checks.lab.convergence_ways import ALL_OF, ALONE, MAIN, WAYS, ways_of
from checks.lab.convergence_worker import ways
from switchsum.torch.compression import METHODS

STEPS = 8


def test_narrow_ways_learn_what_whole_gradients_do_and_others_with_far_fewer_bytes() -> None:
    runs = {way: train(TASKS[ALL_OF], WAYS[way], 1, STEPS, ranks=2) for way in ("gloo", "int16", "topk:0.01")}
    ends = {way: float(np.mean(run["losses"][-4:])) for way, run in runs.items()}
    assert runs["int16"]["losses"][0] == runs["gloo"]["losses"][0]  # the same models and batches
    assert ends["int16"] == pytest.approx(ends["gloo"], rel=0.01)
    assert ends["gloo"] < ends["topk:0.01"] < runs["gloo"]["losses"][0]
    whole = 4 * runs["gloo"]["parameters"]
    assert runs["gloo"]["up"] == pytest.approx(whole, rel=0.01)  # a ring of two moves the message once
    assert runs["int16"]["down"] == pytest.approx(whole / 2, rel=0.06)
    assert runs["topk:0.01"]["up"] < whole / 8
    assert 0 < runs["int16"]["accuracy"] <= 1


def test_every_method_of_compress_is_compared() -> None:
    lossless = {"each"}  # learns as float32 does
    assert {name.partition(":")[0] for name in WAYS} >= METHODS.keys() - lossless
    assert ways_of(ALL_OF) == tuple(WAYS)
    assert {*ways_of("gpt")} == {*MAIN} == {*COLOURS}


def test_each_way_is_measured_on_one_backend() -> None:
    ours, theirs = ways(ALL_OF, "switchsum"), ways(ALL_OF, "gloo")
    assert {*ours, *theirs} == {ALONE, *WAYS}
    assert not ours.keys() & theirs.keys()
    assert all(name.startswith("gloo") for name in theirs)


RUN: dict[str, Any] = {"up": 1e6, "down": 2e6, "parameters": 10}
FALLING = [float(10 - step) for step in range(10)]


def few() -> Results:
    """Return trainings of three ways, and steps that were measured of two at one rate."""
    gloo, int8, int10 = (f"gpt/{way}/1" for way in ("gloo", "int8", "int10"))
    return Results(
        trained={
            gloo: {**RUN, "losses": FALLING},
            int8: {**RUN, "losses": [9.0] * 10},
            int10: {**RUN, "losses": FALLING, "down": 1e6},
        },
        times={
            "gpt/200mbit": {
                **{"machine": "a machine", "commit": "abc", "date": "2026-01-01", "load": [0.5, 2.0]},
                "ms": medians({"gloo": [1000.0, 2000.0, 3000.0], "int8": [100.0], ALONE: [7.0]}),
            }
        },
    )


def test_tables_count_steps_to_the_loss_of_the_plain_training_and_what_each_took() -> None:
    ways = trained(few().trained, "gpt")
    assert targets_of(ways) == {"1": pytest.approx(8.5)}  # the mean of the first four
    assert ways["gloo"].steps_to({"1": 8.5}) == [4]
    text = "\n".join(table(few(), "gpt"))
    assert "| gloo | 1,000 | 2,000 | 4 (4 to 4) | 8.0 | 2,000.0 | 8.0 |  |  | 5.500" in text
    assert "| `int8` | 1,000 | 2,000 | not by 1 of 1 seeds |  | 100.0 |  |  |  | 9.000" in text
    assert "A step without communication takes 7.0 ms." in text
    assert list(measured(few())) == ["Steps measured on a machine, commit abc, 2026-01-01, load 0.5 to 2.0.  "]
    np.testing.assert_allclose(smoothed(np.arange(40.0))[-1], np.arange(20, 40).mean())


def test_what_was_not_measured_is_an_empty_cell() -> None:
    results = Results(trained=few().trained, times={})
    text = "\n".join(table(results, "gpt"))
    assert "| `int10` | 1,000 | 1,000 | 4 (4 to 4) | 4.0 |  |  |  |  | 5.500" in text
    assert "without communication" not in text
    assert "not measured" in "".join(measured(results))


def test_rounds_that_fail_are_told_and_what_came_before_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = iter([({"gpt": {"dense": [5.0, 6.0]}}, 0), ({}, 3), ({"gpt": {"dense": [7.0]}}, 0), ({}, 0)])
    monkeypatch.setattr(convergence_times, "trained", lambda *_: next(answers))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    path = tmp_path / "results.json"
    failed = convergence_times.measure(Measured(tasks=("gpt",), rates=("1gbit",), rounds=2), path)
    assert failed == ["gloo at 1gbit, round 1: ended with code 3"]
    kept = Results.read(path).times["gpt/1gbit"]
    assert kept["ms"]["dense"]["median"] == 6.0
    assert kept["ms"]["dense"]["steps"] == 3
    assert {"machine", "commit", "date", "load"} <= kept.keys()


def test_a_job_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convergence_times, "PATIENCE_S", 0.1)
    monkeypatch.setattr(convergence_times, "BACKENDS", {"gloo": lambda *_: ["sleep", "1000"]})
    assert convergence_times.trained("gloo", "1gbit", Measured(tasks=("gpt",))) == ({}, -signal.SIGTERM)


def test_the_page_has_what_was_trained_and_measured() -> None:
    assert PAGE.read_text().partition(BEGIN)[2].partition(END)[0] == tables(Results.read())
