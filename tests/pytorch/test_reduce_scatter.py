"""reduce_scatter of lists: tensors for each rank, which need not lie side by side."""

from __future__ import annotations

from typing import Any

import pytest

from .calls import gloo_counts, options
from .conftest import RANKS, on_all

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")

COUNT = 20_000
SIZES: dict[str, list[tuple[int, ...]]] = {
    "equal": [(4, 6)] * RANKS,
    "unequal": [(number + 1, 6) for number in range(RANKS)],
    "some empty": [(number, 6) for number in range(RANKS)],
    "of one value": [()] * RANKS,
}
LAYOUTS = {
    "plain": lambda plain: plain,
    "strided": lambda plain: plain.repeat_interleave(2, -1)[..., ::2] if plain.dim() else plain,
    "transposed": lambda plain: plain.t().contiguous().t() if plain.dim() else plain,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shapes", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.int64, torch.bool], ids=str)
def test_every_rank_gets_the_sum_of_its_own(groups: list[Any], dtype: Any, shapes: str, layout: str) -> None:
    def parts_of(rank: int) -> list[Any]:
        random = torch.Generator().manual_seed(rank)
        return [torch.randint(0, 9, shape, generator=random).to(dtype) for shape in SIZES[shapes]]

    def call(group: Any) -> None:
        own = SIZES[shapes][group.rank()]
        given = [LAYOUTS[layout](part) for part in parts_of(group.rank())]
        result = LAYOUTS[layout](torch.ones(own, dtype=dtype))
        group.reduce_scatter([result], [given], options()).wait()
        expected = sum(parts_of(rank)[group.rank()].to(torch.int64) for rank in range(RANKS))
        assert torch.equal(result, expected.to(dtype))
        assert all(torch.equal(one, before) for one, before in zip(given, parts_of(group.rank()), strict=True))

    on_all(groups, call)
    assert not gloo_counts(groups)


def test_a_rank_takes_down_its_own_part_alone(groups: list[Any]) -> None:
    def call(group: Any) -> float:
        parts = [torch.ones(COUNT) for _ in range(RANKS)]
        before = group.statistics().switch.bytes_received
        group.reduce_scatter([torch.empty(COUNT)], [parts], options()).wait()
        received: int = group.statistics().switch.bytes_received - before
        return received / (4 * COUNT)

    # Headers of the others' parts come down, too, and on a busy machine some frames twice.
    assert all(found < 0.7 * RANKS for found in on_all(groups, call))


@pytest.mark.parametrize(
    ("count", "size", "text"),
    [
        (RANKS + 1, 4, r"reduce_scatter of \[4, 4, 4, 4\] values over 3 ranks: \[4\]"),
        (RANKS - 1, 4, r"reduce_scatter of \[4, 4\] values"),
        (RANKS, 5, r"values over 3 ranks: \[5\]"),
    ],
)
def test_lists_that_do_not_fit_are_refused(groups: list[Any], count: int, size: int, text: str) -> None:
    def call(group: Any) -> None:
        with pytest.raises(ValueError, match=text):
            group.reduce_scatter([torch.empty(size)], [[torch.ones(4)] * count], options())

    on_all(groups, call)
