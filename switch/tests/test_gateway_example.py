"""The example of the switch alone runs, and shows what its page says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "switch" / "gateway.py"


def test_the_gateway_routes_limits_and_marks(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    text = capsys.readouterr().out
    assert "port 3, time to live 63, to 02:00:00:00:00:0b" in text
    assert "table SwitchIngress.customers (hdr.ipv4.source=10.9.0.1) miss -> SwitchIngress.drop()" in text
    assert "of 30 at once 10 pass, 5 ms later 5" in text
    assert "the program's own counter: 16 green, 45 red" in text
    marks = [line.split(": ")[1] for line in text.splitlines() if " ms: " in line]
    assert marks == ["not marked"] * 5 + ["marked"] * 3
    assert "[24 packets, 2736 bytes]" in text
