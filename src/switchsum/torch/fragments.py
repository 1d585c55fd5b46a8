"""A model in fragments of the same size, each of which takes its outer steps by itself.

A large parameter is cut, so that all fragments take the link for equally long.  This changes no result, because the
outer optimizer works value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from switchsum.torch.averaging import Average, Here, Work, local
from switchsum_host.api.operation_queue import Handle
from switchsum_host.api.record import Record
from switchsum_protocol.errors import UsageError

MakeOptimizer = Callable[[Iterable[torch.Tensor]], torch.optim.Optimizer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A parameter of a model, or some of its rows."""

    name: str
    parameter: torch.Tensor
    rows: slice | None
    """Rows of the parameter. None: the whole parameter."""

    def own(self) -> torch.Tensor:
        """Return this rank's values, in the model's memory."""
        values = local(self.parameter)
        return values if self.rows is None else values[self.rows]


@dataclass(kw_only=True)
class UnderWay:
    """An average of outer gradients that was begun."""

    due: int
    """The step after which it is applied."""
    work: Work
    means: list[torch.Tensor]
    begun_at: list[torch.Tensor]
    """This rank's parameters when it was begun."""
    newcomers: Handle | None = None
    """Number of new ranks that wait, in an `ElasticGroup`."""


@dataclass(kw_only=True)
class Fragment:
    """Parameters that take their outer steps together."""

    pieces: list[Piece]
    """Pieces of the model's parameters."""
    outer: list[torch.Tensor]
    """The same on all ranks, in float32."""
    optimizer: torch.optim.Optimizer
    offset: int
    """First inner step after which an outer step begins. The next ones follow after `offset + every`, and so on."""
    latest: int = 0
    """The inner step after which the latest outer step was begun."""
    under_way: UnderWay | None = None
    steps: int = 0
    """Outer steps so far."""

    @property
    def names(self) -> list[str]:
        """Names of its pieces, the same on all ranks."""
        return [piece.name for piece in self.pieces]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(one.numel() for one in self.outer)

    def own(self) -> list[torch.Tensor]:
        """Return this rank's values of the parameters, in the model's memory."""
        return [piece.own() for piece in self.pieces]

    def begin(self, average: Average, step: int, delay: int, record: Record) -> None:
        """Begin an outer step, of which ranks must have a record alike."""
        own = self.own()
        gradients = [outer.detach() - one for outer, one in zip(self.outer, own, strict=True)]
        work = average.begin(gradients, self.names, record, waits=delay == 0)
        self.latest = step
        begun_at = [one.clone() for one in own]
        self.under_way = UnderWay(due=step + delay, work=work, means=gradients, begun_at=begun_at)

    def apply(self) -> None:
        """Take the outer step that was begun; what this rank has learned since then stays."""
        assert self.under_way is not None
        self.under_way.work.wait()
        under_way, self.under_way = self.under_way, None
        for outer, mean in zip(self.outer, under_way.means, strict=True):
            outer.grad = mean
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        for one, outer, begun_at in zip(self.own(), self.outer, under_way.begun_at, strict=True):
            one.copy_(outer.detach() + (one - begun_at))

    def shared(self) -> dict[str, Any]:
        """Return what is the same on all ranks between outer steps."""
        return {
            "names": self.names,
            "outer": [one.detach().clone() for one in self.outer],
            "optimizer": self.optimizer.state_dict(),
            "latest": self.latest,
            "steps": self.steps,
        }

    def take(self, state: Mapping[str, Any]) -> None:
        """Take over what is the same on all ranks; raises UsageError for another fragment's."""
        if list(state["names"]) != self.names:
            raise UsageError("the checkpoint was made with other fragments: use the same model and number of fragments")
        for one, kept in zip(self.outer, state["outer"], strict=True):
            one.detach().copy_(kept)
        self.optimizer.load_state_dict(state["optimizer"])
        self.latest, self.steps = state["latest"], state["steps"]

    def follow(self) -> None:
        """Set this rank's parameters to the outer ones."""
        for own, outer in zip(self.own(), self.outer, strict=True):
            own.copy_(outer)

    def state_dict(self) -> dict[str, Any]:
        """Return what the next outer step depends on; waits for an average that is under way."""
        state = self.shared()
        if self.under_way is not None:
            self.under_way.work.wait()
            state["under_way"] = {
                "due": self.under_way.due,
                "means": [one.clone() for one in self.under_way.means],
                "begun_at": [one.clone() for one in self.under_way.begun_at],
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; raises UsageError for another fragment's state."""
        self.take(state)
        kept = state.get("under_way")
        self.under_way = None if kept is None else UnderWay(work=Here(), **kept)


def cut(model: nn.Module, offsets: Sequence[int], make: MakeOptimizer) -> list[Fragment]:
    """Cut a model into a fragment for each offset, of the same size up to half a row; raises UsageError.

    Each has parameters that follow one another in the model.  The outer ones are theirs as they are.
    """
    named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    places = _places(named, len(offsets))
    parts: list[list[Piece]] = [[] for _ in offsets]
    for (name, one), own in zip(named, places, strict=True):
        ends = [0, *(np.flatnonzero(np.diff(own)) + 1).tolist(), len(own)]
        for begin, end in pairwise(ends):
            is_whole = end - begin == len(own)
            rows = None if is_whole else slice(begin, end)
            title = name if is_whole else f"{name}[{begin}:{end}]"
            parts[own[begin]].append(Piece(name=title, parameter=one, rows=rows))
    return [_fragment(pieces, offset, make) for pieces, offset in zip(parts, offsets, strict=True)]


def _places(named: Sequence[tuple[str, torch.Tensor]], count: int) -> list[npt.NDArray[np.int64]]:
    """Return for each parameter in which of `count` fragments its rows are."""
    rows = [_rows(one) for _, one in named]
    total = sum(rows)
    if total < count:
        raise UsageError(f"a model with {total} rows of parameters to train has no {count} fragments")
    widths = np.concatenate([np.full(own, one.numel() / own) for (_, one), own in zip(named, rows, strict=True)])
    ends = np.cumsum(widths)
    numbers = np.arange(total)
    # Where the middle of a row falls; but no fragment is skipped, and enough rows are left for those that follow.
    middles = ((ends - widths / 2) * count / ends[-1]).astype(np.int64)
    most = np.minimum(np.maximum(middles, count - total + numbers), numbers)
    return np.split(numbers + np.minimum.accumulate(most - numbers), np.cumsum(rows)[:-1])


def _rows(parameter: torch.Tensor) -> int:
    """Return into how many rows a parameter may be cut; one under FSDP2 stays whole, for ranks' shards differ."""
    can_be_cut = parameter.dim() > 0 and parameter.numel() > 0 and not hasattr(parameter, "to_local")
    return parameter.shape[0] if can_be_cut else 1


def _fragment(pieces: list[Piece], offset: int, make: MakeOptimizer) -> Fragment:
    """Return a fragment of some pieces."""
    outer: list[torch.Tensor] = [nn.Parameter(piece.own().float().clone()) for piece in pieces]
    return Fragment(pieces=pieces, outer=outer, optimizer=make(outer), offset=offset)
