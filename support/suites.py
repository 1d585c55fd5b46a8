"""Which tests are slow: those of support/slow.txt are marked so, and files that `make test` leaves out are not read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
LIST: Final = Path(__file__).with_name("slow.txt")
QUICK: Final = "not slow"
"""What `make test` gives to pytest's `-m`."""


def places() -> tuple[str, ...]:
    """Return the folders (with a slash at their end), files and tests whose tests are slow."""
    return tuple(line for line in LIST.read_text().split("\n") if line and not line.startswith("#"))


class Suites:
    """A plugin that marks tests before pytest selects them by their marks."""

    def __init__(self) -> None:
        self._places = places()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark the tests of the list."""
        for item in items:
            if item.nodeid.startswith(self._places):
                item.add_marker("slow")

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Leave out files of which every test is slow: to import them all takes longer than many tests."""
        if config.option.markexpr == QUICK and collection_path.is_relative_to(ROOT):
            name = collection_path.relative_to(ROOT).as_posix()
            if f"{name}/" in self._places or name in self._places:
                return True
        return None
