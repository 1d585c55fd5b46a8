"""The protocol's models: what holds, and what breaks when a rule is broken."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from verify.configurations import CONFIGURATIONS, Configuration, Outcome
from verify.search import Finding, missing_tool, search

pytestmark = pytest.mark.skipif(bool(missing_tool()), reason=f"{missing_tool()} is not on PATH")
SHORT = [configuration for configuration in CONFIGURATIONS if not configuration.is_long]


@pytest.fixture(scope="module")
def findings() -> Iterator[dict[str, Future[Finding]]]:
    """Begin all searches, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        yield {configuration.name: pool.submit(search, configuration) for configuration in SHORT}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("configuration", SHORT, ids=lambda configuration: configuration.name)
def test_search_comes_to_what_is_expected(configuration: Configuration, findings: dict[str, Future[Finding]]) -> None:
    finding = findings[configuration.name].result()
    assert finding.is_expected, finding
    assert finding.states > 20


def test_what_holds_is_searched_with_every_feature() -> None:
    macros = {name for c in SHORT if c.outcomes == (Outcome.HOLDS,) for name in c.macros}
    assert macros >= {"WORKERS", "MIXED", "CLEARS", "HAND_OVER", "WORKERS_AFTER", "KILLS"}
    assert not any(name.startswith("BREAK_") for name in macros)
