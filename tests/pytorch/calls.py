"""What tests of the process group hand over, as c10d does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from .conftest import RANKS

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")

dist = torch.distributed
OP = dist.ReduceOp
TOTAL = sum(range(1, RANKS + 1))


def options(**values: Any) -> Any:
    """Return what c10d hands over besides tensors."""
    return SimpleNamespace(**{"reduceOp": OP.SUM, "rootRank": 0, **values})


def gloo_counts(groups: list[Any]) -> dict[str, int]:
    counts: dict[str, int] = groups[0].statistics().over_gloo
    return counts
