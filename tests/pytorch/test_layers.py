"""The statistics of hooks, as the page on PyTorch shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from switchsum.torch.layers import Layers, LayerStatistics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pytorch.md"
STEPS = 100


def test_the_page_shows_what_hooks_print_of_its_model() -> None:
    layers = Layers()
    for name, values in (("weight/10x100", 1_000), ("bias/10", 10)):
        layers[name] = LayerStatistics(
            values=values, exchanges=STEPS, whole_bytes=4 * values * STEPS, sent_bytes=2.0 * values * STEPS,
            arrived=None, error=None,
        )  # fmt: skip
    printed = "\n".join(line.rstrip() for line in str(layers).splitlines())
    assert f"```text\n{printed}\n```" in PAGE.read_text()
