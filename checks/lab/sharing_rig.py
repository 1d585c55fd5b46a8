"""A switch, its aggregator, a controller and ranks on real links, for `checks.lab.sharing_rows`; and such a rank.

Each rank has a veth pair to the switch, and so has the aggregator; tc's tbf keeps their rates.  With two racks the
ranks' pairs lead to a bridge of the kernel for each rack, or to a switch that adds for its rack, and a pair leads from
there to the switch above.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

import switchsum
from switchsum.launch import wires
from switchsum.launch.daemons import daemon
from switchsum.launch.link_options import MTU
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_switch.bmv2.process import End
from switchsum_switch.process.children import Children

RANKS: Final = 2
"""Of a job in one rack, and in each of two."""
TAKERS: Final = 2
"""Ranks of a job that takes all slots."""
LANES: Final = 256
TRUNK: Final = 100
"""Port of the switch that leads to the aggregator."""
SPARE: Final = "spare"
BURST: Final = "12k"
"""Of the token buckets: ten frames."""
WARM_S: Final = 0.7
SECONDS: Final = 2.0
JOIN_S: Final = 120.0
MOST: Final = 0.95
"""Share of the rounds that are the aggregator's where it adds everything: some have no lanes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How jobs have slots."""

    name: str
    shares: bool = False
    own_slots: int = 0
    is_taken: bool = False
    """Another job has all slots, so that the aggregator adds everything."""
    is_tree: bool = False
    """Each rack has a switch that adds, below the one that adds for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row: jobs that add at the same time."""

    sizes: tuple[int, ...]
    """Bytes of each job's array.  The first job is the one of which the table tells, if the others' are larger."""
    way: Way
    mbit: float
    slots: int
    """Of the switch, for all jobs."""
    window: int
    """Slots of a job, or as many of the shared ones as it may use."""
    racks: int = 1

    @property
    def ranks(self) -> int:
        """Ranks of a job: as many in each rack."""
        return RANKS * self.racks

    @property
    def uplink_mbit(self) -> float:
        """Rate of a rack's uplink: that of all links of its ranks together."""
        return self.mbit * RANKS * len(self.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How a case went."""

    ms: tuple[float, ...]
    """Of one sum, by job."""
    taken: float
    """Share of rounds that the aggregator has added."""
    repeats: float = 0.0
    """Share of frames that were sent again."""
    idle: float = 1.0
    """Share of the processors' time."""
    up_mb: float = 0.0
    """Megabytes that one sum of each job sends up from a rack."""


class RankProcess:
    """A process in a namespace that is a rank of one job after the other."""

    def __init__(self, wire: wires.Wire, controller: str) -> None:
        environment = {**os.environ, "SWITCHSUM_CONTROLLER": controller, "OMP_NUM_THREADS": "1"}
        environment["SWITCHSUM_LINK"] = f"packet:{wires.WORKER_INTERFACE}"
        command = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "checks.lab.sharing_rig"]
        self._process = subprocess.Popen(
            wire.inside(command), env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def order(self, **what: Any) -> None:
        """Tell it what to do."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def report(self) -> Any:
        """Return what it says next; raises SystemExit if it has ended."""
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise SystemExit(f"a rank has ended with exit code {self._process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()


class Rig:
    """A switch, its aggregator, a controller, and ranks at links of one rate, in one rack or in two."""

    def __init__(self, children: Children, scratch: Path, *, jobs_: int, slots: int, racks: int, is_tree: bool) -> None:
        off = wires.TCP_OFFLOADS
        self.number, self._rates, self._all_are_taken = 0, (0.0, 0.0), False
        count = RANKS * racks * jobs_ + TAKERS
        laid = self._laid = [wires.lay(children, place, mtu=MTU, rate=None, off=off) for place in range(count)]
        trunk = self._trunk = End(TRUNK, "trunk"), End(1, "trunk1")
        self._uplinks = [
            (End(rack + 1, f"down{rack}"), End(TRUNK, f"up{rack}")) for rack in range(racks if racks > 1 else 0)
        ]
        for pair in (trunk, *self._uplinks):
            wires.lay_trunk(pair, mtu=MTU, rate=None, off=off)
        behind = [[wire.end for place, wire in enumerate(laid) if place % racks == rack] for rack in range(racks)]
        ends = {"main": [trunk[0], *(down for down, _ in self._uplinks or [])]}
        ports = {"main": {SPARE: TRUNK}}
        if is_tree:
            for rack, (down, up) in enumerate(self._uplinks):
                ends[f"rack{rack}"], ports[f"rack{rack}"] = [*behind[rack], up], {"main": up.port}
                ports["main"][f"rack{rack}"] = down.port
        elif self._uplinks:
            for own, (_, up) in zip(behind, self._uplinks, strict=True):
                _bridge(f"bridge{up.interface}", [*own, up])
        else:
            ends["main"] += behind[0]
        self.controller = f"unix:{scratch}/controller"
        fleet: dict[str, dict[str, Any]] = {
            name: {"p4runtime": f"unix:{scratch}/{name}", "ports": ports[name]} for name in ends
        }
        for name in fleet:
            fleet[name] |= {} if name == "main" else {"above": "main"}
        fleet[SPARE] = {"p4runtime": f"unix:{scratch}/{SPARE}", "ports": {"main": 1}, "role": "aggregator"}
        (scratch / "fleet.json").write_text(json.dumps({"switches": fleet, "shared_slots": slots}))
        for name, own in {**ends, SPARE: [trunk[1]]}.items():
            kind, interfaces = "aggregator" if name == SPARE else "switch", [("--interface", str(end)) for end in own]
            daemon(children, name, [kind, "--listen", fleet[name]["p4runtime"], *chain(*interfaces)])
        fleet_file = ["--fleet", f"{scratch}/fleet.json", "--lanes", str(LANES)]
        daemon(children, "controller", ["controller", "--listen", self.controller, *fleet_file])
        self.places = [RankProcess(wire, self.controller) for wire in laid]

    def _limit(self, mbit: float, uplink_mbit: float) -> None:
        if self._rates == (mbit, uplink_mbit):
            return
        self._rates = mbit, uplink_mbit
        for wire in self._laid:
            _limit(wire.interface, (), mbit)
            _limit(wires.WORKER_INTERFACE, wire.inside(()), mbit)
        for end in self._trunk:
            _limit(end.interface, (), mbit)
        for end in chain(*self._uplinks):
            _limit(end.interface, (), uplink_mbit)

    def run(self, case: Case) -> Found:
        """Run a case; raises SystemExit for a wrong sum."""
        self._limit(case.mbit, case.uplink_mbit)
        with ControllerClient(self.controller, timeout_s=JOIN_S) as client:
            if case.way.is_taken and not self._all_are_taken:
                self._all_are_taken = True
                self._begin(client, case, self.places[-TAKERS:], takes_all=True)
                for place in self.places[-TAKERS:]:
                    place.report()
                time.sleep(WARM_S)  # until its claims are there
            self.number += 1
            started = []
            for job, size in enumerate(case.sizes):
                started.append(self.places[case.ranks * job : case.ranks * (job + 1)])
                self._begin(client, case, started[-1], job=job, size=size)
            for place in chain(*started):
                place.report()
            since = time.monotonic() + WARM_S
            for place in chain(*started):
                place.order(since=since, until=since + SECONDS)
            time.sleep(max(0.0, since - time.monotonic()))
            before = _processor_times()
            time.sleep(SECONDS)
            idle = _idle(before, _processor_times())
            reports = [[place.report() for place in own] for own in started]
            for job in range(len(case.sizes)):
                client.remove_job(rpc.RemoveJobRequest(job=f"{self.number}-{job}", force=True))
        flat = [*chain(*reports)]
        taken = sum(one["taken"] for one in flat) / sum(one["rounds"] for one in flat)
        if case.way.is_taken and taken < MOST:
            raise SystemExit(f"the aggregator has added {taken:.0%} of the rounds, and not all")
        return Found(
            ms=tuple(max(one["ms"] for one in own) for own in reports),
            taken=taken,
            repeats=sum(one["repeats"] for one in flat) / sum(one["sent"] for one in flat),
            idle=idle,
        )

    def _begin(
        self,
        client: ControllerClient,
        case: Case,
        places: Sequence[RankProcess],
        *,
        job: int = -1,
        size: int = 0,
        takes_all: bool = False,
    ) -> None:
        name = "takes all" if takes_all else f"{self.number}-{job}"
        slots = case.slots if takes_all else case.window
        client.create_job(
            rpc.CreateJobRequest(
                job=name,
                workers=len(places),
                slots=slots,
                timeout_s=JOIN_S,
                shares_slots=case.way.shares,
                own_slots=0 if takes_all else case.way.own_slots,
            )
        )
        for rank, place in enumerate(places):
            length = 4 * LANES * case.slots if takes_all else size
            place.order(job=name, rank=rank, ranks=len(places), bytes=length, takes_all=takes_all)


def _limit(name: str, within: Sequence[str], mbit: float) -> None:
    shape = ["rate", f"{mbit:g}mbit", "burst", BURST, "latency", "100ms"]
    wires.run([*within, "tc", "qdisc", "replace", "dev", name, "root", "tbf", *shape])


def _bridge(name: str, ends: Sequence[End]) -> None:
    """Make a bridge of the kernel, which forwards between some interfaces."""
    wires.run(["ip", "link", "add", name, "type", "bridge", "mcast_snooping", "0"])
    for end in ends:
        wires.run(["ip", "link", "set", end.interface, "master", name])
    wires.run(["ip", "link", "set", name, "up"])


def _processor_times() -> list[int]:
    return [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def _idle(before: Sequence[int], after: Sequence[int]) -> float:
    spent = np.subtract(after, before)
    return float((spent[3] + spent[4]) / spent.sum())


@contextmanager
def rig(*, jobs_: int, slots: int, racks: int = 1, is_tree: bool = False) -> Iterator[Rig]:
    """Lay links and start processes; all of it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="switchsum-rows-") as scratch, Children() as children:
        made = Rig(children, Path(scratch), jobs_=jobs_, slots=slots, racks=racks, is_tree=is_tree)
        try:
            yield made
        finally:
            for place in made.places:
                place.end()


def rank() -> None:
    """Be a rank of the jobs that are named on standard input, one after the other."""
    for line in sys.stdin:
        what = json.loads(line)
        comm = switchsum.connect(job=what["job"], rank=what["rank"], world_size=what["ranks"])
        print(json.dumps("joined"), flush=True)
        if what["takes_all"]:
            if comm.rank == 0:
                threading.Thread(target=comm.allreduce, args=(np.ones(what["bytes"] // 4, np.float32),)).start()
            continue
        times = json.loads(sys.stdin.readline())
        print(json.dumps(_add(comm, what["bytes"], **times)), flush=True)
        comm.close()


def _add(comm: switchsum.Communicator, size: int, *, since: float, until: float) -> dict[str, float]:
    array, ended = np.ones(size // 4, np.float32), [time.monotonic()]
    while True:
        array[:] = ended[-1] < until + WARM_S
        comm.allreduce(array)
        if not (array == array[0]).all() or array[0] != round(array[0]):
            raise SystemExit("a sum is wrong")
        if array[0] < comm.world_size:  # for some rank the time is over, which all hear of at once
            break
        ended.append(time.monotonic())
    inside = [at for at in ended if since <= at <= until]
    if len(inside) < 3:  # sums take longer than the time that counts
        inside = ended[1:] if len(ended) > 2 else ended
    if len(inside) < 2:
        raise SystemExit("no sum ended in time: the machine is too busy")
    found = comm.statistics()
    counts = {"taken": found.taken, "rounds": found.rounds, "repeats": found.repeats, "sent": found.frames_sent}
    return {"ms": 1e3 * (inside[-1] - inside[0]) / (len(inside) - 1), **counts}


if __name__ == "__main__":
    rank()
