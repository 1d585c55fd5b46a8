"""What each test costs in processor time, its children's included: `make test ARGS='-p support.processor_time'`.

Time on the clock says little on a machine that others use as well.  A fixture's cost is that of the test that makes it,
and its end's that of the last one that has it; a child counts when it has ended and somebody has waited for it.
"""

from __future__ import annotations

import resource
from collections import Counter, defaultdict
from collections.abc import Generator
from typing import Final

import pytest

FILES: Final = 40
TESTS: Final = 40
PROPERTY: Final = "processor time"
_BEFORE: Final = pytest.StashKey[float]()


def _used_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin to count: what lies between tests is nobody's."""
    item.stash[_BEFORE] = _used_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what a test has used when its fixtures have ended."""
    report = yield
    if call.when == "teardown" and _BEFORE in item.stash:
        report.user_properties = [*report.user_properties, (PROPERTY, _used_s() - item.stash[_BEFORE])]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the dearest files and tests."""
    files: defaultdict[str, float] = defaultdict(float)
    tests: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == PROPERTY:
                    files[report.nodeid.partition("::")[0]] += value
                    tests[report.nodeid] += value
    terminalreporter.section("processor time")
    terminalreporter.write_line(f"{sum(files.values()):8.1f} s  {len(tests)} tests")
    for title, costs, most in (("files", Counter(files), FILES), ("tests", tests, TESTS)):
        terminalreporter.write_line(f"the dearest {title}:")
        for name, value in costs.most_common(most):
            terminalreporter.write_line(f"{value:8.1f} s  {name}")
