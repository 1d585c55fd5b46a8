"""Allreduce of torch's ranks on several machines with limited links: with a switch on each machine, without, and gloo.

`python -m checks.lab.machines [MACHINES [RANKS [RATE [MB]]]]`, as root: machines are network namespaces on a bridge,
each with one link.  Prints for each backend the time of an allreduce and the bytes that links have carried for it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from checks.bench.records import machine
from switchsum.launch import wires
from switchsum_lab.sweeps.star import lay
from switchsum_switch.bmv2.process import free_port
from switchsum_switch.notices import waiting_for
from switchsum_switch.process.children import Children
from switchsum_switch.wires.headers import format_ip

DEFAULTS: Final = ("2", "4", "200mbit", "10")
ROUNDS: Final = 3
"""Each backend runs so often, in turn."""
RUNS: Final = 5
MTU: Final = 1500
SWITCHES: Final = {"a switch on each": ("switchsum", "1"), "one switch": ("switchsum", "0"), "gloo": ("gloo", "")}
"""Backend and SWITCHSUM_LEAF."""


def worker(backend: str, size: int, path: Path) -> None:
    """Be one rank: time allreduces, and write times and bytes of this machine's link for one."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(backend, timeout=timedelta(seconds=300))
    values = torch.ones(size // 4)
    dist.all_reduce(values)
    dist.barrier()
    before, seconds = _link_bytes(), []
    for _ in range(RUNS):
        values.fill_(1)
        dist.barrier()
        begin = time.monotonic()
        dist.all_reduce(values)
        seconds.append(time.monotonic() - begin)
        assert values[0].item() == dist.get_world_size()
    dist.barrier()
    carried = [(after - first) / RUNS for first, after in zip(before, _link_bytes(), strict=True)]
    path.with_name(f"{path.name}.{dist.get_rank()}").write_text(json.dumps({"seconds": seconds, "bytes": carried}))
    dist.destroy_process_group()


def _link_bytes() -> list[int]:
    """Return the bytes that the machine's link has sent and received."""
    folder = Path("/sys/class/net", wires.WORKER_INTERFACE, "statistics")
    if not folder.exists():  # /sys is of the namespace in which it was mounted
        lines = Path("/proc/self/net/dev").read_text().splitlines()
        columns = next(line for line in lines if wires.WORKER_INTERFACE in line).partition(":")[2].split()
        return [int(columns[8]), int(columns[0])]
    return [int((folder / name).read_text()) for name in ("tx_bytes", "rx_bytes")]


def measure(machines: int, ranks: int, rate: str, size: int) -> dict[str, list[dict[str, list[list[float]]]]]:
    """Run each backend in turn; return what its ranks have written, for each round."""
    found: dict[str, list[dict[str, list[list[float]]]]] = {name: [] for name in SWITCHES}
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-") as scratch, Children(scratch) as children:
        laid = lay(children, machines, rate=rate, mtu=MTU)
        for number in range(ROUNDS):
            for name, (backend, leaf) in SWITCHES.items():
                path = Path(scratch, f"{backend}{leaf}-{number}")
                command = [sys.executable, "-m", "checks.lab.machines", "worker", backend, str(size), str(path)]
                run_ranks(laid, ranks, command, {"SWITCHSUM_LEAF": leaf})
                written = [json.loads(Path(f"{path}.{rank}").read_text()) for rank in range(machines * ranks)]
                found[name].append({key: [one[key] for one in written] for key in ("seconds", "bytes")})
    return found


def run_ranks(laid: Sequence[wires.Wire], ranks: int, command: Sequence[str], variables: Mapping[str, str]) -> None:
    """Run a command as so many ranks on each machine, as torchrun would; raises SystemExit where one has failed."""
    with Children() as job:
        common = {**_environment(laid, len(laid) * ranks), **variables}
        started = [
            job.start(
                f"rank {rank}",
                laid[rank // ranks].inside(command),
                environment={**common, "RANK": str(rank), "LOCAL_RANK": str(rank % ranks)},
            )
            for rank in range(len(laid) * ranks)
        ]
        failed, code = job.wait(started)
        if failed is not None:
            raise SystemExit(f"{failed.name} of {' '.join(command)} has ended with exit code {code}")


def _environment(laid: Sequence[wires.Wire], ranks: int) -> Mapping[str, str]:
    here = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHSUM_CONTROLLER")}
    return here | {
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": format_ip(laid[0].address.ip),
        "MASTER_PORT": str(free_port()),
        "GLOO_SOCKET_IFNAME": wires.WORKER_INTERFACE,
        "OMP_NUM_THREADS": "1",
    }


def main(machines: int, ranks: int, rate: str, megabytes: float) -> None:
    """Measure, and print a table."""
    size = int(megabytes * 1e6)
    console = Console(width=120)
    console.print(machine())
    table = Table(title=f"allreduce of {megabytes:g} MB, {machines} machines of {ranks} ranks, links of {rate}")
    for column in ("", "seconds", "MB/s per rank", "least", "most", "busiest link up, MB", "down, MB"):
        table.add_column(column, justify="left" if not column else "right")
    with waiting_for(f"{ROUNDS} starts of each backend"):
        measured = measure(machines, ranks, rate, size)
    for name, rounds in measured.items():
        # An allreduce ends when the last rank has its result.
        seconds = [max(run) for one in rounds for run in zip(*one["seconds"], strict=True)]
        up, down = (max(carried[way] for one in rounds for carried in one["bytes"]) / 1e6 for way in (0, 1))
        rates = [size / 1e6 / one for one in seconds]
        cells = [statistics.median(seconds), statistics.median(rates), min(rates), max(rates), up, down]
        table.add_row(name, *(f"{cell:.3g}" for cell in cells))
    console.print(table)
    console.print(f"median of {ROUNDS * RUNS} runs, {ROUNDS} starts of each in turn; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    elif sys.argv[1:2] == ["inside"]:
        main(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], float(sys.argv[5]))
    else:  # bridge and links are in a namespace of their own, which is gone with them at the end
        given = [*sys.argv[1:], *DEFAULTS[len(sys.argv) - 1 :]]
        command = ["unshare", "--net", "--", sys.executable, "-m", "checks.lab.machines", "inside", *given]
        sys.exit(subprocess.run(command, check=False).returncode)
