"""The search of the protocol's models finds what holds and what does not; `make verify` makes all of them.

The models stand for themselves: no other change of the project can break them, and each search compiles a program.
"""

from __future__ import annotations

import pytest

from checks.verify.configurations import CONFIGURATIONS, Configuration, Outcome
from checks.verify.search import missing_tool, search

pytestmark = pytest.mark.skipif(bool(missing_tool()), reason=f"{missing_tool()} is not on PATH")
SHORT = [configuration for configuration in CONFIGURATIONS if not configuration.is_long]
ONE_OF_EACH = list({configuration.outcomes: configuration for configuration in reversed(SHORT)}.values())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("configuration", ONE_OF_EACH, ids=lambda configuration: configuration.name)
def test_search_comes_to_what_is_expected(configuration: Configuration) -> None:
    finding = search(configuration)
    assert finding.is_expected, finding
    assert finding.states > 20


def test_what_holds_is_searched_with_every_feature() -> None:
    macros = {name for c in SHORT if c.outcomes == (Outcome.HOLDS,) for name in c.macros}
    assert macros >= {"WORKERS", "MIXED", "CLEARS", "HAND_OVER", "WORKERS_AFTER", "KILLS"}
    assert not any(name.startswith("BREAK_") for name in macros)
