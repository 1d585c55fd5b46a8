"""How long a step of each way takes: real ranks on limited links, ours and gloo's in turn (root)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from checks.bench.jobs import over_bridge, over_switch
from checks.bench.records import Samples, provenance
from checks.lab.convergence_results import RANKS, RESULTS, Results, say

RATES: Final[Mapping[str, str]] = MappingProxyType({"200mbit": "200 Mbit/s", "1gbit": "1 Gbit/s"})
"""Of links, as for tc, and as people read them."""
ROUNDS: Final = 3
"""So often each backend trains, in turn: what else shares the machine's cores changes from minute to minute."""
STEPS: Final = 6
"""That count, of each way in a round."""
PATIENCE_S: Final = 600.0
"""A job that has not ended by then hangs: the others' figures are not to wait for it."""

Steps = dict[str, dict[str, list[float]]]
"""Milliseconds, by task and way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What is to be measured."""

    tasks: Sequence[str]
    rates: Sequence[str] = tuple(RATES)
    rounds: int = ROUNDS
    steps: int = STEPS
    worker: str = "checks.lab.convergence_worker"
    """The module that each rank runs."""
    ways: Sequence[str] = ()
    """For a worker that is told them."""


BACKENDS: Final[Mapping[str, Callable[[str, Sequence[str]], list[str]]]] = MappingProxyType(
    {"switchsum": partial(over_switch, RANKS), "gloo": partial(over_bridge, RANKS)}
)


def measure(asked: Measured, path: Path = RESULTS) -> list[str]:
    """Measure steps and keep their medians; return a line for each job that has failed."""
    if os.geteuid() != 0:
        return ["steps were not measured: links of limited rate need root"]
    failed: list[str] = []
    for rate in asked.rates:
        load_before = os.getloadavg()[0]
        together: Steps = {}
        for number in range(1, asked.rounds + 1):
            for backend in BACKENDS:
                say(f"{rate}, round {number} of {asked.rounds}: {backend}")
                taken, code = trained(backend, rate, asked)
                if code:
                    failed.append(f"{backend} at {rate}, round {number}: ended with code {code}")
                add(together, taken)
        results = Results.read(path)
        here = provenance(load_before)
        results.times.update({f"{task}/{rate}": {**here, "ms": medians(ways)} for task, ways in together.items()})
        results.write(path)
    return failed


def trained(backend: str, rate: str, asked: Measured) -> tuple[Steps, int]:
    """Let real ranks train; return their steps, those before a failure too, and how the job has ended."""
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-") as scratch:
        path = Path(scratch, "steps.json")
        worker = [sys.executable, "-m", asked.worker, backend, str(asked.steps), str(path)]
        command = BACKENDS[backend](rate, [*worker, *asked.tasks, *asked.ways])
        job = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
        try:
            code = job.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            job.terminate()
            code = job.wait() or 1
        return (json.loads(path.read_text()) if path.exists() else {}), code


def add(together: Steps, taken: Steps) -> None:
    """Add the steps of a round to those of others."""
    for task, ways in taken.items():
        for way, steps in ways.items():
            together.setdefault(task, {}).setdefault(way, []).extend(steps)


def medians(ways: Mapping[str, list[float]]) -> dict[str, dict[str, Any]]:
    """Return the median of each way's steps, what it lies between, and how many they were."""
    found = {}
    for way, steps in ways.items():
        samples = Samples(values=steps)
        low, high = samples.interval
        found[way] = {"median": round(samples.median, 2), "low": low, "high": high, "steps": len(steps)}
    return found
