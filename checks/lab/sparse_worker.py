"""One rank of the benchmark of sparse allreduces; `bench.sparse` starts it under `switchsum run`, as root.

Each way runs once to warm up, and then up to seven times, less often if it takes long; a run takes as long as it does
on the slowest rank.  Bytes are those that a rank's interfaces count, Ethernet headers included, on average over the
ranks.  Sums are checked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

import switchsum
from checks.bench import gradients
from checks.lab import peer_links
from checks.lab.gloo_peers import GlooPeers
from checks.lab.sparse_page import GROUPS
from switchsum_host.api.sparse import SparseSum, largest
from switchsum_host.compress import BlockTopK, GlobalTopK
from switchsum_lab.sweeps.sparse_hosts import OkTopk, Stream, recursive_doubling, ring, sparcml_doubling, sparcml_split

PORT = 29_601
RUNS = ((0.5, 7), (6.0, 3), (float("inf"), 1))
"""How often ways run after warming up, by how many seconds they take at most."""
SMALL_BLOCK = 256
UNIONS = (0.2, 0.1, 0.04, 0.01)
PEERS_UP_TO = 0.04
"""Of larger unions the others take longer than of whole arrays."""
DENSITIES = (0.1, 0.01, 0.001)

Array = npt.NDArray[np.float32]


class Way(NamedTuple):
    """One thing to measure."""

    name: str
    call: Callable[[], object]
    prepare: Callable[[], object] = lambda: None
    """What comes before each run."""
    check: Callable[[], object] = lambda: None
    """What comes after it."""


@dataclass
class Bench:
    """What the ways work on."""

    comm: switchsum.Communicator
    peers: GlooPeers
    values: int
    accumulator: Path
    """Of this rank, as `bench.gradients` keeps it."""

    def dense(self) -> Iterator[Way]:
        """Whole arrays."""
        comm, gradient = self.comm, self.normal(0)
        normals = [np.random.default_rng([rank, 0]).standard_normal(100, np.float32) for rank in range(comm.world_size)]
        out = np.empty_like(gradient)

        def check() -> None:
            np.testing.assert_allclose(out[:100], sum(normals), rtol=1e-4, atol=1e-4)

        calls: dict[str, Callable[[], object]] = {
            "switchsum": lambda: comm.allreduce(out),
            "switchsum, block=auto": lambda: comm.allreduce(out, block="auto"),
            "gloo": lambda: dist.all_reduce(torch.from_numpy(out)),
            "ring": lambda: ring(self.peers, out),
            "recursive doubling": lambda: recursive_doubling(self.peers, out),
        }
        for name, call in calls.items():
            yield Way(name, call, prepare=lambda: np.copyto(out, gradient), check=check)
        integers = np.ones(self.values, np.int32)
        yield Way("switchsum, int32, sum, which skips zeros", partial(comm.allreduce, integers, saturate=True))
        yield Way("switchsum, int32, max, which skips nothing", partial(comm.allreduce, integers, "max"))
        for lanes in ("int16", "int8"):
            call = partial(comm.allreduce, out, lanes=lanes)
            yield Way(f"switchsum, {lanes} lanes", call, prepare=lambda: np.copyto(out, gradient))

    def blocks(self) -> Iterator[Way]:
        """Blocks of zeros, the same ones on all ranks: as large as a frame, and of 256 values."""
        comm, peers = self.comm, self.peers
        for union in UNIONS:
            for size in dict.fromkeys((comm.lanes_per_frame, SMALL_BLOCK)):
                name = f"union {union:.0%}, blocks of {size:,}"
                kept = np.random.default_rng(7).random(-(-self.values // size)) < union
                mask = np.repeat(kept, size)[: self.values]
                gradient = self.normal(1) * mask
                out = np.empty_like(gradient)
                prepare = partial(np.copyto, out, gradient)
                yield Way(f"{name}: switchsum", partial(comm.allreduce, out), prepare)
                if size < comm.lanes_per_frame:
                    yield Way(f"{name}: switchsum, block=auto", partial(comm.allreduce, out, block="auto"), prepare)
            if union <= PEERS_UP_TO:
                own = Stream(np.flatnonzero(mask).astype(np.uint32), gradient[mask])
                yield Way(f"{name}: SparCML doubling", partial(sparcml_doubling, peers, own, self.values))
                yield Way(f"{name}: SparCML split", partial(sparcml_split, peers, own, self.values))
        zeros = np.empty(self.values, np.float32)
        zeros.fill(0)  # np.zeros would be one page of zeros, mapped everywhere, and always in the cache
        yield Way("union 0%: switchsum", partial(comm.allreduce, zeros))

    def random(self) -> Iterator[Way]:
        """Each rank's own values at random places."""
        for density in DENSITIES:
            gradient = self.normal(2)
            k = round(self.values * density)
            chosen = np.sort(np.random.default_rng([self.comm.rank, k]).choice(self.values, k, replace=False))
            yield from self._sparse(f"random {density:.1%}", gradient, chosen)

    def accumulated(self) -> Iterator[Way]:
        """Each rank's largest values of what a compressor with error feedback sees, and all of it for comparison."""
        gradient = np.load(self.accumulator)
        out = np.empty_like(gradient)
        whole: dict[str, Callable[[], object]] = {
            "switchsum": lambda: self.comm.allreduce(out),
            "gloo": lambda: dist.all_reduce(torch.from_numpy(out)),
        }
        for name, call in whole.items():
            yield Way(f"accumulated: {name}, dense", call, prepare=lambda: np.copyto(out, gradient))
        for density in DENSITIES:
            k = round(self.values * density)
            yield Way(f"accumulated {density:.1%}: choosing, for all", partial(largest, gradient, k))
            yield from self._sparse(f"accumulated {density:.1%}", gradient, largest(gradient, k))
            for name, compressor in (("global top-k", GlobalTopK(density)), ("global block top-k", BlockTopK(density))):
                exchange = partial(compressor.exchange, self.comm, "gradient", gradient)
                yield Way(f"accumulated {density:.1%}: switchsum, {name}", exchange)

    def _sparse(self, name: str, gradient: Array, chosen: npt.NDArray[np.int64]) -> Iterator[Way]:
        comm, peers, size = self.comm, self.peers, self.values
        values = gradient[chosen]
        own = Stream(chosen.astype(np.uint32), values)
        totals: list[SparseSum | Stream | Array] = []

        def check() -> None:
            """Compare with the first result."""
            sums = [total if isinstance(total, np.ndarray) else total.values for total in (totals[0], totals[-1])]
            first, last = (float(np.abs(values.astype(np.float64)).sum()) for values in sums)
            np.testing.assert_allclose(last, first, rtol=1e-4)
            del totals[1:]

        ok = OkTopk(peers, size, len(chosen))
        ours = partial(comm.allreduce_sparse, chosen, values, size)
        yield Way(f"{name}: switchsum", lambda: totals.append(ours()), check=check)
        yield Way(f"{name}: switchsum, as many sums kept", partial(ours, keep=len(chosen)))
        yield Way(f"{name}: switchsum, int8 lanes", partial(ours, lanes="int8"))
        doubling = partial(sparcml_doubling, peers, own, size)
        yield Way(f"{name}: SparCML doubling", lambda: totals.append(doubling()), check=check)
        yield Way(f"{name}: SparCML split", partial(sparcml_split, peers, own, size))
        yield Way(f"{name}: Ok-Topk", partial(ok.allreduce, own))

    def normal(self, seed: int) -> Array:
        """Return this rank's gradient of normal values."""
        return np.random.default_rng([self.comm.rank, seed]).standard_normal(self.values, np.float32)

    def measure(self, way: Way) -> dict[str, Any]:
        """Return the seconds of each run, and the bytes of the last one."""
        warm = self._once(way)[0]
        runs = [self._once(way) for _ in range(next(runs for most_s, runs in RUNS if warm <= most_s))]
        return {"way": way.name, "seconds": [run[0] for run in runs], "up": runs[-1][1], "down": runs[-1][2]}

    def _once(self, way: Way) -> tuple[float, int, int]:
        way.prepare()
        self.comm.barrier()
        sent, received = peer_links.bytes_so_far()
        started = time.perf_counter()
        way.call()
        seconds = np.array([time.perf_counter() - started])
        up, down = peer_links.bytes_so_far()
        way.check()
        moved = self.comm.allreduce(np.array([up - sent, down - received])) // self.comm.world_size
        return float(self.comm.allreduce(seconds, "max")[0]), int(moved[0]), int(moved[1])


def main() -> None:
    """Measure every way of a group; rank 0 writes them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", required=True)
    parser.add_argument("--mtu", type=int, required=True)
    parser.add_argument("--values", type=int, required=True)
    parser.add_argument("--group", choices=GROUPS, required=True)
    parser.add_argument("--gradients", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with switchsum.connect() as comm:
        rank, ranks = comm.rank, comm.world_size
        if rank == 0:
            peer_links.make_bridge()
        comm.barrier()
        peer_links.lay(rank, options.rate, options.mtu)
        comm.barrier()
        os.environ["GLOO_SOCKET_IFNAME"] = peer_links.INTERFACE
        store = dist.TCPStore(peer_links.address(0), PORT, ranks, rank == 0)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
        kept = gradients.path(ranks, options.values, rank, steps=options.steps, folder=options.gradients)
        bench = Bench(comm, GlooPeers(), options.values, kept)
        rows: list[dict[str, Any]] = []
        for way in getattr(bench, options.group)():
            rows.append({"group": options.group, **bench.measure(way)})
            if rank == 0:
                seconds = float(np.median(rows[-1]["seconds"]))
                up, down = rows[-1]["up"] / 1e6, rows[-1]["down"] / 1e6
                sys.stdout.write(f"{way.name:50} {seconds:8.3f} s {up:8.2f} MB up {down:8.2f} MB down\n")
                sys.stdout.flush()
        comm.barrier()
        dist.destroy_process_group()
        if rank == 0:
            options.out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
