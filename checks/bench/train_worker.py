"""One rank of the training benchmark: the examples' steps, timed; rank 0 writes what came out as JSON.

`python -m checks.bench.train_worker BACKEND STEPS PATH EXAMPLE...`
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from checks.bench import layers

EXAMPLES = Path(__file__).parents[2] / "examples"
WARM_UP = 3
"""Steps that do not count: the first ones lay out buckets and load what is loaded when it is needed."""

SPECIAL: dict[str, dict[str, Any]] = {"": {}, "dense": {"sparse": False}, "small": {"size": layers.SMALL_BATCH}}

Result = dict[str, Any]
Hook = Callable[[object, dist.GradBucket], Future[torch.Tensor]]


def without_communication(state: object, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Leave each rank its own gradients."""
    done: Future[torch.Tensor] = Future()
    done.set_result(bucket.buffer())
    return done


class AfterTheBackwardPass:
    """Reduces nothing before the last bucket is there: what overlapping saves."""

    def __init__(self) -> None:
        self.__name__ = self.__qualname__ = "AfterTheBackwardPass"  # torch asks hooks for these
        self._held: list[tuple[torch.Tensor, Future[torch.Tensor]]] = []

    def __call__(self, state: object, bucket: dist.GradBucket) -> Future[torch.Tensor]:
        """Hold a bucket, or begin all of them."""
        future: Future[torch.Tensor] = Future()
        self._held.append((bucket.buffer(), future))
        if bucket.is_last():
            held, self._held = self._held, []
            for buffer, one in held:
                buffer.div_(dist.get_world_size())
                work = dist.all_reduce(buffer, async_op=True)
                work.get_future().add_done_callback(lambda done, one=one: one.set_result(done.value()[0]))
        return future


for _hook in (without_communication, AfterTheBackwardPass.__call__):  # torch compares annotations with the classes
    _hook.__annotations__.update({"bucket": dist.GradBucket, "return": Future[torch.Tensor]})


def ways(backend: str) -> dict[str, Hook | None]:
    """Return the hooks to train with."""
    if backend == "gloo":
        return {"plain": None, "bf16": bf16_compress_hook}
    from switchsum.torch import hooks

    return {
        "plain": None,
        "bf16": bf16_compress_hook,
        "after": AfterTheBackwardPass(),
        "alone": without_communication,
        "int16": hooks.compressed(hooks.NarrowLanes("int16")),
    }


def sent_bytes() -> int:
    """Return what this rank's interface has sent so far; on loopback all ranks', divided among them."""
    name = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        interface, _, counters = line.partition(":")
        if interface.strip() == name:
            return int(counters.split()[8]) // (dist.get_world_size() if name == "lo" else 1)
    return 0


def switch_bytes() -> int:
    """Return what this rank's communicator has sent so far."""
    import switchsum.torch

    counts = switchsum.torch.statistics().switch
    return 0 if counts is None else counts.bytes_sent


def lanes() -> int:
    """Return how many lanes the frames of this rank's job have."""
    group: Any = dist.group.WORLD
    return int(group._communicator.lanes_per_frame) if dist.get_backend() == "switchsum" else 0


def measure(name: str, steps: int, hook: Hook | None, count: Callable[[], int]) -> Result:
    """Train with a hook, or none; behind a dash the name says what is special."""
    name, _, special = name.partition("-")
    example = layers if name == "layers" else importlib.import_module(name)
    options = SPECIAL[special]

    def wrapped(model: torch.nn.Module, **options: Any) -> DistributedDataParallel:
        parallel = DistributedDataParallel(model, **options)
        if hook is not None:
            parallel.register_comm_hook(None, hook)
        return parallel

    example.DistributedDataParallel = wrapped  # type: ignore[attr-defined]
    return timed(example.train(WARM_UP + steps, **options), steps, count)


def timed(training: Iterator[float], steps: int, count: Callable[[], int]) -> Result:
    """Let a training take its steps; return the milliseconds of each, their median, and the mean bytes of one."""
    for _ in range(WARM_UP):
        next(training)
    dist.barrier()
    sent, times = count(), [time.perf_counter()]
    for _ in range(steps):
        next(training)
        times.append(time.perf_counter())
    taken = (count() - sent) / steps
    *_, score = training
    pauses = [(end - begin) * 1e3 for begin, end in pairwise(times)]
    return {"steps": pauses, "ms": statistics.median(pauses), "bytes": taken, "score": score, "lanes": lanes()}


def main() -> None:
    """Measure every example in every way."""
    backend, steps, path, *names = sys.argv[1:]
    sys.path.insert(0, str(EXAMPLES))
    dist.init_process_group(backend)
    count = sent_bytes if backend == "gloo" else switch_bytes
    results = {}
    for name in names:
        for way, hook in ways(backend).items():
            results[f"{name}.{way}"] = measure(name, int(steps), hook, count)
            dist.barrier()
    if backend != "gloo":
        training = layers.train_scheduled(WARM_UP + int(steps))
        results["layers.in-order"] = timed(training, int(steps), count)
    if dist.get_rank() == 0:
        Path(path).write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
