"""How long a job takes from its command to its end when all that it does is one small allreduce, beside others.

And what PyTorch's calls cost: a start, a group, small collectives, an end.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from checks.bench.choice import Choice
from checks.bench.compare import OTHERS
from checks.bench.records import Record, Samples, pairs, record
from switchsum_lab.sweeps import real
from switchsum_lab.sweeps.axes import OURS, Cell, Impossible

WORKERS = 4
TAKES = ("runs",)
BACKENDS = ("switchsum", "gloo")
CALLS = {
    "first-sum": "init_process_group and a first sum, with PyTorch imported and caches warm",
    "group": "new_group of two ranks and its first sum",
    "end": "destroy_process_group",
    "sum-16B": "all_reduce of four floats, mean of 100",
    "broadcast-100kB": "broadcast of 25,000 floats, mean of 100",
    "barrier": "barrier, mean of 100",
    "gather-object": "all_gather_object of a small dict, mean of 100",
}
"""What is timed, and what each is."""


def run(choice: Choice) -> list[Record]:
    """Measure ourselves and the others in turn, with warm caches."""
    peers = [OURS, *(peer for peer in OTHERS if is_there(peer))]
    seconds: dict[str, list[float]] = {peer: [] for peer in peers}
    for turn in range(1 + choice.runs):  # the first one warms up
        for peer in peers:
            taken = once(peer)
            seconds[peer] += [taken] if turn else []
    return records(seconds) + (torch_records(choice.runs) if find_spec("torch") else [])


def torch_records(runs: int) -> list[Record]:
    """Measure PyTorch's calls on our backend and on gloo, in turn."""
    taken: dict[str, list[dict[str, float]]] = {backend: [] for backend in BACKENDS}
    for turn in range(1 + runs):
        for backend in BACKENDS:
            times = torch_once(backend)
            taken[backend] += [times] if turn else []
    made = []
    for call, what in CALLS.items():
        samples = {backend: Samples(values=[1e3 * times[call] for times in taken[backend]]) for backend in BACKENDS}
        ratio = pairs(samples["switchsum"].values, samples["gloo"].values)
        conditions = f"{WORKERS} ranks of one machine under torchrun; {what}; in turn, {runs} runs"
        ours, gloo = (record(f"torch.{call}.{one}", samples[one], "ms", conditions) for one in ("switchsum", "gloo"))
        name = f"x {OTHERS['gloo']}"
        ours = dataclasses.replace(ours, more={name: ratio.median}, intervals={name: ratio.interval})
        made += [gloo, ours]
    return made


def torch_once(backend: str) -> dict[str, float]:
    """Return the seconds that each call took on rank 0; raises CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-") as scratch:
        path = Path(scratch, "times.json")
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORKERS)]
        command = [*launch, "-m", "checks.bench.start_torch_worker", backend, str(path)]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        return dict(json.loads(path.read_text()))


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
