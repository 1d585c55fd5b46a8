"""Do compressed trainings learn: `python -m checks.bench.convergence` trains, `--publish` writes docs/convergence.md.

Three small models, three seeds, each way of averaging gradients.  One process plays four ranks: it computes the ranks'
gradients one after the other, and threads exchange them through workers' engines and a switch (ours), or around gloo's
ring, added as gloo adds.  So what is learned is what ranks on machines of their own would learn, bit for bit, and how
busy this machine is changes no figure: bytes are counted, and times are modelled from them (see the page).
What has been trained is kept in a file, and not trained again.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from checks.bench.accuracy import around_a_ring
from checks.bench.convergence_tasks import TASKS, Floats, Played, Task
from switchsum.host.api.communicator import Communicator
from switchsum.host.compress import ErrorFeedback, PowerSgd
from switchsum.protocol.errors import UsageError
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import communicators

RANKS: Final = 4
LANES: Final = 2048
"""32-bit lanes in a frame, of an MTU of 9,000."""
SEEDS: Final = (1, 2, 3)
RESULTS: Final = Path(__file__).parent / "results" / "convergence.json"
TCP_HEADERS: Final = 66 / 8948
"""Bytes of headers for each byte that gloo sends, Ethernet to TCP, with an MTU of 9,000."""


class Ring:
    """Ranks that add arrays as gloo's ring does."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks, timeout=600)
        self.given: list[Any] = [None] * ranks
        self.total: Any = None


class RingRank:
    """A rank of a ring, and how much it has moved."""

    def __init__(self, ring: Ring, rank: int, world_size: int) -> None:
        self._ring = ring
        self.rank = rank
        self.world_size = world_size
        self.moved = 0.0
        """Bytes that it has sent, and has received."""

    def allreduce(self, array: Any, op: str = "sum", *, lanes: str = "int32") -> Any:
        """Add arrays, in place."""
        self.moved += 2 * (self.world_size - 1) / self.world_size * array.nbytes * (1 + TCP_HEADERS)
        self._ring.given[self.rank] = array
        if self._ring.barrier.wait() == 0:
            self._ring.total = around_a_ring([one.reshape(-1) for one in self._ring.given])
        self._ring.barrier.wait()
        total = self._ring.total.reshape(array.shape)
        array[...] = total / array.dtype.type(self.world_size) if op == "average" else total
        self._ring.barrier.wait()
        return array

    def allreduce_sparse(self, *_: Any, **__: Any) -> Any:
        """Refuse: gloo adds no sparse arrays in place."""
        raise UsageError("a ring adds dense arrays")


Average = Callable[[Any, Sequence[Any], Floats], Floats]
"""Averages a rank's gradient with the others', by its door to them and the parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way of averaging gradients."""

    make: Callable[[], Average]
    """Return what a rank averages with."""
    is_ring: bool = False


def _by_name(how: str) -> Way:
    """Return one of those that `switchsum.torch.compress` knows."""

    def make() -> Average:
        from switchsum.torch.compression import compressor_of
        from switchsum.torch.hooks import NarrowLanes

        compressor: Any = NarrowLanes("int32") if how == "dense" else compressor_of(how)

        def average(door: Any, parts: Sequence[Any], values: Floats) -> Floats:
            begun = compressor.begin_parts(door, parts, values)
            for handle in begun.handles:
                handle.wait()
            mean: Floats = begun.finish()
            return mean

        return average

    return Way(make=make)


def _whole(door: Any, parts: Sequence[Any], values: Floats) -> Floats:
    mean: Floats = door.allreduce(values.copy(), "average")
    return mean


def _half(door: Any, parts: Sequence[Any], values: Floats) -> Floats:
    """Do what torch's fp16_compress_hook does."""
    shares = values.astype(np.float16) / np.float16(door.world_size)
    mean: Floats = door.allreduce(shares).astype(np.float32)
    return mean


def _power() -> Average:
    compressor = ErrorFeedback(PowerSgd(4))
    return lambda door, parts, values: compressor.exchange_parts(door, parts, values).mean


WAYS: Final[Mapping[str, Way]] = MappingProxyType(
    {
        "gloo": Way(make=lambda: _whole, is_ring=True),
        "gloo, fp16 hook": Way(make=lambda: _half, is_ring=True),
        "gloo, PowerSGD 4": Way(make=_power, is_ring=True),
        "dense": _by_name("dense"),
        "int16": _by_name("int16"),
        "int10": _by_name("int10"),
        "int8": _by_name("int8"),
        "topk:0.01": _by_name("topk:0.01"),
        "topk:0.01+keep": _by_name("topk:0.01+keep"),
        "blocktopk:0.05": _by_name("blocktopk:0.05"),
        "powersgd:4": _by_name("powersgd:4"),
    }
)


def train(task: Task, way: Way, seed: int, steps: int, ranks: int = RANKS) -> dict[str, Any]:
    """Train; return the losses, the bytes of a step each way, and the time of a rank's gradient."""
    played = Played(task, seed, ranks)
    ring = Ring(ranks)
    doors: list[Any] = (
        [RingRank(ring, rank, ranks) for rank in range(ranks)]
        if way.is_ring
        else list(
            communicators(
                ranks, config=ClusterConfig(workers=ranks, lanes_per_frame=LANES, window_slots=32, timeout_s=600)
            )
        )
    )
    averages = [way.make() for _ in doors]
    losses = []
    with ThreadPoolExecutor(ranks) as pool:
        for _ in range(steps):
            gradients, loss = played.gradients()
            losses.append(round(loss, 4))
            means = list(
                pool.map(
                    lambda rank, given=gradients: averages[rank](doors[rank], played.parts, given[rank]), range(ranks)
                )
            )
            played.step(means[0])
    up, down = moved(doors[0])
    for door in doors:
        if isinstance(door, Communicator):
            door.close()
    return {
        "losses": losses,
        "up": up / steps,
        "down": down / steps,
        "gradient_s": played.fastest_s,
        "parameters": played.size,
    }


def moved(door: Any) -> tuple[float, float]:
    """Return how many bytes a rank has sent and received, without frames that were repeated for a busy machine."""
    if isinstance(door, RingRank):
        return door.moved, door.moved
    counts = door.statistics()
    once = 1 - counts.repeats / max(1, counts.frames_sent)
    again = counts.held + counts.duplicate_frames + counts.stale_frames
    return counts.bytes_sent * once, counts.bytes_received * (1 - again / max(1, counts.frames_received))


def known(path: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return what has been trained."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def measure(tasks: Sequence[str], ways: Sequence[str], seeds: Sequence[int], steps: int | None) -> None:
    """Train what has not been trained; seeds come last, so that there is one of everything soon."""
    results = known()
    for seed in seeds:
        for task in tasks:
            for way in ways:
                name, count = f"{task}/{way}/{seed}", steps or TASKS[task].steps
                if name in results and len(results[name]["losses"]) == count:
                    continue
                results[name] = train(TASKS[task], WAYS[way], seed, count)
                last = float(np.mean(results[name]["losses"][-10:]))
                sys.stdout.write(f"{name}: loss {last:.3f}, {results[name]['down'] / 1e3:.0f} kB a step\n")
                sys.stdout.flush()
                RESULTS.parent.mkdir(exist_ok=True)
                RESULTS.write_text(
                    json.dumps(results, indent=None, separators=(",", ":")).replace('},"', '},\n"') + "\n"
                )


def main() -> None:
    """Train, and publish."""
    parser = argparse.ArgumentParser(prog="python -m checks.bench.convergence", description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=tuple(TASKS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=tuple(WAYS))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, help="of each training (default: as many as the page has)")
    parser.add_argument("--publish", action="store_true", help="write docs/convergence.md and its plots afterwards")
    options = parser.parse_args()
    measure(options.tasks, options.ways, options.seeds, options.steps)
    if options.publish:
        from checks.bench.convergence_page import publish

        publish(known())


if __name__ == "__main__":
    main()
