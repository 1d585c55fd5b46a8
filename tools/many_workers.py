"""Measure what jobs of many workers cost on this machine, for the table in docs/results/trees.md.

Run as `python tools/many_workers.py`: it starts a job for each row, and prints the rows as Markdown.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Final

import numpy as np

import switchsum

SIZES: Final = ((8, ""), (32, ""), (8, "leaf-spine,2,1,4"), (32, "leaf-spine,4,1,8"), (64, "leaf-spine,4,1,16"))
"""Workers, and topology: empty for one switch."""
VALUES: Final = 1 << 20
ROUNDS: Final = 10
FOLDER: Final = "MANY_WORKERS_FOLDER"
HEADER: Final = (
    "| workers | switches | right, same bits | memory of a worker | of the largest switch "
    "| processor time a worker: its own + its share of the switches' | time |\n|---:|---|---|---:|---:|---:|---:|"
)
_TICKS_S: Final = os.sysconf("SC_CLK_TCK")


def processor_s(pid: int | str) -> float:
    """Return a process's processor time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_S


def memory_mb(pid: int | str) -> float:
    """Return a process's share of memory: pages that several have count in part for each."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


def switches() -> list[int]:
    """Return the switches of this worker's launcher."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == os.getppid() and b"switch" in words:
            found.append(int(folder.name))
    return found


def work() -> None:
    """Add arrays as one rank, and write down what it took."""
    with switchsum.connect() as communicator:
        size, rank = communicator.world_size, communicator.rank
        values = np.random.default_rng(rank).integers(-1000, 1000, VALUES).astype(np.float32)
        result = values.copy()
        communicator.allreduce(result)
        expected = sum(
            np.random.default_rng(other).integers(-1000, 1000, VALUES).astype(np.float64) for other in range(size)
        )
        # A step of the lanes is this much: whole numbers as small as these come out whole.
        right = bool(np.array_equal(np.rint(result), expected))
        digest = zlib.crc32(result.tobytes())
        communicator.barrier()
        own, daemons = processor_s("self"), {pid: processor_s(pid) for pid in switches()} if rank == 0 else {}
        began = time.monotonic()
        for _ in range(ROUNDS):
            communicator.allreduce(values.copy())
        took = time.monotonic() - began
        communicator.barrier()
        record = {
            "right": right,
            "digest": digest,
            "own": (processor_s("self") - own) / ROUNDS,
            "memory": memory_mb("self"),
            "took": took / ROUNDS,
            "switches": sum(processor_s(pid) - before for pid, before in daemons.items()) / ROUNDS,
            "switch_memory": max((memory_mb(pid) for pid in daemons), default=0.0),
        }
        Path(os.environ[FOLDER], str(rank)).write_text(json.dumps(record))
        communicator.barrier()


def row(workers: int, topology: str) -> str:
    """Run a job, and return its row."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "switchsum", "run", "-n", str(workers)]
        command += ["--topology", topology] * bool(topology)
        subprocess.run(
            [*command, "--", sys.executable, __file__, "work"], check=True, env={**os.environ, FOLDER: folder}
        )
        records = [json.loads(Path(folder, str(rank)).read_text()) for rank in range(workers)]
    same = len({record["digest"] for record in records}) == 1 and all(record["right"] for record in records)
    mean = {name: sum(record[name] for record in records) / workers for name in ("own", "memory", "took")}
    cells = (
        str(workers),
        f"`{topology}`" if topology else "one",
        "yes" if same else "NO",
        f"{mean['memory']:.0f} MB",
        f"{records[0]['switch_memory']:.0f} MB",
        f"{1e3 * mean['own']:.1f} + {1e3 * records[0]['switches'] / workers:.1f} ms",
        f"{1e3 * mean['took']:.0f} ms",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure all rows."""
    print(HEADER)
    for size in SIZES:
        print(row(*size), flush=True)


if __name__ == "__main__":
    work() if sys.argv[1:] == ["work"] else main()
