"""pytest fixtures for tests of P4 programs; a failing test shows what the program did to its last frames.

Name it in a `conftest.py`:

    pytest_plugins = ["switchsum_switch.pytest_plugin"]
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from .api.switch import Switch
from .program.p4c import compile_p4

if TYPE_CHECKING:
    from .live.network import LiveNetwork


class LoadsPrograms(Protocol):
    """Loads a program for a test, as `Switch.from_file` does; a path that ends in `.p4` is compiled first."""

    def __call__(self, program: str | Path, p4info: str | Path | None = None, **options: Any) -> Switch:
        """Return the switch."""
        ...


_COMPILED: pytest.StashKey[dict[tuple[Path, tuple[str, ...]], tuple[str, str]]] = pytest.StashKey()
"""What p4c has made of sources in this run: a file of tests loads the same program many times."""
_SWITCHES: pytest.StashKey[list[Switch]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--p4-native`."""
    group = parser.getgroup("switchsum", "P4 programs on switchsum's switch")
    group.addoption("--p4-native", action="store_true", help="Run P4 programs as native code: fast, without traces.")


@pytest.fixture
def p4_switch(request: pytest.FixtureRequest) -> LoadsPrograms:
    """Return a function that loads a program.

    A relative path counts from the test's own folder.  A `.p4` file is compiled once in a run of pytest.  Frames are
    traced, unless pytest is run with `--p4-native` or the test passes `traced=False`.
    """
    made: list[Switch] = []
    request.node.stash[_SWITCHES] = made
    traced = not request.config.getoption("--p4-native")
    compiled = request.config.stash.setdefault(_COMPILED, {})

    def load(program: str | Path, p4info: str | Path | None = None, **options: Any) -> Switch:
        folder = request.path.parent
        wanted = {"traced": traced, **options}
        if Path(program).suffix == ".p4":
            source = (folder / program).resolve(), tuple(wanted.pop("compiler_options", ()))
            if source not in compiled:
                compiled[source] = compile_p4(*source)
            made.append(Switch(*compiled[source], **wanted))
        else:
            made.append(Switch.from_file(folder / program, p4info and folder / p4info, **wanted))
        return made[-1]

    return load


class StartsNetworks(Protocol):
    """Starts a network for a test, as `switchsum_switch.live.file.read_network` reads it."""

    def __call__(self, file: str | Path, **options: Any) -> LiveNetwork:
        """Return the network, which runs."""
        ...


@pytest.fixture
def p4_network(request: pytest.FixtureRequest) -> Generator[StartsNetworks, None, None]:
    """Return a function that starts the switches, hosts and links of a file; they end with the test.

    A relative path counts from the test's own folder.  Hosts are Python objects, `network.hosts["h1"]`.
    """
    from .live.file import read_network  # noqa: PLC0415 - it needs gRPC, which other tests do without

    made: list[LiveNetwork] = []

    def start(file: str | Path, **options: Any) -> LiveNetwork:
        made.append(read_network(request.path.parent / file, **options))
        made[-1].start()
        return made[-1]

    try:
        yield start
    finally:
        for network in made:
            network.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the traces of its last frames to the report of a test that fails."""
    report = yield
    if report.when == "call" and report.failed:
        for switch in item.stash.get(_SWITCHES, []):
            for trace in switch.traces:
                report.sections.append(("what the P4 program did", str(trace)))
    return report
