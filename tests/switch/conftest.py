"""The test programs on both engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from switchsum.switch.pipeline import EngineName, Pipeline

PROGRAMS = Path(__file__).parent / "programs"
Load = Callable[[str], Pipeline]


@pytest.fixture(params=["interpreter", "native"])
def load(request: pytest.FixtureRequest) -> Load:
    """Return a function that loads a test program by name."""
    engine: EngineName = request.param

    def load_program(name: str) -> Pipeline:
        return Pipeline.load((PROGRAMS / f"{name}.json").read_bytes(), engine=engine)

    return load_program
