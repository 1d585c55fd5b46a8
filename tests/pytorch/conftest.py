"""Process groups of several ranks in one process: each rank is a thread, the switch is the reference one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import communicators

RANKS = 3


def make_groups(ranks: int) -> list[Any]:
    """Return the groups of all ranks, each with a communicator of its own."""
    dist = pytest.importorskip("torch.distributed", reason="PyTorch is not installed (make torch)")
    from switchsum.host.pytorch.group import SwitchGroup

    store = dist.HashStore()
    made = communicators(ranks, config=ClusterConfig(workers=ranks, lanes=256, window_slots=16, timeout_s=50))

    def make(rank: int) -> Any:
        return SwitchGroup(store, rank, ranks, timedelta(seconds=20), lambda: made[rank], lambda: None)

    with ThreadPoolExecutor(ranks) as pool:  # gloo's ranks wait for one another
        return list(pool.map(make, range(ranks)))


@pytest.fixture
def groups() -> Iterator[list[Any]]:
    """Groups of three ranks."""
    made = make_groups(RANKS)
    yield made
    for group in made:
        group.shutdown()


def on_all(groups: list[Any], function: Callable[[Any], Any]) -> list[Any]:
    """Call a function for each rank, in threads of their own."""
    with ThreadPoolExecutor(len(groups)) as pool:
        return list(pool.map(function, groups))
