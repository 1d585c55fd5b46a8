"""Trainings that synchronise every so many steps, as real ranks' optimizers do it, each rank a thread of this process.

`switchsum.torch.DiLoCo` over a switch or over gloo, and torch's own post-local SGD; what is learned does not depend on
how busy this machine is, and bytes are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from checks.lab import torchft_ranks
from checks.lab.convergence import moved
from checks.lab.convergence_results import RANKS
from checks.lab.convergence_tasks import Task
from checks.lab.convergence_ways import TCP_HEADERS
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import communicators
from switchsum_host.api.communicator import Communicator

LANES: Final = 2048
TIMEOUT_S: Final = 600.0
WARM_UP: Final = 20
"""Steps in which post-local SGD averages gradients, a twentieth of a training."""


class Synchronised(Protocol):
    """What keeps a rank's model near the others'."""

    def finish(self) -> None:
        """Give all ranks the same model."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OuterWay:
    """A way of synchronising a model now and then."""

    every: int
    fragments: int = 1
    delay: int = 0
    how: str | None = None
    """What outer gradients are compressed with; None: float32."""
    is_local: bool = False
    """LocalSGD in the place of DiLoCo."""
    is_ring: bool = False
    """Over gloo."""
    has_warm_up: bool = False
    """torch's post-local SGD, which is LocalSGD over gloo after steps with averaged gradients."""
    is_torchft: bool = False
    """torchft's own DiLoCo; its group is gloo's."""

    def make(self, model: Any, optimizer: Any, group: Any) -> Synchronised:
        """Return what synchronises a rank's model when its optimizer has stepped."""
        from switchsum.torch import DiLoCo, LocalSGD

        if self.is_torchft:
            return torchft_ranks.DiLoCo(model, optimizer, group, self.every)
        if self.has_warm_up:
            return PostLocal(model, optimizer, group, self.every)
        if self.is_local:
            return LocalSGD(model, optimizer, every=self.every, how=self.how, group=group)
        return DiLoCo(
            *(model, optimizer),
            every=self.every,
            fragments=self.fragments,
            delay=self.delay,
            how=self.how,
            group=group,
        )


class PostLocal:
    """torch's own: `post_localSGD_hook` averages gradients at first, then `PeriodicModelAverager` parameters.

    The hook needs a DistributedDataParallel, of which one process has only one rank; so gradients are averaged here.
    """

    def __init__(self, model: Any, optimizer: Any, group: Any, every: int) -> None:
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

        self._model, self._group = model, group
        self._averager = PeriodicModelAverager(every, warmup_steps=WARM_UP, process_group=group)
        self._step = 0
        optimizer.register_step_pre_hook(lambda *_: self._average_gradients())
        optimizer.register_step_post_hook(lambda *_: self._averager.average_parameters(self._model.parameters()))

    def _average_gradients(self) -> None:
        from switchsum.torch import Average

        self._step += 1
        if self._step <= WARM_UP:
            Average(None, self._group)([one.grad for one in self._model.parameters()])

    def finish(self) -> None:
        """See `Synchronised`."""
        from switchsum.torch import Average

        Average(None, self._group)([one.data for one in self._model.parameters()])


OUTER: Final[Mapping[str, OuterWay]] = MappingProxyType(
    {
        "gloo, post-local SGD 10": OuterWay(every=10, is_local=True, is_ring=True, has_warm_up=True),
        "gloo, DiLoCo 10": OuterWay(every=10, is_ring=True),
        "gloo, DiLoCo 50": OuterWay(every=50, is_ring=True),
        "gloo, streaming 50": OuterWay(every=50, fragments=2, delay=12, is_ring=True),
        "gloo, streaming 50 in 4": OuterWay(every=50, fragments=4, delay=12, is_ring=True),
        "gloo, torchft DiLoCo 50": OuterWay(every=50, is_ring=True, is_torchft=True),
        "LocalSGD 10, int10": OuterWay(every=10, is_local=True, how="int10"),
        "DiLoCo 10": OuterWay(every=10),
        "DiLoCo 10, int10": OuterWay(every=10, how="int10"),
        "DiLoCo 50, int10": OuterWay(every=50, how="int10"),
        "streaming 50, int10": OuterWay(every=50, fragments=2, delay=12, how="int10"),
        "streaming 50 in 4, int10": OuterWay(every=50, fragments=4, delay=12, how="int10"),
    }
)


def train_outer(task: Task, way: OuterWay, seed: int, steps: int, ranks: int = RANKS) -> dict[str, Any]:
    """Train; return the losses, mean over ranks, the bytes of a step each way, and the accuracy in the end."""
    import torch

    torch.set_num_threads(1)
    groups = _ranks_of(way, ranks)
    trainings = [task.make(seed, ranks) for _ in range(ranks)]
    with ThreadPoolExecutor(ranks) as pool:

        def on_all(function: Callable[[int], Any]) -> list[Any]:
            return list(pool.map(function, range(ranks)))

        made: Sequence[Synchronised] = on_all(
            lambda rank: way.make(trainings[rank].model, trainings[rank].optimizer, groups[rank])
        )

        def step(rank: int) -> float:
            training = trainings[rank]
            training.optimizer.zero_grad()
            loss = training.loss(training.model, rank)
            loss.backward()
            training.optimizer.step()
            return float(loss.item())

        before = _counted(groups[0])
        losses = [round(float(np.mean(on_all(step))), 4) for _ in range(steps)]
        on_all(lambda rank: _settle(made[rank]))
        count = _moved(way, groups[0], trainings[0].model, steps) - before
        on_all(lambda rank: made[rank].finish())
        for group in groups:
            if isinstance(group, Communicator | torchft_ranks.Rank):
                group.close()
    size = sum(one.numel() for one in trainings[0].model.parameters())
    run = {"losses": losses, "up": float(count[0]) / steps, "down": float(count[1]) / steps, "parameters": size}
    measure = trainings[0].accuracy
    return run if measure is None else {**run, "accuracy": round(measure(trainings[0].model), 4)}


def _settle(synchronised: Synchronised) -> None:
    """Wait for averages that are under way, whose bytes count."""
    from switchsum.torch import DiLoCo

    if isinstance(synchronised, DiLoCo):
        synchronised.state_dict()


def _ranks_of(way: OuterWay, ranks: int) -> list[Any]:
    """Return what each rank reaches the others through."""
    if way.is_torchft:
        return list(torchft_ranks.ranks(ranks, TIMEOUT_S))
    return _gloo(ranks) if way.is_ring else _switched(ranks)


def _switched(ranks: int) -> list[Any]:
    config = ClusterConfig(workers=ranks, lanes_per_frame=LANES, window_slots=32, timeout_s=TIMEOUT_S)
    return list(communicators(ranks, config=config))


def _gloo(ranks: int) -> list[Any]:
    import torch
    import torch.distributed as dist

    store = dist.HashStore()

    def make(rank: int) -> Any:
        group, kind = dist.ProcessGroup(store, rank, ranks), dist.ProcessGroup.BackendType.GLOO
        backend = dist.ProcessGroupGloo(store, rank, ranks, timedelta(seconds=TIMEOUT_S))
        group._register_backend(torch.device("cpu"), kind, backend)
        group._set_default_backend(kind)
        return group

    with ThreadPoolExecutor(ranks) as pool:  # they wait for one another
        return list(pool.map(make, range(ranks)))


def _counted(group: Any) -> npt.NDArray[np.float64]:
    """Return how many bytes a rank of ours has sent and received."""
    return np.array(moved(group)) if isinstance(group, Communicator) else np.zeros(2)


def _moved(way: OuterWay, group: Any, model: Any, steps: int) -> npt.NDArray[np.float64]:
    """Return how many bytes a rank has sent and received, over gloo those that a ring of its ranks moves."""
    if isinstance(group, Communicator):
        return _counted(group)
    ranks = group.size()
    whole = 4 * sum(one.numel() for one in model.parameters()) * 2 * (ranks - 1) / ranks * (1 + TCP_HEADERS)
    times = WARM_UP + (steps - WARM_UP) // way.every if way.has_warm_up else steps / way.every
    return np.full(2, whole * times)
