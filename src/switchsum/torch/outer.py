"""Training that synchronises every so many steps: DiLoCo, streamed in fragments or not, and LocalSGD.

Each rank trains a model of its own.  Beside it are outer parameters, the same on all ranks.  Their distance to a rank's
own parameters is the rank's outer gradient.  Every `every` steps the outer gradients are averaged over the ranks, and
an outer optimizer takes a step with the average (DiLoCo, arXiv 2311.08105).

The model is cut into fragments, which take their outer steps in turn.  An average may take `delay` steps, in which the
rank trains on (Streaming DiLoCo, arXiv 2501.18512).  That paper mixes the progress of these steps with the outer
parameters; here it is added to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Unpack

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from switchsum.torch.averaging import Average, Group, local, share
from switchsum.torch.compression import compressor_of
from switchsum.torch.elastic import ElasticGroup
from switchsum.torch.fragments import Fragment, MakeOptimizer, cut
from switchsum.torch.hooks import FLOATS, Compressor
from switchsum.torch.outer_quorum import OuterQuorum, OuterTerms
from switchsum.torch.records import Outer
from switchsum.torch.skipped import Watch, innermost
from switchsum_host.api.record import Record
from switchsum_protocol.errors import UsageError, WorkerLost

OUTER_RATE: Final = 0.7
OUTER_MOMENTUM: Final = 0.9
"""Both as in DiLoCo's paper, section 3.1, with Nesterov's momentum."""


def nesterov(parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
    """Return the outer optimizer that DiLoCo uses by default: SGD with Nesterov's momentum."""
    return torch.optim.SGD(parameters, OUTER_RATE, momentum=OUTER_MOMENTUM, nesterov=True)


def _replace(parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
    """Return the outer optimizer of LocalSGD, which takes the average of all ranks' parameters itself."""
    return torch.optim.SGD(parameters, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When which fragment takes its outer step."""

    every: int
    fragments: int
    delay: int

    def check(self) -> None:
        """Raise UsageError for what no training can have."""
        for name, value, least in (
            ("every", self.every, 1),
            ("fragments", self.fragments, 1),
            ("delay", self.delay, 0),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name} is a whole number from {least} on, not {value!r}")
        if self.fragments > self.every:
            raise UsageError(
                f"{self.fragments} fragments need every of at least {self.fragments} steps, not {self.every}"
            )
        if self.delay >= self.every:
            raise UsageError(
                f"a delay of {self.delay} steps reaches into the next outer step: choose a delay below "
                f"every={self.every}"
            )

    def offsets(self) -> list[int]:
        """Return after which inner step each fragment's first outer step begins."""
        return [(number + 1) * self.every // self.fragments for number in range(self.fragments)]

    def begins(self, fragment: Fragment, step: int) -> bool:
        """Return whether a fragment's outer step begins after an inner one."""
        is_new = fragment.latest < step
        return is_new and step >= fragment.offset and (step - fragment.offset) % self.every == 0

    def following(self, fragments: Sequence[Fragment], step: int) -> tuple[int, Fragment]:
        """Return the first inner step after a given one at which an outer step begins, and whose."""
        after = [(one.offset + max(0, (step - one.offset) // self.every + 1) * self.every, one) for one in fragments]
        return min(after, key=lambda pair: pair[0])


class DiLoCo:
    """Trains a model on each rank by itself and synchronises it every `every` steps, a fragment at a time.

    The loop stays as it is: outer steps happen within `inner.step()`.  All ranks take the same number of steps.  A step
    that a GradScaler skips counts.  The model is not wrapped in DistributedDataParallel; if it is (by Accelerate or
    Lightning), its averages of gradients are switched off.

    Outer parameters are bit-equal on all ranks, and after `finish` the model is.

    Example:
        >>> import torch
        >>> import switchsum.torch
        >>> from switchsum.testing import on_ranks
        >>> def train(comm):
        ...     model = torch.nn.Linear(2, 1)
        ...     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ...     diloco = switchsum.torch.DiLoCo(model, optimizer, every=5, group=comm)
        ...     for _ in range(20):
        ...         model(torch.randn(4, 2)).sum().backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
        ...     diloco.finish()
        ...     return model.weight.tolist()
        >>> first, second = on_ranks(2, train)
        >>> first == second
        True

    """

    def __init__(
        self,
        model: nn.Module,
        inner: torch.optim.Optimizer,
        outer: MakeOptimizer | None = None,
        *,
        every: int = 50,
        fragments: int = 2,
        how: str | Compressor | None = "int10",
        delay: int = 0,
        group: Group | ElasticGroup | None = None,
        **terms: Unpack[OuterTerms],
    ) -> None:
        """Give every rank rank 0's parameters and buffers, and have `inner` take outer steps.

        Args:
            model: Of float32, float16 or bfloat16 parameters; with FSDP2 each rank averages its shards.
            inner: The optimizer that the loop steps, over the model's parameters.
            outer: Returns an optimizer for parameters; None: SGD, rate 0.7, Nesterov's momentum 0.9.
            every: Inner steps between two outer steps of a fragment.
            fragments: How many parts of the model, of the same size, take their outer steps in turn, equally far apart.
                Parameters are cut between rows for that; with FSDP2 they stay whole.
            how: What outer gradients are compressed with, as in docs/compression.md; None: float32.
            delay: Inner steps that an average may take, while which the rank goes on; below `every`.
            group: The ranks that average: a process group, or a communicator of `switchsum.connect`.  None: all
                ranks.  With FSDP2 those that have the same shard.  Backends other than 'switchsum' need `how=None`.
                In an `ElasticGroup` ranks come and go.
            terms: `quorum`: take outer steps without ranks that are late, if at least this share of all takes part.
                Loop until `step` is what you want, for it counts the steps that others took without this rank: see
                docs/slow-ranks.md.  `patience_s`: seconds to wait for the others.  Neither: wait for all.

        Raises:
            UsageError: numbers that make no sense, or fewer rows of parameters than fragments.

        """
        self.schedule = Schedule(every=every, fragments=fragments, delay=delay)
        self.schedule.check()
        if outer is not None and not callable(outer):
            raise UsageError(f"outer is a function that returns an optimizer for parameters, not {outer!r}")
        if terms and (delay or isinstance(group, ElasticGroup)):
            raise UsageError("outer steps with a quorum have no delay, and no ElasticGroup: leave one of them out")
        self._elastic = group if isinstance(group, ElasticGroup) else None
        self._model = _without_averages(model)
        alike = partial(
            Outer,
            kind=type(self).__name__,
            every=every,
            fragments=fragments,
            delay=delay,
            quorum=terms.get("quorum"),
            patience_s=terms.get("patience_s"),
        )
        if self._elastic is None:
            self.average = Average(how, group)
            self._alike = alike(how=self.average.how)
            self._compare(self._alike.made(_facts_of(self._model)), "a training begins")
            share([*self._model.parameters(), *self._model.buffers()], self.average.group)
        elif isinstance(how, str):
            compressor_of(how)  # what is wrong shows before the others wait for this rank
        self.fragments = cut(self._model, self.schedule.offsets(), outer or nesterov)
        if self._elastic is not None:  # a new rank comes in here, when it is ready to train
            self.average = Average(how, self._elastic.communicator)
            self._alike = alike(how=self.average.how)
        self._quorum = (
            OuterQuorum(
                self.average,
                self.fragments,
                lambda step: self.schedule.following(self.fragments, step),
                self._record,
                **terms,
            )
            if terms
            else None
        )
        self.step = 0
        """Inner steps so far, with those that a GradScaler has skipped; in an `ElasticGroup` those of the rank that has
        come furthest.
        """
        if self._elastic is not None:
            self._do(self._join)
        self._hook = Watch(innermost(inner), self._after_step)

    @torch.no_grad()
    def finish(self) -> None:
        """Take the outer steps that are left, so that every rank has the same model; training may go on afterwards.

        Every rank calls it.  Buffers of floats, such as batches' statistics, are averaged, others are rank 0's.
        """
        self._do(self._finish)

    def remove(self) -> None:
        """Have the inner optimizer take no outer steps any more."""
        self._hook.remove()

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's state, for its checkpoint beside model and inner optimizer.

        Each rank has a checkpoint of its own, from the same step: models differ between outer steps.
        """
        return {
            "step": self.step,
            "fragments": [fragment.state_dict() for fragment in self.fragments],
            "average": self.average.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, bit for bit.

        Args:
            state: What `state_dict` has returned on this rank.

        Raises:
            UsageError: It is that of another model or number of fragments.

        """
        if len(state["fragments"]) != len(self.fragments):
            raise UsageError(f"the checkpoint has {len(state['fragments'])} fragments, not {len(self.fragments)}")
        for fragment, kept in zip(self.fragments, state["fragments"], strict=True):
            fragment.load_state_dict(kept)
        self.average.load_state_dict(state["average"])
        self.step = state["step"]
        if self._quorum is not None:
            self._quorum.boundary = max(fragment.latest for fragment in self.fragments)

    def _finish(self) -> None:
        if self._quorum is not None:
            there = self._quorum.end()
            self.step = int(there.allreduce(np.array([max(self.step, self._quorum.boundary)]), "max")[0])
            self._quorum.boundary = self.step
            with self.average.among(there):
                self._take_last_steps()
        else:
            self._compare(self._alike.finish(self.step), "a training ends")
            self._take_last_steps()

    def _compare(self, record: Record, about: str) -> None:
        """Compare a record with those of the other ranks; raises OperationMismatch on all if any has another one."""
        device = next((local(one).device for one in self._model.parameters()), torch.device("cpu"))
        self.average.compare(record, about, device)

    def _record(self, fragment: Fragment, step: int) -> Record:
        """Return what ranks must have alike in a fragment's outer step after an inner one.

        Before the first one, step 0, a rank that is late may lack results: its state is then another one.
        """
        place = next(index for index, one in enumerate(self.fragments) if one is fragment)
        outer = fragment.outer if step else ()
        return self._alike.step(step, place, fragment.steps + 1, fragment.optimizer, outer)

    def _take_last_steps(self) -> None:
        for fragment in self._under_way():
            fragment.apply()
        left = [fragment for fragment in self.fragments if fragment.latest < self.step]
        for fragment in left:
            fragment.begin(self.average, self.step, 0, self._record(fragment, self.step))
        for fragment in left:
            fragment.apply()
        for fragment in self.fragments:
            fragment.follow()
        buffers = [one for one in self._model.buffers() if one.numel()]
        group = self.average.group
        share([one for one in buffers if one.dtype not in FLOATS], group)
        Average(None, group)([one for one in buffers if one.dtype in FLOATS])

    def _under_way(self) -> list[Fragment]:
        """Return the fragments whose outer step was begun, in that order."""
        found = [(one.under_way.due, index) for index, one in enumerate(self.fragments) if one.under_way is not None]
        return [self.fragments[index] for _, index in sorted(found)]

    @torch.no_grad()
    def _after_step(self) -> None:
        self.step += 1
        self._do(self._outer_steps)

    def _outer_steps(self) -> None:
        """Take the outer steps that are due after an inner one, and begin others; twice is as good as once."""
        if self._quorum is not None:
            is_due = any(self.schedule.begins(fragment, self.step) for fragment in self.fragments)
            if is_due and self._quorum.last is None and self._quorum.take_step():
                self.step = self._quorum.boundary
            return
        self._apply_due()
        for fragment in self.fragments:
            if self.schedule.begins(fragment, self.step):
                self._begin(fragment, self.schedule.delay)
        self._apply_due()

    def _begin(self, fragment: Fragment, delay: int) -> None:
        fragment.begin(self.average, self.step, delay, self._record(fragment, self.step))
        if self._elastic is not None and fragment.under_way is not None:
            fragment.under_way.newcomers = self._elastic.ask()

    def _apply_due(self) -> None:
        for fragment in self._under_way():
            under_way = fragment.under_way
            if under_way is None or under_way.due > self.step:
                continue
            fragment.apply()
            if self._elastic is not None and under_way.newcomers is not None and under_way.newcomers.wait()[0]:
                self._elastic.take_in()
                self._level()

    def _do(self, what: Callable[[], None]) -> None:
        """Do what every rank does; in an `ElasticGroup` again without those that have died meanwhile."""
        is_whole = True
        while True:
            try:
                if not is_whole and self._elastic is not None:
                    self._elastic.leave_out()
                    self._level()
                    is_whole = True
                what()
                return
            except WorkerLost:
                if self._elastic is None:
                    raise
                is_whole = False

    @torch.no_grad()
    def _join(self) -> None:
        """Begin where the others are, in the midst of what they do after an inner step."""
        self._level()
        self._outer_steps()

    def _level(self) -> None:
        """Have all ranks of an `ElasticGroup` stand where that one stands which has come furthest.

        A new rank gets all from it.  One that was there keeps what it has learned since the latest outer step, unless
        the others have taken that without it.  Averages that were under way are begun again.
        """
        group = self._elastic
        assert group is not None
        self.average.move(group.communicator)
        root = group.furthest((sum(fragment.steps for fragment in self.fragments), self.step))
        state = group.give(self._standing(), root)
        is_new = self.step == 0
        for fragment, kept in zip(self.fragments, state["fragments"], strict=True):
            if is_new or fragment.steps != kept["steps"]:
                fragment.take(kept)
                fragment.follow()
            fragment.latest, fragment.under_way = kept["latest"], None
        if is_new:
            for own, given in zip(self._model.buffers(), state["buffers"], strict=True):
                own.copy_(given)
        self.step = state["step"]
        for fragment, due in zip(self.fragments, state["due"], strict=True):
            if due is not None:
                self._begin(fragment, max(0, due - self.step))

    def _standing(self) -> dict[str, Any]:
        """Return where this rank stands, for others to stand there, too."""
        return {
            "step": self.step,
            "fragments": [fragment.shared() for fragment in self.fragments],
            "due": [one.under_way.due if one.under_way is not None else None for one in self.fragments],
            "buffers": [one.clone() for one in self._model.buffers()],
        }


class LocalSGD(DiLoCo):
    """Trains a model on each rank by itself and averages the parameters every `every` steps (arXiv 1805.09767).

    That is DiLoCo with an outer optimizer that takes the average as it is.

    Example:
        >>> import torch
        >>> import switchsum.torch
        >>> from switchsum.testing import on_ranks
        >>> def train(comm):
        ...     model = torch.nn.Linear(2, 1)
        ...     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ...     local = switchsum.torch.LocalSGD(model, optimizer, every=2, group=comm)
        ...     for _ in range(4):
        ...         model(torch.randn(4, 2)).sum().backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
        ...     local.finish()
        ...     return model.weight.tolist()
        >>> first, second = on_ranks(2, train)
        >>> first == second
        True

    """

    def __init__(
        self,
        model: nn.Module,
        inner: torch.optim.Optimizer,
        *,
        every: int = 10,
        how: str | Compressor | None = "int10",
        group: Group | None = None,
    ) -> None:
        """Give every rank rank 0's parameters and buffers, and have `inner` average parameters.

        Args:
            model: As in `DiLoCo`.
            inner: As in `DiLoCo`.
            every: Steps between two averages.
            how: As in `DiLoCo`; None: float32.
            group: As in `DiLoCo`.

        Raises:
            UsageError: As `DiLoCo` raises it.

        """
        super().__init__(model, inner, _replace, every=every, fragments=1, how=how, group=group)


def _without_averages(model: nn.Module) -> nn.Module:
    """Return a model without DistributedDataParallel around it, which averages nothing any more."""
    if isinstance(model, DistributedDataParallel):
        model.require_backward_grad_sync = False  # as within its `no_sync`
        model.require_forward_param_sync = False  # buffers go with it
        module: nn.Module = model.module
        return module
    return model


def _facts_of(model: nn.Module) -> list[Any]:
    """Return what ranks must have alike in a model before it is shared: what its parameters and buffers are called."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return [[name, list(local(one).shape), str(one.dtype)] for name, one in named]
