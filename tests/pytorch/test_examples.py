"""The examples at a small size: losses beside those of the same training on gloo."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_training import Torchrun, torchrun  # noqa: F401

pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
pytest.importorskip("sklearn", reason="scikit-learn is not installed (the demo's images)")

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["images", "words", "gpt"])
def test_losses_are_those_of_gloo(torchrun: Torchrun, name: str) -> None:  # noqa: F811
    done = torchrun(2, EXAMPLES / f"{name}.py", "--steps", "12")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "losses differ by at most 0.0" in done.stdout
