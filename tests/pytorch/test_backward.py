"""Futures that are asked for in a backward pass: DistributedDataParallel waits for them in C++, before it is over."""

from __future__ import annotations

from typing import Any

import pytest

from .calls import options
from .conftest import RANKS, on_all

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")


def in_the_midst(function: Any) -> None:
    """Call a function while gradients are computed."""
    values = torch.ones(2, requires_grad=True)
    inner = values * 1.0
    inner.register_hook(lambda _: function())
    inner.sum().backward()


def in_the_last_callbacks(function: Any) -> None:
    """Call a function when they were, as DistributedDataParallel does with a static graph's first hooks."""
    engine = torch.autograd.Variable._execution_engine
    in_the_midst(lambda: engine.queue_callback(function))


@pytest.mark.parametrize("when", [in_the_midst, in_the_last_callbacks])
def test_futures_of_what_has_nothing_under_way_come_true_at_once(groups: list[Any], when: Any) -> None:
    # As those of hooks do whose compressors wait for each of their steps.
    def call(group: Any) -> list[list[float]]:
        found = []

        def ask() -> None:
            chained = group.begun([], [torch.ones(2)], lambda: None).get_future().then(lambda one: one.value()[0])
            assert chained.done()
            found.append(chained.value().tolist())

        when(ask)
        return found

    assert on_all(groups, call) == [[[1.0, 1.0]]] * RANKS


def test_futures_of_the_last_callbacks_come_true_before_these_go_on(groups: list[Any]) -> None:
    # Whoever asked for it may wait there, so that what is chained must not wait for the end of the backward pass.
    def call(group: Any) -> list[float]:
        found = []

        def again(future: Any) -> Any:
            return group.allreduce([future.value()[0]], options()).get_future().wait()[0]

        def ask() -> None:
            for bucket in range(3):
                chained = group.allreduce([torch.full((3000,), bucket + 1.0)], options()).get_future().then(again)
                assert chained.done()
                found.append(chained.value()[0].item())

        in_the_last_callbacks(ask)
        return found

    assert on_all(groups, call) == [[9.0, 18.0, 27.0]] * RANKS
