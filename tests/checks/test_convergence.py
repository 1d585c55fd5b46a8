"""What compressed trainings learn: the quick part, a few steps of the smallest model, and what tables say of it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from checks.bench.convergence import WAYS, known, train
from checks.bench.convergence_page import COLOURS, PAGE, smoothed, table, targets_of, trained
from checks.bench.convergence_tasks import TASKS

STEPS = 12


def test_narrow_ways_learn_what_whole_gradients_do_and_others_with_far_fewer_bytes() -> None:
    runs = {
        way: train(TASKS["images"], WAYS[way], 1, STEPS, ranks=2) for way in ("gloo", "dense", "int10", "topk:0.01")
    }
    ends = {way: float(np.mean(run["losses"][-5:])) for way, run in runs.items()}
    assert runs["dense"]["losses"][0] == runs["gloo"]["losses"][0]  # the same models and batches
    assert ends["dense"] == pytest.approx(ends["gloo"], rel=0.02)
    assert ends["int10"] == pytest.approx(ends["gloo"], rel=0.1)
    assert ends["topk:0.01"] < 0.9 * runs["gloo"]["losses"][0]
    whole = 4 * runs["gloo"]["parameters"]
    assert runs["gloo"]["up"] == pytest.approx(whole, rel=0.01)  # a ring of two moves the message once
    assert runs["dense"]["down"] == pytest.approx(whole, rel=0.05)
    assert runs["int10"]["up"] == pytest.approx(whole * 1.396 / 4, rel=0.08)
    assert runs["topk:0.01"]["up"] < whole / 8


def test_tables_count_steps_to_the_loss_of_the_plain_training() -> None:
    run = {"up": 1e6, "down": 2e6, "gradient_s": 0.001, "parameters": 10}
    falling = [float(10 - step) for step in range(10)]
    results = {
        "gpt/gloo/1": {**run, "losses": falling},
        "gpt/int8/1": {**run, "losses": [9.0] * 10},
        "gpt/int10/1": {**run, "losses": falling, "down": 1e6},
    }
    ways = trained(results, "gpt")
    assert targets_of(ways) == {"1": pytest.approx(8.5)}  # the mean of the first four
    assert ways["gloo"].steps_to({"1": 8.5}) == [4]
    lines = [line for line in table(results, "gpt") if line.startswith("| ")]
    assert lines[1].startswith("| gloo | 1,000 | 2,000 | 4 (4 to 4) | 8.0 | 0.3 | 0.1 |")
    assert lines[2].startswith("| int10 | 1,000 | 1,000 | 4 (4 to 4) | 4.0 |")
    assert lines[3].startswith("| int8 | 1,000 | 2,000 | not by 1 of 1 seeds |")
    np.testing.assert_allclose(smoothed(np.arange(40.0))[-1], np.arange(20, 40).mean())


def test_the_page_has_what_was_trained() -> None:
    text, results = PAGE.read_text(), known()
    assert {*WAYS} == {*COLOURS}
    for task in {name.partition("/")[0] for name in results}:
        for line in table(results, task):
            assert line in text
