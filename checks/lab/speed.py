"""How many frames a second of a core virtual time moves, with 4 and with 1,024 workers.

Run: python -m checks.lab.speed [--times 5]   It prints the median and the best of several sums, by processor time.
What a machine does beside it counts nevertheless: 1,024 workers wait for memory, which all cores share.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Final

from switchsum_lab.simulation import jobs
from switchsum_lab.simulation.conditions import CableConditions
from switchsum_lab.simulation.scenario import Scenario, arrays_of

from .scale import Shape

CASES: Final = ((Shape(below=(4,)), 10_000_000, 200.0), (Shape(below=(32, 32)), 400_000, 10_000.0))
"""Networks, bytes of each worker's array, and Mbit/s of all links."""


def speeds(shape: Shape, size: int, mbit: float, times: int) -> list[float]:
    """Return frames a second of each sum but the first, in which memory is new."""
    planned, links = shape.network(mbit), CableConditions()
    scenario = Scenario(planned=planned, workers=len(planned.hosts), size=size)
    network = jobs.build(planned, links, lanes=scenario.lanes_per_frame)
    job = jobs.Job(network, planned, list(planned.hosts), links, lanes=scenario.lanes_per_frame)
    found = []
    for _ in range(times + 1):
        arrays, _ = arrays_of(scenario)
        before, began = network.world.frames_moved, time.process_time()
        job.allreduce(arrays)
        found.append((network.world.frames_moved - before) / (time.process_time() - began))
    return found[1:]


def main() -> None:
    """Print a line for each case."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--times", type=int, default=5, help="sums of each case")
    times = options.parse_args().times
    for case in CASES:
        found = speeds(*case, times)
        workers = len(case[0].network(case[2]).hosts)
        median, best = statistics.median(found) / 1e6, max(found) / 1e6
        print(f"{workers:,} workers: {median:.2f} million frames/s of a core, at best {best:.2f}", flush=True)


if __name__ == "__main__":
    main()
