"""One rank of a sweep on real links: `python -m switchsum_lab.sweeps.rank PROTOCOL SOCKET`.

All ranks run a cell together for each line that they read at the socket, and answer there with a line.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from switchsum.launch.wires import BURST_BYTES
from switchsum_lab.simulation import sums
from switchsum_lab.sweeps import memory, supports
from switchsum_lab.sweeps.axes import Cell
from switchsum_lab.sweeps.peers import PEERS, Counts, Peer, with_member
from switchsum_lab.sweeps.processor_time import session_seconds
from switchsum_lab.sweeps.simulated_ranks import COMPRESSORS, call_of
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.frame import FLOAT_FORMATS

_TOLERANCE = {32: 1e-5, 16: 1e-2, 8: 1.0}
"""How far a sum may be off, relative to the largest one, by bits that values go up in."""
_SPENT_BYTES = BURST_BYTES * 5 // 4
_KEPT_BYTES = 16_000_000
"""Largest array that is kept for a cell's next run: jobs that wait for their turn hold no large ones."""


class Rank:
    """What a rank keeps between cells."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._loss = 0.0
        self._drawn: tuple[str, Any, Any] = "", None, None
        self._joined_bytes = memory.held_bytes()

    def run(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Run a cell once; return what it took here."""
        cell, lanes = Cell(**order["cell"]), order["lanes"]
        peer = self._peer
        own, total = self._arrays(cell, order)
        self._lose(cell.loss)
        array = own if cell.calls == 1 and not self._keeps(own) else own.copy()
        arrays_bytes = sum({id(one): one.nbytes for one in (own, total, array)}.values())
        call = call_of(cell, lanes, order["block"])
        comm = peer.comm
        has_memory = memory.count_anew()
        spend = np.ones(_SPENT_BYTES // 4, np.float32) if cell.links == "veth" and cell.rate_mbit is not None else None
        spent_s, spent = self._spend(spend)
        peer.barrier()
        of_job = session_seconds() if peer.rank == 0 else 0.0
        peer.barrier()
        before = peer.counts()
        if spend is not None:
            peer.allreduce(spend)
            before = before if peer.is_sent_later else peer.counts()
        worked = time.process_time()
        started = time.perf_counter()
        for number in range(cell.calls):
            if number:
                np.copyto(array, own)
            if comm is not None:
                call(comm, array)
            else:
                peer.allreduce(array)
        seconds = (time.perf_counter() - started) / cell.calls
        after = None if peer.is_sent_later else peer.counts()
        most = memory.most_bytes() - self._joined_bytes - arrays_bytes
        peer.barrier()
        worked = time.process_time() - worked
        after = after or peer.counts()
        of_job = session_seconds() - of_job - spent_s if peer.rank == 0 else 0.0
        tolerance = _TOLERANCE[8 if cell.collective in COMPRESSORS else FLOAT_FORMATS[lanes].value_bits]
        answer = {"began": started, "seconds": seconds, "right": sums.is_near(array, total, tolerance)}
        answer |= {"sum_error": sums.error_of(array, total)}
        answer |= {"cpu_s": max(of_job, 0.0) / cell.calls, "worker_cpu_s": worked / cell.calls}
        if has_memory:
            answer["memory_bytes"] = max(0, most)
        if before is not None and after is not None:
            sent = after.since(before)
            answer |= asdict(sent.since(spent) if spent is not None and peer.is_sent_later else sent)
        peer.barrier()
        return answer

    def _arrays(self, cell: Cell, order: Mapping[str, Any]) -> tuple[supports.Array, supports.Array]:
        """Return this rank's array and the sum; small ones are kept for the cell's next run."""
        how: dict[str, Any] = {"values": cell.bytes // 4, "block": order["block"], "kind": cell.values}
        how |= {"density": cell.density, "overlap": cell.overlap}
        key = json.dumps([how, order["seed"]])
        if self._drawn[0] != key:
            self._drawn = "", None, None  # the former ones are freed before these are made
            own, total = supports.own_and_sum(self._peer.rank, ranks=self._peer.workers, seed=order["seed"], **how)
            if not self._keeps(own):
                return own, total
            self._drawn = key, own, total
        return self._drawn[1], self._drawn[2]

    def _spend(self, spend: supports.Array | None) -> tuple[float, Counts | None]:
        """Spend what the links' buckets let pass at once; return what that took of the job's processors, and sent.

        A token bucket fills while nothing is sent, and what it holds passes beyond the link's rate.  So a figure would
        be of bucket and link.  The sum right before the clock runs spends it once more, without a barrier behind it.
        Processor time is rank 0's to read.
        """
        if spend is None:
            return 0.0, None
        peer = self._peer
        peer.barrier()
        worked = session_seconds() if peer.rank == 0 else 0.0
        peer.barrier()
        before = peer.counts()
        peer.allreduce(spend)
        after = None if peer.is_sent_later else peer.counts()
        peer.barrier()
        after = after or peer.counts()
        worked = session_seconds() - worked if peer.rank == 0 else 0.0
        return worked, after.since(before) if before is not None and after is not None else None

    def _keeps(self, own: supports.Array) -> bool:
        return own.nbytes <= _KEPT_BYTES

    def _lose(self, loss: float) -> None:
        """Have the switch lose this share of frames each way."""
        if loss != self._loss and self._peer.rank == 0 and self._peer.comm is not None:
            with ControllerClient(os.environ["SWITCHSUM_CONTROLLER"]) as controller:
                controller.set_loss(rpc.LossRequest(ingress=loss, egress=loss))
        self._loss = loss


def main(protocol: str, path: str) -> None:
    """Run a cell for each line."""
    with PEERS.get(protocol, with_member)() as peer, socket.socket(socket.AF_UNIX) as orders:
        rank = Rank(peer)
        orders.connect(path)
        with orders.makefile("rw") as lines:
            for line in lines:
                lines.write(json.dumps(rank.run(json.loads(line))) + "\n")
                lines.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
