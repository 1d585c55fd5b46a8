"""Sums of floats of which each has an exponent of its own: the same bits however arrays are cut into frames and calls.

Two operations that the switch knows: the largest exponent that any rank has in each value, of 8 bits, and then the sum
of integers that are scaled by it (`switchsum_protocol.each_lanes`).  What an element comes to depends on the ranks'
values of that element, and on nothing beside it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from switchsum_protocol.each_lanes import EACH_MOST_WORKERS
from switchsum_protocol.errors import UsageError

from ..engine.each import find_exponents, narrow, widen
from ..engine.operation import EACH, Operation
from .collectives import Collective
from .operation_queue import Handle
from .steps import LastStep

_EXPONENT: Final = np.dtype(np.uint8)
_LANE: Final = np.dtype(np.int32)
_MINUS_ZERO: Final = 0x8000
"""Bits of a float of 16 bits that an average was rounded to."""


class Queues(Protocol):
    """What knows the collectives that are under way."""

    under_way: dict[int, Handle]

    def wait(self, handle: Handle) -> None:
        """Drive one of them to its end."""
        ...


class Starts(Protocol):
    """What these sums need of a communicator."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        ...

    @property
    def queue(self) -> Queues:
        """What is under way."""
        ...

    def start(self, collective: Collective, *, stays: bool = False, background: bool = False) -> Handle:
        """Begin a collective."""
        ...


def check_ranks(world_size: int) -> None:
    """Refuse more ranks than have room in a lane; raises UsageError."""
    if world_size > EACH_MOST_WORKERS:
        raise UsageError(f"lanes={EACH!r} work up to {EACH_MOST_WORKERS} ranks, not {world_size}: use lanes='int32'")


class EachSum:
    """The two operations that a sum of floats is; the second one is made when the first has ended."""

    def __init__(self, collective: Collective, world_size: int) -> None:
        """Take a sum or an average as it is without steps."""
        operation, values = collective.operation, collective.values
        assert values is not None
        self._operation = operation
        if not operation.steps:
            operation.steps = _exponents_of(operation), replace(operation, dtype=_LANE)
        self._finish = collective.finish or (lambda: values)
        self._divisor = float(world_size if operation.operator == "average" else 1)
        self._flat = values.reshape(-1)
        own = self._flat if values.dtype == np.float32 else self._flat.astype(np.float32)
        self._words = own.view(np.uint32)
        self._exponents = np.empty(own.size, _EXPONENT)
        find_exponents(self._words, self._exponents)
        self.first = Collective(operation.steps[0], self._exponents)
        """Finds the exponents that all ranks agree on."""

    def second(self) -> Collective:
        """Return what adds the values, which are integers from now on until they have been added."""
        narrow(self._words, self._exponents)
        lanes = self._words.view(_LANE)
        return Collective(self._operation.steps[1], lanes, self._finish, at_end=self._widen, holds=self._flat)

    def _widen(self) -> None:
        widen(self._words, self._exponents, self._divisor)
        if self._flat.dtype != np.float32:
            with np.errstate(over="ignore"):
                self._flat[:] = self._words.view(np.float32).astype(self._flat.dtype)
            halves = self._flat.view(np.uint16)
            halves[halves == _MINUS_ZERO] = 0


def begin(comm: Starts, collective: Collective, *, background: bool) -> Handle:
    """Agree on the exponents of a collective's values, and begin their sum."""
    assert collective.values is not None
    check_ranks(comm.world_size)
    for earlier in list(comm.queue.under_way.values()):
        if earlier.holds is not None and np.may_share_memory(earlier.holds, collective.values):
            comm.queue.wait(earlier)
    both = EachSum(collective, comm.world_size)
    comm.start(both.first, stays=True).wait()
    return comm.start(both.second(), stays=not background, background=background)


def _exponents_of(operation: Operation) -> Operation:
    """Return the operation that finds the largest exponents; ranks agree in all that they agree in about the sum."""
    kind = f"exponents of {operation.kind}, {operation.operator}"
    return replace(operation, kind=kind, operator="max", dtype=_EXPONENT, words=str(operation), part=0, root=0)


def last_step(comm: Starts, handle: Handle, *, background: bool) -> LastStep:
    """Take the first step of a sum that a handle describes, and begin the last."""
    collective = Collective(handle.operation, handle.values, handle.make_result)
    last = begin(comm, collective, background=background)
    return LastStep(handle=last, finish=last.wait)
