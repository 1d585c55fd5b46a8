"""Plays rows of the table: ranks as threads on a switch in memory, or as processes with switches and a controller."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from checks.soak.world import TreeWorld
from switchsum.launch import wires
from switchsum.launch.daemons import daemon
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import communicators
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_switch.bmv2.process import End
from switchsum_switch.process.children import Children
from switchsum_switch.wires.headers import format_mac

from .groups import LIMIT_S
from .orders import INJURED, Order
from .rank import play

MEMBERS: Final = (0, 1, 2)
NEWCOMER: Final = 3
HANGS_S: Final = 2 * LIMIT_S
"""A job that takes so long hangs: its ranks have waited for one another, and have had time to say so."""
START_S: Final = 600.0
"""What imports PyTorch may take minutes beside fifty other processes."""
Report = dict[str, Any]


def orders_of(row: dict[str, str], number: int) -> list[list[Order]]:
    """Return the jobs of a row, each with what its members do."""
    turns = 1 if row["event"] in ("none", "late", "killed") else 2
    jobs = []
    for turn in range(turns):
        members = (*MEMBERS, NEWCOMER) if turn and row["event"] == "newcomer" else MEMBERS
        first = Order(row=row, number=number, turn=turn, members=members, rank=0)
        jobs.append([replace(first, rank=rank) for rank in range(len(members))])
    return jobs


def play_in_memory(row: dict[str, str], number: int) -> list[list[Report]]:
    """Play a row with ranks as threads; return what came of each job and rank."""
    kept: dict[int, dict[str, Any]] = {}
    reports = []
    for turn, orders in enumerate(orders_of(row, number)):
        if turn and row["event"] == "replaced":
            kept.pop(INJURED, None)
        size = len(orders)
        config = ClusterConfig(workers=size, lanes_per_frame=256, window_slots=16, timeout_s=LIMIT_S)
        made = communicators(size, config=config, loss=float(row["loss"]), seed=number)
        with ThreadPoolExecutor(size) as threads:
            tasks = [
                threads.submit(play, order, comm, kept.setdefault(order.member, {}))
                for order, comm in zip(orders, made, strict=True)
            ]
            reports.append([task.result() for task in tasks])
    return reports


WIRES: Final = ("root", "root", "leaf0", "leaf1")
"""The switches to which the wires of each rank in a namespace lead."""
FIRST_PORT: Final = 401
"""Of the switches' ports with wires; other ports have low numbers."""
MTU: Final = 1500


class Fleet(TreeWorld):
    """A root with two leaves, and an aggregator for the slots at the root that jobs share.

    Ranks may have wires to all but the aggregator; then this process is in a network namespace of its own.
    """

    shared_slots = 64
    aggregators = ("spare",)

    def __init__(self, children: Children, scratch: Path, *, has_wires: bool) -> None:
        self.scratch = scratch
        self.wires: list[list[wires.Wire]] = []
        for rank in range(len(MEMBERS) + 1) if has_wires else ():
            self.wires.append([])
            for number, name in enumerate(WIRES):
                end = End(FIRST_PORT + len(WIRES) * rank + number, f"{name}-{rank}-{number}")
                holder = self.wires[rank][0].holder if number else None
                self.wires[rank].append(
                    wires.lay(
                        children,
                        rank,
                        mtu=MTU,
                        rate=None,
                        off=wires.TCP_OFFLOADS,
                        link=number,
                        holder=holder,
                        end=end,
                    )
                )
        super().__init__(children, scratch, leaves=2)

    def _place_of(self, name: str) -> dict[str, Any]:
        if name in self.aggregators:
            return {"role": "aggregator"}
        if name != "root":
            return {**super()._place_of(name)}
        # What ranks in namespaces say to each other without a job, as gloo does, goes over their first wires.
        stations = {format_mac(first.address.mac): first.port for first, *_ in self.wires}
        return {**super()._place_of(name), **({"stations": stations} if stations else {})}

    def _start(self, name: str) -> None:
        ends = [str(wire.end) for own in self.wires for wire, far in zip(own, WIRES, strict=True) if far == name]
        command = [*self._commands[name], *(word for end in ends for word in ("--interface", end))]
        self.switches[name], _ = daemon(self._children, name, command)

    def link_of(self, row: dict[str, str], rank: int) -> str:
        """Return the link of a rank."""
        kind, topology = row["link"], row["topology"]
        if kind == "veth":
            numbers = {"star": [0], "cables": [0, 1], "racks": [2 + rank % 2], "rails": [2, 3]}[topology]
            return ",".join(f"packet:{wires.inner_name(number)}" for number in numbers)
        if topology == "rails":
            return ",".join(f"{kind}:{self._address(name, kind)}" for name in ("leaf0", "leaf1"))
        if topology == "cables":
            return f"{kind}:{self._address('root', kind)},{kind}:{self._address('root', kind)}%127.0.0.2"
        return f"{kind}:{self._address('root' if topology == 'star' else f'leaf{rank % 2}', kind)}"

    def _address(self, name: str, kind: str) -> str:
        options = self._commands[name]
        return options[options.index(f"--{kind}") + 1]


class RankProcess:
    """A process that is a rank of one job after another; `wire` is the first one of its namespace, if it is in one."""

    def __init__(self, controller: str, wire: wires.Wire | None) -> None:
        command = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "checks.features.rank"]
        named = {"GLOO_SOCKET_IFNAME": wires.WORKER_INTERFACE} if wire else {}
        self.process = subprocess.Popen(
            wire.inside(command) if wire else command,
            env={**os.environ, **named, "SWITCHSUM_CONTROLLER": controller, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.reports: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.reports.put(json.loads(line) if line.startswith("{") else {"foreign": line})
        self.reports.put(None)

    def order(self, order: Order) -> None:
        """Have the rank take part in a job."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asdict(order)) + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.wait()


class Processes:
    """Plays rows with ranks as processes, which serve for one row after another."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._places: dict[bool, dict[int, RankProcess]] = {False: {}, True: {}}
        """Ranks outside and in namespaces."""
        self._jobs = 0

    def _ready(self, count: int, *, has_wires: bool) -> list[RankProcess]:
        places = self._places[has_wires]
        new = {
            rank: RankProcess(self._fleet.controller, self._fleet.wires[rank][0] if has_wires else None)
            for rank in range(count)
            if rank not in places
        }
        places.update(new)
        for place in new.values():
            assert place.reports.get(timeout=START_S) == {"ready": True}
        return [places[rank] for rank in range(count)]

    def play(self, row: dict[str, str], number: int) -> list[list[Report]]:
        """Play a row; return what came of each job and rank."""
        reports = []
        with ControllerClient(self._fleet.controller) as client:
            loss = float(row["loss"])
            client.set_loss(rpc.LossRequest(ingress=loss, egress=loss))
            for orders in orders_of(row, number):
                self._jobs += 1
                job = f"features-{self._jobs}"
                shares = row["sharing"] == "shared"
                slots = Fleet.shared_slots if shares else 16
                client.create_job(
                    rpc.CreateJobRequest(
                        job=job, workers=len(orders), slots=slots, timeout_s=LIMIT_S, shares_slots=shares
                    )
                )
                reports.append(self._play_job(orders, job))
                client.remove_job(rpc.RemoveJobRequest(job=job, force=True))
        return reports

    def _play_job(self, orders: Sequence[Order], job: str) -> list[Report]:
        has_wires = orders[0].row["link"] == "veth"
        if orders[0].turn and orders[0].row["event"] == "replaced":
            self._places[has_wires].pop(INJURED).end()
        places = self._ready(len(orders), has_wires=has_wires)
        for order, place in zip(orders, places, strict=True):
            link = self._fleet.link_of(order.row, order.rank)
            place.order(replace(order, job=job, link=link, store=f"{self._fleet.scratch}/{job}"))
        reports, end = [], time.monotonic() + HANGS_S
        for place in places:
            try:
                report = place.reports.get(timeout=max(0.1, end - time.monotonic()))
            except queue.Empty:
                report = {"foreign": f"no end after {HANGS_S:g} s"}
                place.end()
            reports.append({"killed": True} if report is None else report)
        for rank, place in enumerate(places):
            if place.process.poll() is not None:
                del self._places[has_wires][rank]
        return reports

    def close(self) -> None:
        """End all processes."""
        for places in self._places.values():
            for place in places.values():
                place.end()
