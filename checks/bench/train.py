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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from checks.bench.choice import Choice
from checks.bench.jobs import over_bridge, over_switch
from checks.bench.records import Record, Samples, beside, record
from switchsum.launch.link_options import MTU, rate_bits
from switchsum_lab.sweeps.star import UNLIMITED
from switchsum_protocol.builds import largest_build

WAYS: Final = ("plain", "bf16", "after", "alone", "int16")
"""How `checks.bench.train_worker` trains on this backend unless it is told otherwise."""
BUSY: Final = "processors busy"
UNIT: Final = "ms a step"

STEPS = 10
ROUNDS = 3
"""So often each backend trains, in turn: what else shares the machine's cores changes from minute to minute."""
RATES = ("200mbit", "1gbit", UNLIMITED)
EXAMPLES = ("images", "gpt", "words", "words-dense", "layers", "layers-small")
SPARSE = ("words",)
"""Examples most of whose gradient is sparse, which lanes of 16 bits do not make smaller."""
WAITS_FOR_LINKS = "layers-small"
"""The example that shows what fewer bytes save: a step of it has next to nothing else to do."""
FEWER_BYTES = ("int10", "int8", "int16:32")
"""Further names of `switchsum.torch.compress` that it trains with."""

Result = dict[str, Any]
Results = dict[str, Result]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A network's size, and what is trained on it."""

    workers: int = 4
    mtu: int = MTU
    examples: Sequence[str] = (WAITS_FOR_LINKS,)

    @property
    def name(self) -> str:
        """What stands before the example in names of records: nothing for 4 workers and an MTU of 1,500."""
        return f"{self.workers}workers." * (self.workers != 4) + f"mtu{self.mtu}." * (self.mtu != MTU)

    @property
    def lanes(self) -> int:
        """How many lanes frames have by default where links have this MTU."""
        return largest_build(self.mtu)


SETUPS: Final = (Setup(examples=EXAMPLES), Setup(mtu=9000), Setup(workers=8), Setup(workers=8, mtu=9000))


def worker(backend: str, setup: Setup, path: Path) -> list[str]:
    """Return the command of a rank."""
    examples = list(setup.examples)
    if backend != "gloo" and WAITS_FOR_LINKS in examples:
        examples[examples.index(WAITS_FOR_LINKS)] += ":" + ",".join((*WAYS, *FEWER_BYTES))
    return [sys.executable, "-m", "checks.bench.train_worker", backend, str(STEPS), str(path), *examples]


def measure(setup: Setup, rate: str) -> tuple[Results, Results]:
    """Train on links of a rate, here and on gloo in turn; return what came out on each."""
    ours: list[Results] = []
    theirs: list[Results] = []
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-") as scratch:
        path = Path(scratch, "results")
        for _ in range(ROUNDS):
            for backend, over, results in (("switchsum", over_switch, ours), ("gloo", over_bridge, theirs)):
                rank = worker(backend, setup, path)
                subprocess.run(over(setup.workers, rate, rank, mtu=setup.mtu), check=True)
                results.append(json.loads(path.read_text()))
    return together(ours), together(theirs)


def together(rounds: list[Results]) -> Results:
    """Return the steps of all rounds as those of one."""
    return {
        name: {**result, "steps": (steps := [step for each in rounds for step in each[name]["steps"]])}
        | {"ms": statistics.median(steps)}
        | {key: statistics.median(each[name][key] for each in rounds) for key in ("bytes", "bytes down", BUSY)}
        for name, result in rounds[0].items()
    }


def records_of(setup: Setup, rate: str, ours: Results, theirs: Results) -> list[Record]:
    """Turn the results on links of one rate into records."""
    where = "one machine, without links" if rate == UNLIMITED else f"links of {rate}, MTU {setup.mtu:,}"
    steps = f"{ROUNDS} trainings of {STEPS} steps each in turn with gloo, median of all steps"
    lanes = ours[f"{setup.examples[0]}.plain"]["lanes"]
    conditions = f"{setup.workers} worker processes, {steps}, {lanes} lanes, the default, {where}"
    prefix = f"train.{rate}.{setup.name}"
    records = []
    for name in setup.examples:
        further = FEWER_BYTES if name == WAITS_FOR_LINKS else ()
        for way in ("plain",) if name in SPARSE else ("plain", "bf16", "int16", *further):
            own, peer = ours[f"{name}.{way}"], theirs[f"{name}.{'bf16' if way == 'bf16' else 'plain'}"]
            more = {"kB up": own["bytes"] / 1e3, "kB down": own["bytes down"] / 1e3, "gloo's kB": peer["bytes"] / 1e3}
            if way == "plain":
                more["ms without communication"] = ours[f"{name}.alone"]["ms"]
                more["ms with all of it after the backward pass"] = ours[f"{name}.after"]["ms"]
            alone = record(f"{prefix}{name}" + ("" if way == "plain" else f".{way}"), samples(own), UNIT, conditions)
            pair = beside(alone, "gloo", samples(peer), smaller_is_better=True)
            records.append(dataclasses.replace(pair, more=more, bound=bound(own, rate)))
    if (name := "layers.in-order") in ours:
        alone = record(f"{prefix}layers.scheduled.in-order", samples(ours[name]), UNIT, conditions)
        pair = beside(alone, "gloo", samples(theirs["layers.plain"]), smaller_is_better=True)
        records.append(dataclasses.replace(pair, bound=bound(ours[name], rate)))
    return records


def bound(result: Result, rate: str) -> str:
    """Say for how much of a step a rank's link, in its fuller direction, and the machine's processors work.

    What comes first bounds it the more, the nearer it is to all of the step.
    """
    shares = {"processors": result[BUSY]}
    if rate != UNLIMITED:
        seconds = sum(result["steps"]) / len(result["steps"]) / 1e3
        shares["link"] = max(result["bytes"], result["bytes down"]) * 8 / rate_bits(rate) / seconds
    return ", ".join(f"{name} {share:.0%}" for name, share in sorted(shares.items(), key=lambda item: -item[1]))


def samples(result: Result) -> Samples:
    """Return the milliseconds of each step."""
    return Samples(values=result["steps"])


TAKES = ("workers", "lanes", "rates")


def run(choice: Choice) -> list[Record]:
    """Measure on links of some rates; nothing without PyTorch, and only one machine without root."""
    if importlib.util.find_spec("torch") is None:
        return []
    rates = [rate for rate in choice.rates or RATES if rate == UNLIMITED or os.geteuid() == 0]
    return [
        item
        for rate in rates
        for setup in (SETUPS[:1] if rate == UNLIMITED else SETUPS)
        if setup.workers in (choice.workers or (setup.workers,)) and setup.lanes in (choice.lanes or (setup.lanes,))
        for item in records_of(setup, rate, *measure(setup, rate))
    ]
