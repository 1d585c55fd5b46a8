"""One rank of the training benchmark: the examples' steps, timed; rank 0 writes what came out as JSON.

`python -m checks.bench.train_worker BACKEND STEPS PATH EXAMPLE...`; behind an example and a colon stand the ways to
train it, with commas between them, in place of `WAYS`.
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
from checks.bench.train import BUSY, WAYS

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


GLOO_WAYS = ("plain", "bf16")


def hook_of(way: str) -> Hook | None:
    """Return the hook to train with; a way without a meaning of its own is a name of `switchsum.torch.compress`."""
    own: dict[str, Callable[[], Hook | None]] = {
        "plain": lambda: None,
        "bf16": lambda: bf16_compress_hook,
        "after": AfterTheBackwardPass,
        "alone": lambda: without_communication,
    }
    if way in own:
        return own[way]()
    from switchsum.torch.compression import compressor_of
    from switchsum.torch.hooks import compressed

    return compressed(compressor_of(way))


def interface_bytes() -> tuple[int, int]:
    """Return what this rank's interface has sent and received so far; on loopback all ranks', divided among them."""
    name = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        interface, _, counters = line.partition(":")
        if interface.strip() == name:
            ranks = dist.get_world_size() if name == "lo" else 1
            return int(counters.split()[8]) // ranks, int(counters.split()[0]) // ranks
    return 0, 0


def switch_bytes() -> tuple[int, int]:
    """Return what this rank's communicator has sent and received so far."""
    import switchsum.torch

    counts = switchsum.torch.statistics().switch
    return (0, 0) if counts is None else (counts.bytes_sent, counts.bytes_received)


def processor_times() -> tuple[int, int]:
    """Return for how long this machine's cores have worked so far, and for how long they could have: proc(5), stat."""
    all_cores, *_ = Path("/proc/stat").read_text().splitlines()
    user, nice, system, idle, wait, *interrupts = map(int, all_cores.split()[1:8])
    worked = user + nice + system + sum(interrupts)
    return worked, worked + idle + wait


def lanes() -> int:
    """Return how many lanes the frames of this rank's job have."""
    group: Any = dist.group.WORLD
    return int(group.connect().lanes_per_frame) if dist.get_backend() == "switchsum" else 0


def measure(name: str, steps: int, hook: Hook | None, count: Callable[[], tuple[int, int]]) -> Result:
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


def timed(training: Iterator[float], steps: int, count: Callable[[], tuple[int, int]]) -> Result:
    """Let a training take its steps; return the milliseconds of each, their median, and the mean bytes of one."""
    for _ in range(WARM_UP):
        next(training)
    dist.barrier()
    before, busy_before, times = count(), processor_times(), [time.perf_counter()]
    for _ in range(steps):
        next(training)
        times.append(time.perf_counter())
    up, down = ((now - then) / steps for then, now in zip(before, count(), strict=True))
    worked, could = (now - then for then, now in zip(busy_before, processor_times(), strict=True))
    *_, score = training
    pauses = [(end - begin) * 1e3 for begin, end in pairwise(times)]
    return {
        "steps": pauses,
        "ms": statistics.median(pauses),
        "bytes": up,
        "bytes down": down,
        BUSY: worked / could if could else 0.0,
        "score": score,
        "lanes": lanes(),
    }


def main() -> None:
    """Measure every example in every way."""
    backend, steps, path, *examples = sys.argv[1:]
    sys.path.insert(0, str(EXAMPLES))
    dist.init_process_group(backend)
    count = interface_bytes if backend == "gloo" else switch_bytes
    results = {}
    for example in examples:
        name, _, wanted = example.partition(":")
        for way in wanted.split(",") if wanted else GLOO_WAYS if backend == "gloo" else WAYS:
            results[f"{name}.{way}"] = measure(name, int(steps), hook_of(way), count)
            dist.barrier()
    if backend != "gloo" and "layers" in examples:
        training = layers.train_scheduled(WARM_UP + int(steps))
        results["layers.in-order"] = timed(training, int(steps), count)
    if dist.get_rank() == 0:
        Path(path).write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
