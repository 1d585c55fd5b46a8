"""Steps of the examples' trainings on this backend beside gloo, on links of several rates (`make bench-train`)."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from checks.bench.choice import Choice
from checks.bench.jobs import UNLIMITED
from checks.bench.records import Record, Samples, beside, record
from switchsum.launch.options import MTU

WORKERS = 4
STEPS = 10
ROUNDS = 3
"""So often each backend trains, in turn: what else shares the machine's cores changes from minute to minute."""
RATES = ("200mbit", "1gbit", UNLIMITED)
EXAMPLES = ("images", "gpt", "words", "words-dense", "layers", "layers-small")
SPARSE = ("words",)
"""Examples most of whose gradient is sparse, which lanes of 16 bits do not make smaller."""

Result = dict[str, Any]
Results = dict[str, Result]


def on_switch(rate: str, path: Path) -> list[str]:
    """Return the command that trains on this backend."""
    links = [] if rate == UNLIMITED else ["--links", "veth", "--rate", rate]
    run = [sys.executable, "-m", "switchsum", "run", "-n", str(WORKERS)]
    return [*run, "--timeout", "60", *links, "--", *worker("switchsum", path)]


def on_gloo(rate: str, path: Path) -> list[str]:
    """Return the command that trains on gloo, over a bridge of the kernel or the loopback."""
    bridge = [sys.executable, "-m", "checks.bench.star", "gloo", str(WORKERS), rate, str(MTU)]
    namespace = [] if rate == UNLIMITED else ["unshare", "--net", "--"]
    return [*namespace, *bridge, *worker("gloo", path)]


def worker(backend: str, path: Path) -> list[str]:
    """Return the command of a rank."""
    return [sys.executable, "-m", "checks.bench.train_worker", backend, str(STEPS), str(path), *EXAMPLES]


def measure(rate: str) -> tuple[Results, Results]:
    """Train on links of a rate, here and on gloo in turn; return what came out on each."""
    ours: list[Results] = []
    theirs: list[Results] = []
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-") as scratch:
        path = Path(scratch, "results")
        for _ in range(ROUNDS):
            for command, results in ((on_switch(rate, path), ours), (on_gloo(rate, path), theirs)):
                subprocess.run(command, check=True)
                results.append(json.loads(path.read_text()))
    return together(ours), together(theirs)


def together(rounds: list[Results]) -> Results:
    """Return the steps of all rounds as those of one."""
    return {
        name: {**result, "steps": (steps := [step for each in rounds for step in each[name]["steps"]])}
        | {"ms": statistics.median(steps)}
        for name, result in rounds[0].items()
    }


def records_of(rate: str, ours: Results, theirs: Results) -> list[Record]:
    """Turn the results on links of one rate into records."""
    where = "one machine, without links" if rate == UNLIMITED else f"links of {rate}"
    steps = f"{ROUNDS} trainings of {STEPS} steps each in turn with gloo, median of all steps"
    conditions = f"{WORKERS} worker processes, {steps}, {ours['layers.plain']['lanes']} lanes, the default, {where}"
    records = []
    for name in EXAMPLES:
        for way in ("plain",) if name in SPARSE else ("plain", "bf16", "int16"):
            own, peer = ours[f"{name}.{way}"], theirs[f"{name}.{'bf16' if way == 'bf16' else 'plain'}"]
            more = {"kB a step": own["bytes"] / 1e3, "gloo's kB a step": peer["bytes"] / 1e3}
            if way == "plain":
                more["ms without communication"] = ours[f"{name}.alone"]["ms"]
                more["ms with all of it after the backward pass"] = ours[f"{name}.after"]["ms"]
            alone = record(
                f"train.{rate}.{name}" + ("" if way == "plain" else f".{way}"), samples(own), "ms a step", conditions
            )
            records.append(dataclasses.replace(beside(alone, "gloo", samples(peer), smaller_is_better=True), more=more))
    name = "layers.in-order"
    alone = record(f"train.{rate}.layers.scheduled.in-order", samples(ours[name]), "ms a step", conditions)
    records.append(beside(alone, "gloo", samples(theirs["layers.plain"]), smaller_is_better=True))
    return records


def samples(result: Result) -> Samples:
    """Return the milliseconds of each step."""
    return Samples(values=result["steps"])


def run(choice: Choice) -> list[Record]:
    """Measure on links of some rates; nothing without PyTorch, and only one machine without root."""
    if importlib.util.find_spec("torch") is None:
        return []
    rates = [rate for rate in choice.rates or RATES if rate == UNLIMITED or os.geteuid() == 0]
    return [item for rate in rates for item in records_of(rate, *measure(rate))]
