"""What may take longer than five seconds shows that it goes on: tools of checks and of `make`, and commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWS = re.compile(
    r"\btrack\(|\bProgress\(|\bwaiting_for\(|flush=True|std(out|err)\.(flush|write)\(|\bsay\(|print_tables\("
)
STARTED_BY_OTHERS = {
    *(f"checks/bench/{name}_worker.py" for name in ("calls", "loss", "recovery", "start", "start_torch", "train")),
    *("checks/bench/tcp_stream.py", "checks/lab/convergence_worker.py", "checks/lab/slow_worker.py"),
    *(
        "checks/lab/beside_mpi_worker.py",
        "checks/lab/machine_worker.py",
        "checks/lab/validate_worker.py",
        "checks/lab/sharing_worker.py",
    ),
    *("checks/bench/late_ranks.py", "checks/situations/job.py", "checks/situations/proxy.py"),
    *("checks/line/worker.py", "checks/line/calls.py", "checks/line/launched.py"),
    *("checks/line/machines.py", "checks/line/relay.py", "checks/compiled.py"),
}
"""Programs whose parent, or child, shows what it waits for."""
QUICK = {
    *(f"tools/{name}.py" for name in ("site_pages", "p4runtime_descriptors", "draw_machines")),
    *("tools/draw_pictures.py", "tools/prose.py", "tools/durations.py"),
    "checks/bench/ages.py",  # reads the sources, a few seconds
    "checks/conformance/published.py",  # reads two files
    "checks/verify/two_levels.py",  # a thousand states
    "tools/compile_p4.py",  # has a line for each build
}
COMMANDS_AT_ONCE = {
    *("draw", "fields", "observe", "plan", "shipped", "switches", "tls"),
    *("explain", "job", "link"),  # ask a controller: told.py says what it waits for
    *("controller", "network", "switch", "shell", "top"),  # run until they are stopped
    *("run", "stf", "sweep", "warm"),  # what they start or compile says so itself
}


def tools() -> list[Path]:
    """Return the programs of checks and tools."""
    paths = [*(ROOT / "checks").rglob("*.py"), *(ROOT / "tools").glob("*.py")]
    return sorted(path for path in paths if '__name__ == "__main__"' in path.read_text())


@pytest.mark.parametrize("path", tools(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_tool_shows_that_it_goes_on(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    assert bool(SHOWS.search(path.read_text())) != (name in STARTED_BY_OTHERS | QUICK)


def test_a_command_that_waits_says_for_what() -> None:
    folders = (ROOT / "src" / "switchsum" / "cli", ROOT / "lab" / "src" / "switchsum_lab" / "cli")
    paths = [path for folder in folders for path in folder.glob("*.py")]
    silent = {path.stem for path in paths if not SHOWS.search(path.read_text())}
    assert silent - {"__init__", "app"} == COMMANDS_AT_ONCE
