"""Kernels are compiled before the first test, whose deadline is not meant for a compiler."""

from __future__ import annotations

import pytest

from switchsum.host.warm import warm_up


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compile what is not compiled yet."""
    if session.items and not session.config.option.collectonly:
        warm_up()
