"""How long a job takes from its command to its end when all that it does is one small allreduce, beside others."""

from __future__ import annotations

import dataclasses
import time

from checks.bench.choice import Choice
from checks.bench.compare import OTHERS
from checks.bench.jobs import Job, is_there, measure
from checks.bench.records import Record, Samples, record

WORKERS = 4


def run(choice: Choice) -> list[Record]:
    """Measure ourselves with warm caches, then the others."""
    made = [_record("switchsum", choice.runs)]
    for peer, title in OTHERS.items():
        if is_there(peer):
            theirs = _record(peer, choice.runs)
            made[0] = dataclasses.replace(made[0], more={**made[0].more, f"x {title}": theirs.value / made[0].value})
            made.append(theirs)
    return made


def _record(peer: str, runs: int) -> Record:
    conditions = f"{WORKERS} ranks that import, join, add 4 bytes and end; caches on disk are warm; {runs} runs"
    once(peer)
    return record(f"start.{WORKERS}workers.{peer}", Samples.of(lambda: once(peer), runs), "s", conditions)


def once(peer: str) -> float:
    """Return the seconds from command to end."""
    began = time.perf_counter()
    measure({peer: Job(peer=peer, workers=WORKERS, sizes=(4,), runs=0)})
    return time.perf_counter() - began
