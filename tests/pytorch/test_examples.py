"""The examples at a small size: losses beside those of the same training on gloo, and other launchers' ways in."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from .conftest import Launch

pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
pytest.importorskip("sklearn", reason="scikit-learn is not installed (the demo's images)")

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["images", "words", "gpt"])
def test_losses_are_those_of_gloo(launch: Launch, name: str) -> None:
    text = launch(2, EXAMPLES / f"{name}.py", "--steps", "12").check()
    assert "losses differ by at most 0.0" in text


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["accelerate", "lightning"])
def test_other_peoples_loops_run_on_the_backend(launch: Launch, name: str) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed (the extra train)")
    text = launch(2, EXAMPLES / f"with_{name}.py", "--epochs", "2").check()
    found = re.search(r"switchsum, 2 ranks: accuracy ([\d.]+)", text)
    assert found is not None, text
    assert float(found[1]) > 0.8
