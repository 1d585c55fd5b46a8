"""Spin as a function: from a configuration to what its exhaustive search has found."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from checks.verify.configurations import FAULTS, Configuration, Outcome
from checks.verify.worker_rules import macros

MODELS = Path(__file__).parent
MEMORY_MEGABYTES = 4096
DEPTH = 100_000
"""Steps of the longest run; a search that needs more says so and counts as incomplete."""
TIMEOUT_S = 1800


class SearchError(Exception):
    """The search could not be made, or not to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a search came to."""

    configuration: Configuration
    outcome: Outcome
    states: int
    """Different states visited: all there are when the outcome is `holds`, else those up to the first fault."""
    depth: int
    """Steps of the longest run visited."""
    seconds: float
    """Of the search itself, without compiling."""

    @property
    def is_expected(self) -> bool:
        """Whether this is what the configuration should come to."""
        return self.outcome in self.configuration.outcomes


def missing_tool() -> str:
    """Name what is needed and not on PATH; empty when all is there."""
    return next((tool for tool in ("spin", "gcc") if shutil.which(tool) is None), "")


def search(configuration: Configuration, timeout_s: float = TIMEOUT_S) -> Finding:
    """Visit every state that the model can reach; raises SearchError."""
    with tempfile.TemporaryDirectory(prefix="switchsum-verify-") as folder:
        given = {**macros(configuration.changes), **configuration.macros}
        definitions = [f"-D{name}" if value is None else f"-D{name}={value}" for name, value in given.items()]
        _run(["spin", "-a", *definitions, str(MODELS / configuration.model)], folder, timeout_s)
        # One level is enough for a long search, and for a short one the compiler takes longer than the search.
        level = "-O1" if configuration.is_long else "-O0"
        options = ["-DSAFETY", "-DNOREDUCE", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MEGABYTES}", "-w"]
        _run(["gcc", level, *options, "-o", "pan", "pan.c"], folder, timeout_s)
        flags = ["-E"] if configuration.ignores_dead_ends else []
        return _read(configuration, _run(["./pan", f"-m{DEPTH}", *flags], folder, timeout_s))


def _run(command: list[str], folder: str, timeout_s: float) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise SearchError(f"{command[0]} takes longer than {timeout_s:g} s") from None
    if done.returncode != 0 or "Error:" in done.stdout:
        raise SearchError(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def _read(configuration: Configuration, text: str) -> Finding:
    """Make sense of what pan prints."""
    incomplete = re.search(r"max search depth too small|out of memory|memory limit", text)
    errors = re.search(r"depth reached (\d+), errors: (\d+)", text)
    states = re.search(r"([\d.e+]+) states, stored", text)
    if incomplete or errors is None or states is None:
        raise SearchError(f"{configuration.name}: the search is incomplete:\n{text[-2000:]}")
    elapsed = re.search(r"elapsed time ([\d.]+)", text)
    return Finding(
        configuration=configuration,
        outcome=_outcome(text) if int(errors[2]) else Outcome.HOLDS,
        states=int(float(states[1])),
        depth=int(errors[1]),
        seconds=float(elapsed[1]) if elapsed else 0.0,
    )


def _outcome(text: str) -> Outcome:
    """Tell the fault from the assertion that was violated, in which macros are spelled out as numbers."""
    if "invalid end state (" in text:
        return Outcome.DEAD_END
    violated = re.search(r"assertion violated (.*?) \(at depth", text)
    for pattern, outcome in FAULTS.items():
        if violated and re.search(pattern, violated[1]):
            return outcome
    raise SearchError(f"an error of another kind:\n{text[-2000:]}")
