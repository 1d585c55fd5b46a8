"""The tables of errors in docs/accuracy.md are what the command makes, and the ring beside them is a ring."""

from __future__ import annotations

import re

import numpy as np
import pytest

from checks.bench import accuracy
from switchsum.host.engine.state import Count
from switchsum.protocol.frame import FRAME_BYTES
from switchsum.testing.cluster import Cluster, ClusterConfig


@pytest.mark.parametrize("kind", accuracy.INPUTS)
@pytest.mark.parametrize("dtype", accuracy.DTYPES)
@pytest.mark.parametrize("ranks", [2, 8])
def test_the_page_has_what_the_command_makes(kind: str, dtype: str, ranks: int) -> None:
    title = accuracy.INPUTS[kind]
    table = accuracy.PAGE.read_text().split(f"{title[0].upper()}{title[1:]}:")[1].split("\n\n")[1]
    (on_page,) = (line for line in table.splitlines() if line.startswith(f"| {dtype} | {ranks} |"))
    made = accuracy.row(kind, dtype, ranks)
    # Mathematical libraries may differ in a last bit of what is drawn.
    found, expected = ([float(cell or "nan") for cell in line.split("|")[3:-1]] for line in (on_page, made))
    np.testing.assert_allclose(found, expected, rtol=0.1)


@pytest.mark.parametrize("lanes", ["int32", "int16", "int8"])
def test_kernels_alone_err_as_a_job_does(lanes: str) -> None:
    arrays = [array[:8192] for array in accuracy.draw("normal", 4, np.dtype(np.float32))]
    exact = accuracy.exact_sum(arrays)
    alone = accuracy.Error.of(accuracy.through_lanes("float32", lanes, arrays), exact)
    results = [array.copy() for array in arrays]
    Cluster(ClusterConfig(workers=4, lanes_per_frame=accuracy.FRAME_LANES)).allreduce(results, lanes=lanes)
    assert accuracy.Error.of(results[0], exact).relative == pytest.approx(alone.relative, rel=0.1)


@pytest.mark.parametrize("kind", ["normal", "mixed"])
def test_a_sum_of_16_ranks_in_8_bits_is_within_3_percent(kind: str) -> None:
    arrays = [array[:8192] for array in accuracy.draw(kind, 16, np.dtype(np.float32))]
    exact = accuracy.exact_sum(arrays)
    cluster = Cluster(ClusterConfig(workers=16, lanes_per_frame=accuracy.FRAME_LANES))
    cluster.allreduce(arrays, lanes="int8")
    assert accuracy.Error.of(arrays[0], exact).relative < 0.03
    # One frame of each column has no lanes yet, and agrees on the first exponent.
    moved = cluster.workers[0].engine.counts - cluster.config.window_slots * FRAME_BYTES
    assert moved[Count.BYTES_SENT] / 8192 < 1.2
    assert moved[Count.BYTES_RECEIVED] / 8192 < 2.2


@pytest.mark.parametrize(
    ("name", "conditions", "text"),
    [
        ("allreduce.shm.1MB.4workers.256-int16", "4 workers, one machine", r"sum off by 2\.\de-04"),
        ("train.200mbit.gpt.int16", "4 worker processes, 256 lanes, links", r"sum off by 2\.\de-04"),
        ("train.200mbit.8workers.gpt.int16:32", "8 worker processes, 256 lanes", r"sum off by [1-9]\.\de-04"),
        ("train.200mbit.gpt.int8", "4 worker processes, 256 lanes", r"sum off by [5-9]\.\de-03"),
        ("allreduce.shm.1MB.16workers.256-int8", "16 workers, one machine", r"sum off by [12]\.\de-02"),
        ("allreduce.shm.1MB.4workers.256", "4 workers, one machine", None),
        ("switch.contributions.256.interpreter", "4 workers", None),
    ],
)
def test_narrow_lanes_are_told_with_their_error(name: str, conditions: str, text: str | None) -> None:
    found = accuracy.beside_speed(name, conditions)
    assert found == "" if text is None else re.fullmatch(rf" \({text}\)", found)


def test_a_small_layer_beside_large_ones_keeps_fewer_bits_as_the_page_says() -> None:
    arrays = accuracy.draw("mixed", 4, accuracy.DTYPES["bfloat16"][1])
    exact, layer = accuracy.exact_sum(arrays), np.arange(accuracy.VALUES) // 100 % 3 == 2
    ours, ring = accuracy.through_lanes("bfloat16", "int16", arrays), accuracy.around_a_ring(arrays)
    assert "is 2 % in int16 lanes, 0.26 % on gloo's ring" in accuracy.PAGE.read_text()
    assert accuracy.Error.of(ours[layer], exact[layer]).relative == pytest.approx(0.02, rel=0.1)
    assert accuracy.Error.of(ring[layer], exact[layer]).relative == pytest.approx(0.0026, rel=0.1)


@pytest.mark.parametrize(("name", "kind"), accuracy.LARGE.items())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_page_has_large_frames_beside_the_ring(name: str, kind: str, dtype: str) -> None:
    heading = f"{name} again, in frames of {accuracy.LARGE_FRAME_LANES:,} lanes:"
    table = accuracy.PAGE.read_text().split(heading)[1].split("\n\n")[1]
    for ranks in (2, 16):
        (on_page,) = (line for line in table.splitlines() if line.startswith(f"| {dtype} | {ranks} |"))
        made = accuracy.row(kind, dtype, ranks, accuracy.LARGE_FRAME_LANES)
        found, expected = ([float(cell) for cell in line.split("|")[3:-1]] for line in (on_page, made))
        np.testing.assert_allclose(found, expected, rtol=0.1)


def first_paragraph() -> str:
    """Return the page's first paragraph on one line."""
    return " ".join(accuracy.PAGE.read_text().split("\n\n")[1].split())


def test_the_first_paragraph_says_where_a_ring_is_clearly_better() -> None:
    ahead = {
        (kind, lanes, ranks): times for kind, lanes, ranks, times in accuracy.where_the_ring_is_ahead((4, 16, 32, 64))
    }
    words = re.search(
        r"at 32 ranks by ([\d.]+) times in frames of 256 lanes and by ([\d.]+) times in frames of 2,048, "
        r"at 64 ranks by ([\d.]+) and ([\d.]+) times",
        first_paragraph(),
    )
    assert words
    cases = [("heavy", lanes, ranks) for ranks in (32, 64) for lanes in accuracy.FRAMES]
    assert list(ahead) == sorted(cases, key=lambda case: case[1:])
    np.testing.assert_allclose([ahead[case] for case in cases], [float(times) for times in words.groups()], rtol=0.05)


def test_the_first_paragraph_says_what_is_left_of_a_small_layer() -> None:
    words = re.search(r"off by ([\d.]+) % at 4 ranks and by ([\d.]+) % at 16", first_paragraph())
    assert words
    table = accuracy.PAGE.read_text().split(accuracy.SMALL)[1].split("\n\n")[1]
    for ranks, percent in zip((4, 16), words.groups(), strict=True):
        (line,) = (line for line in table.splitlines() if line.startswith(f"| {ranks} |"))
        on_page = [float(cell) for cell in line.split("|")[2:-1]]
        found = [accuracy.within_small(ranks, lanes)[0] for lanes in accuracy.FRAMES]
        np.testing.assert_allclose(on_page[:2], found, rtol=0.1)
        assert float(percent) / 100 == pytest.approx(found[0], rel=0.2)
