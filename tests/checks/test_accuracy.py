"""Tables of errors in docs/results/accuracy.md are what the command makes, and docs/accuracy.md says what they say."""

from __future__ import annotations

import re

import numpy as np
import pytest

from checks.bench import accuracy
from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum_host.engine.state import Count
from switchsum_protocol.frame import FRAME_BYTES

PAGE = accuracy.ROOT / "docs" / "accuracy.md"
"""The page that says which lanes to choose; the tables are on accuracy.PAGE."""


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
    assert "is 2 % in int16 lanes, 0.26 % on gloo's ring" in PAGE.read_text()
    assert accuracy.Error.of(ours[layer], exact[layer]).relative == pytest.approx(0.02, rel=0.1)
    assert accuracy.Error.of(ring[layer], exact[layer]).relative == pytest.approx(0.0026, rel=0.1)


@pytest.mark.parametrize(("name", "kind"), accuracy.LARGE.items())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_page_has_large_frames_beside_the_ring(name: str, kind: str, dtype: str) -> None:
    heading = f"{name} again, in frames of {accuracy.LARGE_FRAME_LANES:,} lanes, have these errors:"
    table = accuracy.PAGE.read_text().split(heading)[1].split("\n\n")[1]
    for ranks in (2, 16):
        (on_page,) = (line for line in table.splitlines() if line.startswith(f"| {dtype} | {ranks} |"))
        made = accuracy.row(kind, dtype, ranks, accuracy.LARGE_FRAME_LANES)
        found, expected = ([float(cell) for cell in line.split("|")[3:-1]] for line in (on_page, made))
        np.testing.assert_allclose(found, expected, rtol=0.1)


def exceptions() -> str:
    """Return the page's section on what a ring does better, on one line."""
    return " ".join(PAGE.read_text().partition("\n## When a ring is more exact\n")[2].partition("\n## ")[0].split())


CHOICE = "## Which lanes to choose"


def test_the_page_begins_with_a_choice() -> None:
    assert PAGE.read_text().split("\n\n")[3] == CHOICE


COLUMNS = {"int32": 2, "int16": 4, '`lanes="int8"`': 6, "each": 8}
FINER_COLUMNS = {"int10": 3, '`compress(model, "int8")`': 5, "int16:32": 6}
"""Of lanes on the page: their columns in the tables of errors."""


def test_the_table_of_lanes_has_the_errors_of_the_tables() -> None:
    errors = {}
    for line in accuracy.PAGE.read_text().split("Normal values")[1].split("\n\n")[1].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "float32":
            errors.update({(name, cells[1]): float(cells[column]) for name, column in COLUMNS.items()})
    for line in re.findall(r"^\| normal \|.*", accuracy.PAGE.read_text(), re.MULTILINE):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        errors.update({(name, cells[1]): float(cells[column]) for name, column in FINER_COLUMNS.items()})
    table = {
        line.split(" | ")[0][2:]: line for line in PAGE.read_text().split(CHOICE)[1].split("\n\n")[1].splitlines()[2:]
    }
    assert table.keys() == {*COLUMNS, *FINER_COLUMNS}
    for name, line in table.items():
        said = re.findall(r"([\d.]+(?:e-\d+)?)( %)? at (\d+)", line)
        assert said, line
        for number, percent, ranks in said:
            assert float(number) * (0.01 if percent else 1) == pytest.approx(errors[name, ranks], rel=0.25), line


def test_the_page_says_where_a_ring_is_clearly_better() -> None:
    ahead = {
        (kind, lanes, ranks): times for kind, lanes, ranks, times in accuracy.where_the_ring_is_ahead((4, 16, 32, 64))
    }
    words = re.search(
        r"at 32 ranks by ([\d.]+) times in frames of 256 lanes, and by ([\d.]+) times in frames of 2,048\. "
        r"At 64 ranks it is ([\d.]+) and ([\d.]+) times",
        exceptions(),
    )
    assert words
    cases = [("heavy", lanes, ranks) for ranks in (32, 64) for lanes in accuracy.FRAMES]
    assert list(ahead) == sorted(cases, key=lambda case: case[1:])
    np.testing.assert_allclose([ahead[case] for case in cases], [float(times) for times in words.groups()], rtol=0.05)


def test_the_page_says_what_is_left_of_a_small_layer() -> None:
    words = re.search(r"off by ([\d.]+) % at 4 ranks, and by ([\d.]+) % at 16", exceptions())
    assert words
    table = accuracy.PAGE.read_text().split(accuracy.SMALL)[1].split("\n\n")[1]
    for ranks, percent in zip((4, 16), words.groups(), strict=True):
        (line,) = (line for line in table.splitlines() if line.startswith(f"| {ranks} |"))
        on_page = [float(cell) for cell in line.split("|")[2:-1]]
        found = [accuracy.within_small(ranks, lanes)[0] for lanes in accuracy.FRAMES]
        np.testing.assert_allclose(on_page[:2], found, rtol=0.1)
        assert float(percent) / 100 == pytest.approx(found[0], rel=0.2)
