"""Outer steps that go on without ranks that are late: who takes part in one, and what those do who were absent.

An outer step has an operation with a quorum.  Operations are numbered, and a rank that is late joins the next one that
begins.  That may be several outer steps ahead of its own: it then takes those that it has missed, with the averages of
those who took part, and counts its inner steps as they do.  If these are not kept any more, it gets the outer
parameters, and what the outer optimizer keeps.  What it has learned meanwhile stays in its own parameters, so it is
part of the next average that this rank takes part in.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TypedDict

import numpy as np
import torch

from switchsum.torch.averaging import Average, Here
from switchsum.torch.fragments import Fragment, UnderWay
from switchsum.torch.group import SwitchGroup
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.missed import Values
from switchsum_host.api.quorum import Agreed, terms_of
from switchsum_host.api.record import Record
from switchsum_protocol.errors import UsageError


class OuterTerms(TypedDict, total=False):
    """On which terms outer steps go on without ranks; nothing: they do not."""

    quorum: float
    """Least share of the ranks that take part, above 0 and up to 1."""
    patience_s: float
    """Seconds to wait for the others."""


class OuterQuorum:
    """One rank's agreements on who takes part in outer steps."""

    def __init__(
        self,
        average: Average,
        fragments: Sequence[Fragment],
        following: Callable[[int], tuple[int, Fragment]],
        record: Callable[[Fragment, int], Record],
        *,
        quorum: float | None = None,
        patience_s: float | None = None,
    ) -> None:
        """`following` returns the inner step after a given one at which an outer step begins, and its fragment.

        `record` returns what ranks must have alike in a fragment's outer step after an inner one.

        Raises UsageError for terms that make no sense, and for groups and compressors that cannot go on without ranks.
        """
        self._terms = terms_of(quorum, patience_s)
        self._average, self._fragments, self._following = average, fragments, following
        self._record = record
        if not isinstance(average.group, SwitchGroup | Communicator):
            raise UsageError("outer steps with a quorum need the backend 'switchsum', or a communicator")
        if shared := average.must_be_alike:
            raise UsageError(
                f"outer steps with a quorum need a compressor that keeps nothing which all ranks must have alike; this "
                f"one keeps {', '.join(sorted(shared))}: use int10, topk or another one without"
            )
        self.boundary = 0
        """The inner step of the latest outer step."""
        self.last: Agreed | None = None
        """The agreement that ended the training, once there was one."""

    @property
    def communicator(self) -> Communicator:
        """Of all ranks."""
        group = self._average.group
        return group if isinstance(group, Communicator) else group.connect()

    def take_step(self) -> bool:
        """Take an outer step with those who are there; return False if the others end the training instead."""
        agreed = self._agree(is_whole=False)
        if agreed.is_whole:
            self.last = agreed
            return False
        self.boundary, fragment = self._following(self.boundary)
        quorums = self.communicator.quorums
        with quorums.among(agreed.ranks):
            with self._average.among(_communicator_of(agreed)):
                fragment.begin(self._average, self.boundary, 0, self._record(fragment, self.boundary))
            assert fragment.under_way is not None
            means = fragment.under_way.means
            fragment.under_way.work.wait()
        flat = np.concatenate([one.detach().cpu().reshape(-1).numpy() for one in means])
        quorums.finish(agreed, flat, self._terms.keep)
        fragment.apply()
        return True

    def end(self) -> Communicator:
        """Wait for all ranks that are not gone, which then have taken the same steps; return their communicator."""
        agreed, self.last = self.last or self._agree(is_whole=True), None
        return _communicator_of(agreed)

    @property
    def record(self) -> Record:
        """What ranks must have alike in all outer steps."""
        fragments = self._fragments
        step = self._record(fragments[0], 0)
        return Record(
            title=f"{len(fragments)} fragments and {type(fragments[0].optimizer).__name__}",
            facts={"settings": step.facts["settings"], "names": [one.names for one in fragments]},
        )

    def give(self) -> list[Values]:
        """Return what is the same on all ranks between outer steps."""
        written = io.BytesIO()
        torch.save({"boundary": self.boundary, "fragments": [one.shared() for one in self._fragments]}, written)
        return [np.frombuffer(written.getbuffer(), np.uint8)]

    def take(self, arrays: list[Values]) -> None:
        """Stand where another rank stands; what this rank has learned since its latest outer step stays."""
        state = torch.load(io.BytesIO(arrays[0].tobytes()), map_location="cpu", weights_only=True)
        for fragment, given in zip(self._fragments, state["fragments"], strict=True):
            begun_at = [one.detach().clone() for one in fragment.outer]
            fragment.take(given)
            for own, outer, before in zip(fragment.own(), fragment.outer, begun_at, strict=True):
                own.copy_(outer.detach() + (own - before))
        self.boundary = state["boundary"]

    def _agree(self, *, is_whole: bool) -> Agreed:
        """Agree, and take the steps that this rank has missed."""
        quorums = self.communicator.quorums
        quorums.give_model(self)
        agreed = quorums.agree(self._terms, is_whole=is_whole)
        for missed in quorums.take_missed():
            self.boundary, fragment = self._following(self.boundary)
            _take_missed(fragment, self.boundary, torch.from_numpy(missed.array))
        return agreed


def _communicator_of(agreed: Agreed) -> Communicator:
    assert isinstance(agreed.communicator, Communicator)
    return agreed.communicator


def _take_missed(fragment: Fragment, step: int, means: torch.Tensor) -> None:
    """Take an outer step with others' average; what this rank has learned since the one before stays."""
    sizes = [one.numel() for one in fragment.outer]
    if sum(sizes) != means.numel():
        raise UsageError("a missed outer step is of another model: all ranks have the same one, and the same fragments")
    given = [
        part.reshape(outer.shape).to(outer) for part, outer in zip(means.split(sizes), fragment.outer, strict=True)
    ]
    begun_at = [outer.detach().clone() for outer in fragment.outer]
    fragment.latest = step
    fragment.under_way = UnderWay(due=step, work=Here(), means=given, begun_at=begun_at)
    fragment.apply()
