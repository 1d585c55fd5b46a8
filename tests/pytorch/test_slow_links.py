"""How soon a loss is reached on slow links: trainings of real optimizers, the formula, and the page's table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from checks.lab.convergence_results import Results
from checks.lab.convergence_tasks import TASKS
from checks.lab.outer_ways import OUTER, train_outer
from checks.lab.slow_links import BEGIN, END, KEPT, PAGE, of_task, seconds, table, tables

STEPS, EVERY = 9, 4


def test_ways_that_synchronise_now_and_then_move_a_share_of_the_bytes_and_learn() -> None:
    ways = {
        name: replace(OUTER[name], every=EVERY, delay=min(OUTER[name].delay, 1))
        for name in ("gloo, DiLoCo 10", "DiLoCo 10", "DiLoCo 10, int10", "streaming 50, int10")
    }
    runs = {name: train_outer(TASKS["digits"], way, 1, STEPS, ranks=2) for name, way in ways.items()}
    whole = 4 * runs["DiLoCo 10"]["parameters"]
    for name, run in runs.items():
        assert run["losses"][:2] == runs["DiLoCo 10"]["losses"][:2], name  # the same models and batches
        assert run["losses"][-1] < run["losses"][0], name
    assert runs["gloo, DiLoCo 10"]["losses"] == pytest.approx(runs["DiLoCo 10"]["losses"], rel=1e-3)
    assert runs["gloo, DiLoCo 10"]["up"] == pytest.approx(whole / EVERY, rel=0.2)
    assert runs["DiLoCo 10"]["up"] == pytest.approx(whole * 2 / STEPS, rel=0.1)  # two outer steps in nine
    assert runs["DiLoCo 10, int10"]["up"] == pytest.approx(whole * 2 / STEPS * 1.39 / 4, rel=0.1)


def run(down: float, losses: list[float]) -> dict[str, Any]:
    on = {"machine": "a machine", "date": "2026-01-01"}
    return {"up": down, "down": down, "parameters": 10, "losses": losses, "on": on}


def few() -> tuple[Results, Results]:
    falling = [float(10 - step) for step in range(10)]
    plain = Results(trained={"gpt/gloo/1": run(1e6, falling)}, times={})
    kept = Results(trained={f"gpt/{way}/1": run(2e4, falling) for way in OUTER}, times={})
    return plain, kept


def test_an_average_that_may_take_some_steps_costs_what_it_takes_beyond_them() -> None:
    plain, kept = few()
    ways = of_task(plain.trained | kept.trained, "gpt")
    # A step of 6 ms, and 20 kB a step, which are 16 ms at 10 Mbit/s and 1.6 ms at 100.
    assert seconds("DiLoCo 50, int10", ways["DiLoCo 50, int10"], 100, 10) == pytest.approx(2.2)
    # Twice in 50 steps 500 kB, which are 400 ms at 10 Mbit/s, of which 12 steps hide 72.
    streaming = ways["streaming 50, int10"]
    assert seconds("streaming 50, int10", streaming, 100, 10) == pytest.approx(0.6 + 4 * 0.328)
    assert seconds("streaming 50, int10", streaming, 100, 100) == pytest.approx(0.6)
    assert seconds("gloo", ways["gloo"], 100, 100) == pytest.approx(100 * (0.006 + 0.08))


def test_the_table_has_each_way_with_its_seconds() -> None:
    text = "\n".join(table(*few(), "gpt"))
    assert "| gloo | 1,000 | 4 (4 to 4) | 3.22 |" in text
    assert "| DiLoCo 50, int10 | 20 | 4 (4 to 4) | 0.09 |" in text
    assert "Milliseconds of a step as measured" not in text
    times = {"gpt/10mbit": {"machine": "a machine", "ms": {"gloo": {"median": 571.25}}}}
    plain, kept = few()
    text = "\n".join(table(plain, replace(kept, times=times), "gpt"))
    assert "| way | 10mbit |" in text
    assert "| gloo | 571.2 |" in text


def test_the_page_has_what_was_trained() -> None:
    found = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert found == tables(Results.read(), Results.read(KEPT))
