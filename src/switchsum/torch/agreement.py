"""Lets ranks compare a call through the switch before gloo does it for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from switchsum_host.api.communicator import Communicator
from switchsum_host.api.operation_queue import Handle
from switchsum_protocol.errors import CollectiveTimeout, OperationMismatch


class Agreement:
    """A call that all ranks are about to make; those that make another one raise OperationMismatch."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def overdue(self, seconds: float) -> CollectiveTimeout | None:
        """Return what to raise where ranks have not said so in so many seconds; None: all have."""
        return None if self._handle.is_done else self._handle.overdue(seconds)

    def wait(self) -> Any:
        """Wait until all ranks have said which call they make."""
        return self._handle.wait()


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of values that this rank gives to, and takes from, each rank of an all_to_all."""

    called: str
    given: Sequence[int]
    taken: Sequence[int]

    def agree(self, communicator: Communicator) -> Agreement:
        """Begin to compare them with those of the other ranks."""
        own = np.array([self.given, self.taken], np.int64)
        return _Compared(self.called, communicator.allgather_async(own, label=self.called))


class _Compared(Agreement):
    """An agreement in which pairs of ranks give and take the same number of values."""

    def __init__(self, called: str, handle: Handle) -> None:
        super().__init__(handle)
        self._called = called

    def wait(self) -> None:
        """Wait; raises OperationMismatch, the same on all ranks."""
        counts: npt.NDArray[np.int64] = super().wait()
        given, taken = counts[:, 0], counts[:, 1].T
        if len(places := np.argwhere(given != taken)):
            giver, taker = places[0]
            raise OperationMismatch(
                f"{self._called}: rank {giver} gives {given[giver, taker]} values to rank {taker}, "
                f"which takes {taken[giver, taker]}"
            )
