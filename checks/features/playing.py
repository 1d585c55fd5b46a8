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
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import communicators
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_switch.process.children import Children

from .rank import INJURED, Order, play

MEMBERS: Final = (0, 1, 2)
NEWCOMER: Final = 3
LIMIT_S: Final = 180.0
"""A job that takes so long hangs, also on a machine that does much else."""
START_S: Final = 120.0
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


class Fleet(TreeWorld):
    """A root with two leaves, and an aggregator for the slots at the root that jobs share."""

    shared_slots = 64
    aggregators = ("spare",)

    def __init__(self, children: Children, scratch: Path) -> None:
        super().__init__(children, scratch, leaves=2)

    def _place_of(self, name: str) -> dict[str, str | None]:
        return {"role": "aggregator"} if name in self.aggregators else super()._place_of(name)

    def link_of(self, row: dict[str, str], rank: int) -> str:
        """Return the link of a rank."""
        kind, topology = row["link"], row["topology"]
        if topology == "rails":
            return ",".join(f"{kind}:{self._address(name, kind)}" for name in ("leaf0", "leaf1"))
        if topology == "cables":
            return f"{kind}:{self._address('root', kind)},{kind}:{self._address('root', kind)}%127.0.0.2"
        return f"{kind}:{self._address('root' if topology == 'star' else f'leaf{rank % 2}', kind)}"

    def _address(self, name: str, kind: str) -> str:
        options = self._commands[name]
        return options[options.index(f"--{kind}") + 1]


class Place:
    """A process that is a rank of one job after another."""

    def __init__(self, controller: str) -> None:
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "checks.features.rank"],
            env={**os.environ, "SWITCHSUM_CONTROLLER": controller, "OMP_NUM_THREADS": "1"},
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
        self._places: list[Place] = []
        self._jobs = 0
        self._ready(len(MEMBERS))

    def _ready(self, count: int) -> list[Place]:
        new = [Place(self._fleet.controller) for _ in range(count - len(self._places))]
        self._places += new
        for place in new:
            assert place.reports.get(timeout=START_S) == {"ready": True}
        return self._places[:count]

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
                        job=job, workers=len(orders), slots=slots, timeout_s=LIMIT_S / 2, shares_slots=shares
                    )
                )
                reports.append(self._play_job(orders, job))
                client.remove_job(rpc.RemoveJobRequest(job=job, force=True))
        return reports

    def _play_job(self, orders: Sequence[Order], job: str) -> list[Report]:
        places = self._ready(len(orders))
        for order, place in zip(orders, places, strict=True):
            place.order(replace(order, job=job, link=self._fleet.link_of(order.row, order.rank)))
        reports, end = [], time.monotonic() + LIMIT_S
        for place in places:
            try:
                report = place.reports.get(timeout=max(0.1, end - time.monotonic()))
            except queue.Empty:
                report = {"foreign": f"no end after {LIMIT_S:g} s"}
                place.end()
            reports.append({"killed": True} if report is None else report)
        for place in places:
            if place.process.poll() is not None:
                self._places.remove(place)
        return reports

    def close(self) -> None:
        """End all processes."""
        for place in self._places:
            place.end()
