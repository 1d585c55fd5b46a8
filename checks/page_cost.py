"""Processor time of server and browser together: a page of 64 workers and 1,000 slots, ten pictures a second.

python -m checks.page_cost [--seconds 20] [--runs 3]

The controller is made up: half of the slots change from picture to picture, and each rank reports once a second, as
workers do, at a time of its own.  The first job is in view.  Chromium is headless and without a graphics card: it
draws with the processor.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from support.made_up import Large
from switchsum.web import looks
from switchsum.web.server import WebServer
from switchsum_protocol import rpc

PICTURES_A_SECOND = 10
TICKS = os.sysconf("SC_CLK_TCK")


class Changing(Large):
    """Every look finds new reports of a tenth of the ranks, and other members missing in half of the slots."""

    def __init__(self) -> None:
        super().__init__(250)
        self._looks = 0
        self._reports = [
            rpc.WorkerList(workers=[self._report(rank, (look - rank) // PICTURES_A_SECOND + 2) for rank in range(16)])
            for look in range(50 * PICTURES_A_SECOND)
        ]
        self._cells = [self.cells, {name: rpc.SlotList(slots=found.slots[::-1]) for name, found in self.cells.items()}]
        for found in self._cells[1].values():  # the same slots with each other's bits
            bits = [one.seen for one in found.slots]
            slots = sorted(found.slots, key=lambda one: (one.slot, one.version))
            found.slots[:] = [rpc.SlotInfo(**_fields(one, bit)) for one, bit in zip(slots, bits, strict=True)]

    def _report(self, rank: int, turn: int) -> rpc.WorkerInfo:
        sent = 1000 * turn * turn + rank
        return rpc.WorkerInfo(
            rank=rank, age_s=0.01, host="h", link="udp:h", begun=turn + 1, finished=turn, operation="allreduce",
            waiting_s=0.1, frames_sent=sent, frames_received=sent, bytes_sent=1000 * sent, rounds=sent,
        )  # fmt: skip

    def list_jobs(self) -> rpc.JobList:
        """Begin a look."""
        self._looks += 1
        return super().list_jobs()

    def workers(self, request: rpc.JobRequest) -> rpc.WorkerList:
        """Return the reports of this look."""
        return self._reports[self._looks % len(self._reports)]

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        """Return the slots of this look."""
        return self._cells[self._looks % 2][str(request.job)]


def _fields(cell: rpc.SlotInfo, seen: int) -> dict[str, Any]:
    return {"slot": cell.slot, "version": cell.version, "number": cell.number, "flags": 0, "block": 0,
            "next_block": 0, "seen": seen}  # fmt: skip


def browser() -> Any:
    """Start headless Chromium."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for option in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "window-size=1200,1100"):
        options.add_argument(f"--{option}")
    return webdriver.Chrome(options, webdriver.ChromeService(executable_path=shutil.which("chromedriver")))


def used_s(root: int) -> float:
    """Return the processor time of all that a process has started, in seconds."""
    found: dict[int, list[tuple[int, int]]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        found.setdefault(int(fields[1]), []).append((int(stat.parent.name), int(fields[11]) + int(fields[12])))
    ticks, left = 0, [root]
    while left:
        for child, its in found.get(left.pop(), []):
            ticks += its
            left.append(child)
    return ticks / TICKS


def main() -> None:
    """Measure, and print shares of a core."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    looks.EVERY_S = 1.0 / PICTURES_A_SECOND  # type: ignore[misc]
    server, shares = WebServer(Changing(), "127.0.0.1:0", print), []
    driver = browser()
    try:
        driver.get(server.url)
        time.sleep(3)  # until scripts are compiled
        driver.execute_script("document.querySelector('[data-job]').scrollIntoView()")
        time.sleep(1)
        for _ in range(given.runs):
            began, pictures = time.monotonic(), server._looks.painted
            before = time.process_time(), used_s(driver.service.process.pid)
            time.sleep(given.seconds)
            took = time.monotonic() - began
            own, its = time.process_time() - before[0], used_s(driver.service.process.pid) - before[1]
            shares.append(100 * (own + its) / took)
            print(
                f"{(server._looks.painted - pictures) / took:.1f} pictures a second of "
                f"{len(server._looks.picture):,} bytes: server {100 * own / took:.1f} % of a core, browser "
                f"{100 * its / took:.1f} %, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    finally:
        driver.quit()
        server.stop()
    print(f"median {statistics.median(shares):.1f} %")


if __name__ == "__main__":
    main()
