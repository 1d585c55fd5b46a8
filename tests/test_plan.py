"""`switchsum plan`: the formulas, what it says plainly, and what it would change first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from switchsum.cli.app import application
from switchsum_lab import advice as advices
from switchsum_lab.advice import Question, ways
from switchsum_lab.sweeps.recording import Recorder, travels
from switchsum_protocol.errors import UsageError

FOUR = Question(machines=4, rate_bps=1e9, size=100_000_000)


def advice(question: Question) -> list[str]:
    return [line.text for line in advices.advice(question)]


def seconds(question: Question, name: str) -> float:
    return next(way.seconds for way in ways(question) if way.name.startswith(name))


def test_four_machines_without_a_switch_are_told_that_dense_floats_gain_nothing() -> None:
    first, second, *_ = advice(FOUR)
    assert first.startswith("Dense float32 gains nothing over a ring here")
    assert second.startswith("50.00 times as fast: synchronise every 50 steps (switchsum.torch.DiLoCo, also over gloo")
    assert any(line.startswith("10.00 times as fast: get links of ten times the rate") for line in advice(FOUR))
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
    done = replace(FOUR, has_switch=True, mtu=9000, lanes="int8", every=50)
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


def test_ranks_of_machines_have_a_two_level_ring() -> None:
    eight = Question(machines=8, ranks=8, rate_bps=100e9, size=2_800_000_000)
    assert ways(eight)[0].name.startswith("a two-level ring, float32")
    assert seconds(eight, "a two-level ring") == pytest.approx(0.4129, rel=1e-3)
    assert seconds(eight, "gloo's ring") == pytest.approx(0.4646, rel=1e-3)
    assert advice(eight)[0].startswith("a two-level ring, float32: in each machine, then between them: 1.12 times")


def test_lanes_of_8_bits_are_advised_only_where_ranks_send_more_than_they_get() -> None:
    lines = [line for line in advice(replace(FOUR, has_switch=True)) if 'compress(model, "int' in line]
    assert [line.split('"')[1] for line in lines] == ["int10", "int16"]
    assert any('"int8"' in line for line in advice(FOUR)), "a switch on each machine: its link carries both ways"


def test_bfloat16_halves_what_a_ring_sends() -> None:
    half = replace(FOUR, ring_bits=16)
    assert seconds(half, "gloo's ring, bfloat16") == pytest.approx(seconds(FOUR, "gloo's ring, float32") / 2)
    assert "2.00 times as fast: send bfloat16 over the ring (DDP's bf16_compress_hook)" in advice(FOUR)
    assert not any("bfloat16" in line for line in advice(half)[1:])


def test_links_between_leaf_switches_bound_what_crosses_them() -> None:
    racks = Question(machines=32, rate_bps=10e9, size=100_000_000, rack=8, oversubscription=4)
    flat = replace(racks, rack=None, oversubscription=1.0)
    assert seconds(racks, "gloo") == seconds(flat, "gloo")  # a leaf's links carry the ring once
    part = next(way for way in ways(racks) if way.name.startswith("a switch on each machine, for a part"))
    assert part.bound == "the links of a leaf switch to the others"
    assert part.seconds == pytest.approx(4 * 24 / 31 * seconds(flat, "a switch on each machine"))
    with pytest.raises(UsageError, match="over-subscription is 1 or more, and needs the number of machines at a leaf"):
        replace(FOUR, oversubscription=2.0)
    with pytest.raises(UsageError, match="a leaf switch has 1 to 4 of 4 machines, not 5"):
        replace(FOUR, rack=5)


@pytest.mark.parametrize(
    ("name", "bytes_up", "bytes_down"),
    [("int10", 1.52, 1.52), ("thc", 1.11, 1.11), ("thc:4", 0.61, 1.11)],
)
def test_compressed_sums_have_the_bytes_of_their_page(name: str, bytes_up: float, bytes_down: float) -> None:
    """docs/compression.md has these bytes a value, without the 24 bytes that a cable adds to a frame."""
    found = advices.traffic_of(replace(FOUR, compress=name))
    values = FOUR.size / 4
    assert (found.up / values, found.down / values) == pytest.approx((bytes_up, bytes_down), rel=0.03)


def test_top_k_sends_the_union_of_ranks_or_pairs() -> None:
    four = advices.traffic_of(replace(FOUR, compress="topk:0.001"))
    assert "ranks, at random places: pairs)" in four.what
    pairs = 3 * 25_000 * 43 / 8
    assert pairs < four.down < 1.2 * pairs
    many = advices.traffic_of(replace(FOUR, machines=32, compress="topk:0.01"))
    assert "sums of 6,8" in many.what  # 27.5 % of 25 million values
    assert many.down > 4 * 6_800_000
    with pytest.raises(UsageError, match="top-k its values: leave lanes and density out"):
        replace(FOUR, compress="topk:0.01", density=0.5)
    for wrong in ("topk:2", "topk:x", "int7"):
        with pytest.raises(UsageError, match=r"a compression is int10, thc, thc:4 or topk:0\.01"):
            replace(FOUR, compress=wrong)


def test_nothing_is_advised_that_switchsum_does_not_do() -> None:
    assert any('compress(model, "thc")' in line for line in advice(FOUR))
    assert not any('compress(model, "thc")' in line for line in advice(replace(FOUR, machines=17)))
    assert not any('compress(model, "int10")' in line for line in advice(replace(FOUR, machines=271)))
    with pytest.raises(UsageError, match="thc adds at most 16 ranks, not 17"):
        replace(FOUR, machines=17, compress="thc")
    with pytest.raises(UsageError, match="a switch has 1,024 slots, not 2,000"):
        replace(FOUR, slots=2000)


def test_delays_count_for_each_step_and_bound_what_a_window_carries() -> None:
    near, far = (replace(FOUR, has_switch=True, delay_s=delay_s) for delay_s in (0.0, 8e-3))
    assert seconds(far, "gloo") == pytest.approx(seconds(near, "gloo") + 6 * 8e-3)
    frames = 25_000_000 / 256
    assert seconds(far, "the network's switch") == pytest.approx(frames / 256 * 8e-3 + 2 * 8e-3)
    assert any("give the job more frames in flight: --slots 1024" in line for line in advice(far))
    assert not any("--slots" in line for line in advice(near))
    wide = replace(far, slots=1024)
    assert seconds(wide, "the network's switch") == pytest.approx(seconds(near, "the network's switch") + 16e-3)
    part = "a switch on each machine, for a part"
    assert seconds(wide, part) == pytest.approx(seconds(near, part) + 4 * 8e-3)


def test_an_outer_step_is_spread_over_the_steps_between() -> None:
    often, rarely = replace(FOUR, delay_s=1e-3), replace(FOUR, delay_s=1e-3, every=50)
    assert seconds(rarely, "gloo") == pytest.approx(seconds(often, "gloo") / 50)
    assert not any("synchronise every" in line for line in advice(rarely))


def test_computing_hides_all_but_the_first_and_the_last_bucket() -> None:
    buckets = 4  # of 25 MiB
    for compute_s in (0.1, 1.3, 30.0):
        [ring] = (way for way in ways(replace(FOUR, compute_s=compute_s)) if way.is_ring)
        first_s = compute_s / 3 + compute_s * 2 / 3 / buckets
        assert ring.step_s == pytest.approx(max(compute_s + ring.seconds / buckets, first_s + ring.seconds))
    lines = advice(replace(FOUR, compute_s=30.0))
    assert lines[1].startswith("Computing takes nearly all of a step")
    assert len(lines) == 2
    slow = advice(replace(FOUR, compute_s=1.3))
    assert any(line.startswith("1.44") and line.endswith("get links of ten times the rate") for line in slow)


def test_each_line_has_its_arithmetic() -> None:
    more = {"delay_s": 1e-3, "compute_s": 0.1, "compress": "topk:0.01"}
    for line in advices.advice(replace(FOUR, has_switch=True, **more)):  # type: ignore[arg-type]
        assert line.arithmetic
        assert all("x 1.0 ms of delay" in text for text in line.arithmetic)
        assert all("with 100.0 ms of computing a step takes" in text for text in line.arithmetic)
    for question in (FOUR, replace(FOUR, ranks=8, has_switch=True), replace(FOUR, rack=2, oversubscription=4.0)):
        for way in ways(question):
            sums, rate = way.arithmetic.split(" = ")[0], float(way.arithmetic.split()[-2])
            counted = float(np.prod([_value(part) for part in sums.split(" x ")]))
            assert counted == pytest.approx(way.link_bytes, rel=1e-3)
            assert 8 * counted / rate / 1e9 == pytest.approx(way.seconds, rel=1e-3)
        assert all(line.arithmetic for line in advices.advice(question))
    options = ["plan", "--machines", "4", "--rate", "1gbit", "--model", "4kB"]
    plain = CliRunner().invoke(application("plan"), options, catch_exceptions=False).stdout
    reported = CliRunner().invoke(application("plan"), [*options, "--explain"], catch_exceptions=False).stdout
    assert "2 x 3/4 x 4,000 bytes" in reported
    assert "2 x 3/4" not in plain
    assert " us  gloo's ring, float32" in plain


def _value(text: str) -> float:
    first = text.split(maxsplit=1)[0].replace(",", "")
    above, _, below = first.partition("/")
    return float(above) / float(below or 1)


def test_a_job_that_is_too_large_for_switchsum_is_told_so() -> None:
    assert advice(Question(machines=5000, rate_bps=1e9, size=1000, has_switch=True))[1] == (
        "A job of switchsum has 4,096 ranks at most: of these 5,000 it adds none."
    )
