"""How long a job takes from its command to its end when all that it does is one small allreduce, beside others."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time

from checks.bench.choice import Choice
from checks.bench.compare import OTHERS
from checks.bench.records import Record, Samples, pairs, record
from switchsum.laboratory import real
from switchsum.laboratory.axes import OURS, Cell, Impossible

WORKERS = 4
TAKES = ("runs",)


def run(choice: Choice) -> list[Record]:
    """Measure ourselves and the others in turn, with warm caches."""
    peers = [OURS, *(peer for peer in OTHERS if is_there(peer))]
    seconds: dict[str, list[float]] = {peer: [] for peer in peers}
    for turn in range(1 + choice.runs):  # the first one warms up
        for peer in peers:
            taken = once(peer)
            seconds[peer] += [taken] if turn else []
    return records(seconds)


def records(seconds: dict[str, list[float]]) -> list[Record]:
    """Turn the seconds of each turn into records."""
    conditions = f"{WORKERS} ranks that import, join, add 4 bytes and end; caches on disk are warm; in turn"
    made = {
        peer: record(f"start.{WORKERS}workers.{peer}", Samples(values=values), "s", f"{conditions}, {len(values)} runs")
        for peer, values in seconds.items()
    }
    ratios = {
        f"x {title}": pairs(seconds["switchsum"], seconds[peer]) for peer, title in OTHERS.items() if peer in made
    }
    made["switchsum"] = dataclasses.replace(
        made["switchsum"],
        more={name: ratio.median for name, ratio in ratios.items()},
        intervals={name: ratio.interval for name, ratio in ratios.items()},
    )
    return list(made.values())


def is_there(peer: str) -> bool:
    """Tell whether a peer is installed here."""
    try:
        real.check(_cell(peer))
    except Impossible:
        return False
    return True


def once(peer: str) -> float:
    """Return the seconds from command to end; raises CalledProcessError."""
    cell = _cell(peer)
    command = real.Setting.of(cell).launch(cell, [sys.executable, "-m", "checks.bench.start_worker", peer])
    began = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - began


def _cell(peer: str) -> Cell:
    return Cell(links="shm", protocol=peer, workers=WORKERS, bytes=4)
