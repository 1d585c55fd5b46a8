"""What the worker engine tells its driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from switchsum.protocol.errors import SwitchsumError


class Finished(NamedTuple):
    """An operation is complete: its array holds the result."""

    operation: int
    """What `submit` returned."""
    overflowed: tuple[int, ...] = ()
    """Blocks with integer sums beyond the dtype, replaced by the nearest value; the same ones on every rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The engine has given up: no operation that has not finished will."""

    error: SwitchsumError
    """Why."""


Outcome = Finished | Failed
