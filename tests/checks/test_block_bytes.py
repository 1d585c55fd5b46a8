"""Bytes of sums in small blocks: the model counts what passes the switch's ports, and the page has what it says."""

from __future__ import annotations

from typing import Any

import pytest

from checks.bench.gradients import Floats
from checks.lab import block_bytes, topk_bytes
from checks.lab.counting import on_all
from switchsum_host.api.ways import FEW


@pytest.mark.parametrize(("block", "overlap"), [(32, "random"), (32, "none"), (256, "random"), (32, "all")])
def test_the_model_is_what_the_switch_counts(block: int, overlap: str) -> None:
    ranks, lanes, values = 4, 256, 1 << 17
    has = block_bytes.drawn(overlap, ranks, values // block, 0.1)
    model = block_bytes.modelled(has, block, lanes, values)
    assert block_bytes.counted(has, block, lanes, values) == model


@pytest.mark.parametrize("overlap", block_bytes.OVERLAPS)
@pytest.mark.parametrize("density", [0.1, 0.6])
def test_frames_by_owners_come_near_omnireduce(overlap: str, density: float) -> None:
    ranks, block, lanes, values = 4, 32, 2048, 1 << 20
    has = block_bytes.drawn(overlap, ranks, values // block, density)
    least = block_bytes.omnireduce(has, block, lanes)
    ours = block_bytes.modelled(has, block, lanes, values)
    plain = block_bytes.modelled(has, block, lanes, values, ordered=False)
    assert ours.up <= 1.2 * least.up
    assert ours.down <= 1.2 * least.down
    if overlap == "random" and density > 1 / FEW:  # else each rank gets the blocks of the others
        assert plain.up >= 1.5 * least.up


def test_the_page_has_what_the_command_makes() -> None:
    has = block_bytes.drawn("random", 4, -(-block_bytes.VALUES // 256), 0.6)
    made = block_bytes.cell(has, 256, 256, block_bytes.VALUES)
    assert f"| 256 | 60% | random | {made} |" in block_bytes.PAGE.read_text()


def test_misses_say_what_most_of_the_rest_is() -> None:
    lanes, values = 256, 1 << 18
    made = [
        block_bytes.cell(block_bytes.drawn(overlap, ranks, values // 256, density), 256, lanes, values)
        for overlap, ranks, density in (("all", 4, 0.6), ("none", 16, 0.06), ("random", 16, 0.1))
    ]
    assert list(block_bytes.misses(lanes, made)) == [
        "| within 1.2 both ways | 256 | 1 of 3 | |",
        f"| above it most for {block_bytes.ANSWERS} | 256 | 2 | {over(made[2])} to {over(made[1])} |",
    ]
    wide = block_bytes.cell(block_bytes.drawn("random", 32, values // 32, 0.3), 32, 2048, values)
    assert wide.ours.reason(wide.least) == block_bytes.BLOCKS_OF_OTHERS
    few = block_bytes.cell(block_bytes.drawn("all", 4, values // 32, 0.01), 32, 2048, values)
    assert few.ours.reason(few.least) == block_bytes.SUPPORTS
    assert not few.ours.is_near(few.least)


def over(cell: block_bytes.Cell) -> str:
    return f"{cell.ours.up / cell.least.up:.2f}"


def test_no_overlap_has_none() -> None:
    has = block_bytes.drawn("none", 8, 1000, 0.1)
    assert (has.sum(axis=0) <= 1).all()
    assert (has.sum(axis=1) == 100).all()
    assert (block_bytes.drawn("all", 8, 1000, 0.1)[0] == block_bytes.drawn("all", 8, 1000, 0.1)[7]).all()


@pytest.mark.parametrize("way", topk_bytes.WAYS)
def test_the_model_of_top_k_is_what_the_switch_counts(way: str) -> None:
    ranks, lanes, values, density = 4, 256, 1 << 16, 0.01
    ports = block_bytes.Ports(ranks, lanes, "native")
    made = block_bytes.communicators(ports, ranks, lanes)

    def gradient(rank: int) -> Floats:
        return topk_bytes.drawn(rank, values)

    def call(rank: int) -> None:
        comm: Any = made[rank]
        topk_bytes.WAYS[way](density).exchange(comm, "gradient", gradient(rank))

    on_all(ranks, call)
    for one in made:
        one.close()
    moved = block_bytes.Moved(up=int(ports.received.max()), down=int(ports.sent.max()))
    assert moved == topk_bytes.modelled(way, density, gradient, ranks, lanes)


def test_the_page_has_what_the_command_makes_of_top_k() -> None:
    page = block_bytes.PAGE.with_stem("sparse-topk").read_text()
    way = "`BlockTopK`, blocks of 256"
    assert f"| {way} | 0.1% | 256 | {topk_bytes.cell(way, 0.001, 4, 256)} |" in page
    for line in topk_bytes.least_rows(0.01):
        assert line in page


def test_accumulators_that_agree_take_fewer_bytes_than_values_at_random() -> None:
    """The same array on all ranks has a union of k, others have nearly that of random places."""
    values, lanes, ranks = 1 << 18, 256, 4
    alike = list(topk_bytes.accumulated(lambda _ranks, _rank: topk_bytes.drawn(0, values), (ranks,), lanes))
    apart = list(topk_bytes.accumulated(lambda _ranks, rank: topk_bytes.drawn(rank, values), (ranks,), lanes))
    assert alike[0].startswith("| density | workers | union over k | at random | `TopK`: the whole union |")
    cells = [[line.strip("| ").split(" | ") for line in lines[2:]] for lines in (alike, apart)]
    for one, other in zip(*cells, strict=True):
        assert (*one[:2], one[3]) == (*other[:2], other[3])
        assert float(one[2]) == 1.0
        assert float(other[2]) == pytest.approx(float(other[3]), rel=0.05)
        # Very few values go along with the first step, wherever they are.
        assert one[4] == other[4] if one[0] == "0.1%" else one[4] < other[4]
