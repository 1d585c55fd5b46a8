"""One rank of `checks.lab.sharing_links`: it joins one of several jobs, adds for some seconds, and says what it had.

When all have ended the first one asks the switch what it has counted.

Run by `switchsum run`: python -m checks.lab.sharing_worker FOLDER JOBS SECONDS
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Final

import numpy as np

import switchsum
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.errors import UnknownJob

SIZE: Final = 200_000
"""Bytes of an array: a few milliseconds, so that shares are counted finely."""
_ALL_SLOTS: Final = 1024
_RETRY_S: Final = 0.05


def main() -> None:
    """Add until the time is over; write [when, bytes so far] after each sum, and what was repeated."""
    folder, jobs, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    place, places = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    number, rank, size = place % jobs, place // jobs, places // jobs
    name = f"share-{number}"
    if rank == 0:
        client = ControllerClient(os.environ["SWITCHSUM_CONTROLLER"], timeout_s=60.0)
        slots = _ALL_SLOTS // (2 * jobs)
        client.create_job(rpc.CreateJobRequest(job=name, workers=size, slots=slots, timeout_s=120.0))
        client.close()
    with _join(name, rank, size) as comm:
        (folder / f"joined-{place}").touch()
        while len(list(folder.glob("joined-*"))) < places:
            time.sleep(_RETRY_S)
        array, samples = np.ones(SIZE // 4, np.float32), [(time.monotonic(), 0)]
        while True:
            array[:] = time.monotonic() < samples[0][0] + seconds
            comm.allreduce(array)
            if not (array == array[0]).all() or array[0] != round(array[0]):
                raise SystemExit("a sum is wrong")
            if array[0] < size:  # for some rank the time is over, which all hear of at once
                break
            samples.append((time.monotonic(), SIZE * (len(samples))))
        found = comm.statistics()
        report = {"job": number, "samples": samples, "sent": found.frames_sent, "marked": found.marked}
        report |= {"repeats": found.repeats, "withheld": found.withheld}
        report |= {"rounds": found.rounds, "received": found.frames_received}
        (folder / f"found-{place}.json").write_text(json.dumps(report))
        _count(folder, place, places)


def _count(folder: Path, place: int, places: int) -> None:
    """Have the first rank write what the switch has counted of all, while all are members yet."""
    path = folder / "counted.json"
    if place == 0:
        while len(list(folder.glob("found-*.json"))) < places:
            time.sleep(_RETRY_S)
        with ControllerClient(os.environ["SWITCHSUM_CONTROLLER"], timeout_s=60.0) as client:
            members = client.statistics().members
        answers = [one.packets for of in members for one in of.reasons if one.reason in ("held", "repeated")]
        counted = {
            "contributions": sum(one.contributions for one in members),
            "results": sum(one.results for one in members),
            "answers": sum(answers),
        }
        (folder / "writing").write_text(json.dumps(counted))
        (folder / "writing").rename(path)
    while not path.exists():
        time.sleep(_RETRY_S)


def _join(name: str, rank: int, size: int) -> switchsum.Communicator:
    """Join a job, which its first rank may not have made yet."""
    while True:
        try:
            return switchsum.connect(job=name, rank=rank, world_size=size)
        except UnknownJob:
            time.sleep(_RETRY_S)


if __name__ == "__main__":
    main()
