"""Trainings on four machines with slow links: a step's time here and over gloo, by the links' queues and trips.

Machines are network namespaces on a bridge of the kernel, one rank each, started as torchrun starts them.  Each link
has a token bucket of 16 KiB in both directions; `relay` makes the trip longer.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from checks.lab.machines import MTU, run_ranks
from switchsum.launch import wires
from switchsum_lab.sweeps.star import BRIDGE
from switchsum_switch.bmv2.process import End
from switchsum_switch.process.children import Children

MACHINES: Final = 4
BURST_BYTES: Final = 16 << 10
_WORKER: Final = "checks.lab.machine_worker"
_TRAINED: Final = "layers"
"""What a worker calls the model that it trains."""


def lay(children: Children, *, rate: str, queue_s: float, trip_s: float) -> list[wires.Wire]:
    """Lay links of such a rate, whose queues hold `queue_s`, from each machine to a bridge.

    From one machine to another and back a frame takes `trip_s`, beside the time of links and queues.
    """
    wires.run(["ip", "link", "set", "lo", "up"])
    wires.run(["ip", "link", "add", BRIDGE, "mtu", str(MTU), "type", "bridge"])
    wires.run(["ip", "link", "set", BRIDGE, "up"])
    laid = [wires.lay(children, place, mtu=MTU, rate=None, off=wires.OFFLOADS) for place in range(MACHINES)]
    shape = ["root", "tbf", "rate", rate, "burst", str(BURST_BYTES), "latency", f"{1e3 * queue_s:g}ms"]
    names = []
    for wire in laid:
        wires.run(["tc", "qdisc", "replace", "dev", wire.interface, *shape])
        wires.run(wire.inside(["tc", "qdisc", "replace", "dev", wires.WORKER_INTERFACE, *shape]))
        if trip_s == 0.0:
            wires.run(["ip", "link", "set", wire.interface, "master", BRIDGE])
            continue
        far = End(wire.port, f"far{wire.port}"), End(wire.port, f"near{wire.port}")
        wires.lay_trunk(far, mtu=MTU, rate=None, off=wires.OFFLOADS)
        wires.run(["ip", "link", "set", far[1].interface, "master", BRIDGE])
        names += [wire.interface, far[0].interface]
    if names:  # a frame crosses two relays on its way there, and two on its way back
        children.start("relay", [sys.executable, "-m", "checks.line.relay", str(trip_s / 4), *names])
    return laid


def steps(
    backend: str, ways: Sequence[str], count: int, *, rate: str, queue_s: float, trip_s: float
) -> dict[str, float]:
    """Return the median milliseconds of a training's step in each of a backend's ways."""
    with tempfile.TemporaryDirectory(prefix="switchsum-line-") as scratch:
        path = Path(scratch, "steps.json")
        given = [backend, str(count), str(path), *ways]
        links = [rate, str(queue_s), str(trip_s)]
        command = [sys.executable, "-m", "checks.line.machines", *links, *given]
        subprocess.run(["unshare", "--net", "--", *command], check=True, capture_output=True, text=True)
        taken: Mapping[str, Sequence[float]] = json.loads(path.read_text())[_TRAINED]
    return {way: statistics.median(milliseconds) for way, milliseconds in taken.items()}


def main() -> None:
    """Train, within a network namespace of this process alone."""
    rate, queue_s, trip_s, *given = sys.argv[1:]
    with Children() as children:
        laid = lay(children, rate=rate, queue_s=float(queue_s), trip_s=float(trip_s))
        run_ranks(laid, 1, [sys.executable, "-m", _WORKER, *given], {"OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    if os.geteuid() != 0:
        raise SystemExit("laying links needs root")
    main()
