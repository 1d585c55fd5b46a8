"""Ranks of which one is delayed in each step, inside its backward pass; who is named is compared with who it was.

    delayed.py FILE computing|sleeping SEED [MS ...]

The layers of a model compute, or sleep where a machine has fewer cores than ranks.  First nobody is delayed, which
shows by how much ranks differ anyway.  Then there are 100 steps for each delay, with a rank and a layer of chance in
each step, and 100 in which they stay.  The last delay is at least three times that difference.  Rank 0 writes what
it found.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from switchsum.view.late import COMPUTES, find_late, more_said, said, steps_of
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.reports import JobCalls

LAYERS, ROWS, STEPS, UNDISTURBED = 4, 256, 100, 40
WIDTHS = {"computing": 512, "sleeping": 96}
"""Of layers. Those that sleep are small, so that ranks do not wait for the cores that move their gradients."""
SLEEP_S = 0.01
"""Of a layer that sleeps in place of computing. Reports leave calls out where there are more than 128 a second."""
FORGET_S = 15.0
"""Until figures of the last seconds have none of the steps before."""


class Model(nn.Module):
    """Layers of one size, of which each is a bucket, with a delay before the gradient of one of them."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        width = WIDTHS[mode]
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(LAYERS))
        self.sleeps = mode == "sleeping"
        self.layer, self.delay_s = 0, 0.0

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for place, layer in enumerate(self.layers):
            values = layer(values)
            values.register_hook(self.before(place))
            values = torch.tanh(values)
        return values.square().mean()

    def before(self, place: int) -> Callable[[torch.Tensor], None]:
        """Return what is called before a layer's gradient is computed."""

        def rest(_: torch.Tensor) -> None:
            time.sleep(SLEEP_S * self.sleeps + self.delay_s * (place == self.layer))

        return rest


class Job:
    """One rank, and what the controller knows of all."""

    def __init__(self, mode: str) -> None:
        self.model, width = Model(mode), WIDTHS[mode]
        self.parallel = DistributedDataParallel(self.model, bucket_cap_mb=4 * width * width / 2**20)
        self.values = torch.randn(1 if mode == "sleeping" else ROWS, width)
        self.group: Any = dist.group.WORLD

    def play(self, plan: list[tuple[int, int]], delay_s: float) -> int:
        """Do a step for each pair of rank and layer; return the number of the first call."""
        first: int = self.group.connect().begun
        for rank, layer in plan:
            self.model.layer, self.model.delay_s = layer, delay_s * (rank == dist.get_rank())
            self.parallel(self.values).backward()
        return first

    def reported(self, first: int, calls: int) -> JobCalls:
        """Return what is known of all ranks' calls, once it is."""
        while True:
            with ControllerClient(os.environ["SWITCHSUM_CONTROLLER"]) as client:
                for job in client.list_jobs().jobs:
                    found = client.workers(rpc.JobRequest(job=job.job)).calls
                    if found.recent and found.recent[-1][0] == first + calls - 1:
                        rows = [row for row in found.recent if row[0] >= first]
                        return JobCalls(spans=found.spans, kinds=found.kinds, recent=rows)
            time.sleep(0.1)

    def on_rank_0(self, work: Callable[[], Any]) -> Any:
        """Return on all ranks what rank 0 finds while the others rest."""
        found = [work() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(found)
        return found[0]

    def hits(self, first: int, plan: list[tuple[int, int]]) -> int:
        """Return in how many steps the rank and the layer are found."""
        steps, period = steps_of(self.reported(first, LAYERS * len(plan)))
        named = {(one.number - first) / period: (one.rank, layer_of(one.kind)) for one in steps}
        return sum(named.get(float(step)) == culprit for step, culprit in enumerate(plan))


def layer_of(kind: str) -> int:
    """Return the layer that a kind of collective names."""
    return int(kind.partition("layers.")[2].partition(".")[0] or -1)


def main(path: str, mode: str, seed: str, *delays_ms: str) -> None:
    """Be a rank."""
    torch.set_num_threads(1)
    dist.init_process_group("switchsum")
    job, chance = Job(mode), random.Random(seed)
    job.play([(-1, 0)] * 12, 0.0)  # buckets are made anew, torch says which these are
    job.on_rank_0(lambda: time.sleep(1.5))
    first = job.play([(-1, 0)] * UNDISTURBED, 0.0)

    def spreads() -> list[float]:
        rows = job.reported(first, LAYERS * UNDISTURBED).recent
        return [quantile / 1e9 for quantile in statistics.quantiles((row[3] for row in rows), n=20)]

    spread = job.on_rank_0(spreads)
    found: dict[str, Any] = {"median_spread_s": spread[9], "spread_s": spread[18], "delays": []}
    delays_s = [float(one) / 1e3 for one in delays_ms or ("0",)]
    for delay_s in [*delays_s[:-1], max(3 * spread[18], delays_s[-1])]:
        ranks, layers = range(dist.get_world_size()), range(LAYERS)
        plan = [(chance.choice(ranks), chance.choice(layers)) for _ in range(STEPS)]
        first = job.play(plan, delay_s)
        hits = job.on_rank_0(partial(job.hits, first, plan))
        stays = chance.choice(ranks), chance.choice(layers)
        time.sleep(FORGET_S)  # all of them: none waits for another
        first = job.play([stays] * STEPS, delay_s)

        def named(at: int = first) -> tuple[int, int, str]:
            late = find_late(job.reported(at, LAYERS * STEPS))
            if late is None:
                return -1, -1, "nobody"
            text = f"{said(late, f'rank {late.rank}')} {more_said(late, COMPUTES, None)}"
            return late.rank, layer_of(late.kind), text

        found["delays"].append({"delay_s": delay_s, "hits": hits, "stays": stays, "named": job.on_rank_0(named)})
    if dist.get_rank() == 0:
        Path(path).write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
