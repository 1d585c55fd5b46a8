"""`switchsum plan`: the formulas, what it says plainly, and what it would change first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from switchsum.cli.app import application
from switchsum_lab.advice import Question, advice, ways
from switchsum_lab.sweeps.recording import Recorder, travels
from switchsum_protocol.errors import UsageError

FOUR = Question(machines=4, rate_bps=1e9, size=100_000_000)


def seconds(question: Question, name: str) -> float:
    return next(way.seconds for way in ways(question) if way.name.startswith(name))


def test_four_machines_without_a_switch_are_told_that_dense_floats_gain_nothing() -> None:
    first, second, *_ = advice(FOUR)
    assert first.startswith("Dense float32 gains nothing over a ring here")
    assert second.endswith("get links of ten times the rate")
    assert any("8 bits a value" in line for line in advice(FOUR))
    assert ways(FOUR)[0].name.startswith("gloo's ring")
    assert seconds(FOUR, "a switch on one") == pytest.approx(3 * 100e6 * 8 / 1e9 * 1138 / 1024)


def test_a_switch_in_the_network_wins_by_the_factor_of_a_ring_less_its_headers() -> None:
    found = ways(replace(FOUR, has_switch=True, mtu=9000))
    assert found[0].name == "the network's switch adds"
    factor = seconds(replace(FOUR, mtu=9000), "gloo") / found[0].seconds
    assert factor == pytest.approx(2 * 3 / 4, rel=0.02)
    assert advice(replace(FOUR, has_switch=True, mtu=9000))[0].startswith("the network's switch adds: 1.4")


def test_ranks_of_one_machine_are_added_there_first() -> None:
    eight = replace(FOUR, ranks=8, has_switch=True)
    assert ways(eight)[0].name.startswith("a switch on each machine, the network's above")
    assert seconds(eight, "the network's switch") == pytest.approx(8 * ways(eight)[0].seconds)


def test_what_is_set_already_is_no_advice() -> None:
    done = replace(FOUR, has_switch=True, mtu=9000, lanes="int8")
    assert [line for line in advice(done)[1:] if "links of ten" not in line] == []
    assert advice(Question(machines=1, ranks=4, rate_bps=1e9, size=1000))[0].startswith("All ranks are on one machine")


def test_blocks_of_zeros_cost_switches_nothing() -> None:
    sparse = replace(FOUR, density=0.1)
    assert seconds(sparse, "a switch on one") == pytest.approx(seconds(FOUR, "a switch on one") / 10)
    assert seconds(sparse, "gloo") == seconds(FOUR, "gloo")
    assert advice(sparse)[0].startswith("a switch on each machine, for a part of the values: 9.")


def test_a_recorded_step_says_its_bytes_and_how_many_blocks_travel(tmp_path: Path) -> None:
    for rank in range(2):
        with Recorder(tmp_path / "run", rank=rank, world_size=2) as recorder:
            for step in range(2):
                gradient = np.zeros(1024, np.float32)
                gradient[256 * rank * step] = 1
                recorder.note("layer", gradient)
    assert [travels(tmp_path / "run", step) for step in range(2)] == [(4096, 0.25), (4096, 0.5)]
    options = ["plan", "--machines", "4", "--rate", "1gbit", "--recording", str(tmp_path / "run"), "--step", "1"]
    found = CliRunner().invoke(application("plan"), options, catch_exceptions=False)
    assert "4,096 bytes; any rank has values in 50.0% of the blocks" in found.stdout
    for wrong, says in ((["--step", "2"], "no step 2: its steps are 0 to 1"), (["--model", "1MB"], "either")):
        with pytest.raises(UsageError, match=says):
            CliRunner().invoke(application("plan"), [*options, *wrong], catch_exceptions=False)


@pytest.mark.parametrize("wrong", [{"density": 0.0}, {"machines": 1}, {"mtu": 500}, {"lanes": "int7"}, {"size": 1}])
def test_what_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        replace(FOUR, **wrong)  # type: ignore[arg-type]


def test_the_command_says_it() -> None:
    options = ["plan", "--machines", "4", "--rate", "1gbit", "--model", "100MB"]
    found = CliRunner().invoke(application("plan"), options, catch_exceptions=False)
    assert "Dense float32 gains nothing over a ring here" in found.stdout
    assert "gloo's ring, float32" in found.stdout
    as_json = CliRunner().invoke(application("plan"), [*options, "--json"], catch_exceptions=False)
    assert '"advice"' in as_json.stdout
