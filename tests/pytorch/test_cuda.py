"""Tensors on a real GPU, which all ranks share: everything else about them is tested with a stand-in (test_staging)."""

from __future__ import annotations

import pytest

from support.timing import patience

from .conftest import SCRIPTS, Launch

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch can use"),
    pytest.mark.timeout(120),
]
PARTS = ["reductions", "moves", "streams", "trainings", "times"]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("part", PARTS)
def test_tensors_on_a_gpu(launch: Launch, part: str, ranks: int) -> None:
    text = launch(ranks, SCRIPTS / "gpu.py", part, str(patience(30))).check()
    assert text.count(": right") == ranks


def test_a_backend_for_each_type_of_device(launch: Launch) -> None:
    launch(2, SCRIPTS / "gpu.py", "mixed", str(patience(30)), own_switch=True).check()
