"""The network of lab/docs/p4-networks.md runs as it stands there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.system.test_page_scripts import blocks

ROOT = Path(__file__).resolve().parents[3]


def test_the_pages_network_drops_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec(blocks("lab/docs/p4-networks.md", "Your P4 program on a simulated network", "python")[0], names)
    link = names["network"].links["s1->h2"]
    assert link.dropped == 25
    assert f"dropped == {link.dropped}`" in (ROOT / "lab" / "docs" / "p4-networks.md").read_text()
    assert link.queued + link.dropped + len(names["far"].received) == 100
