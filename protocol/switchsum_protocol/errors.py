"""Every error that switchsum raises, in one tree, whose root is in `switchsum_switch.errors`.

Local errors say that the caller or this machine did something wrong; remote errors say what another member, the
switch or the controller did.  Bytes off the wire never raise: they are dropped and counted under a named reason
(`switchsum_protocol.frame.Reason`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from switchsum_switch.errors import LocalError, RemoteError, SwitchsumError, TransportError, UsageError

__all__ = [
    "TIMEOUT_OPTIONS",
    "CollectiveTimeout",
    "ControllerUnreachable",
    "Interrupted",
    "JoinRefused",
    "LocalError",
    "NoCapacity",
    "NotAdmitted",
    "OperationMismatch",
    "ProtocolError",
    "RankTaken",
    "RemoteError",
    "SumOverflow",
    "SwitchLost",
    "SwitchsumError",
    "TransportError",
    "UnknownJob",
    "UnknownMembership",
    "UnsupportedDtype",
    "UsageError",
    "VersionMismatch",
    "WorkerLost",
    "WorldSizeMismatch",
]

TIMEOUT_OPTIONS: Final = (
    " (connect(timeout_s=...), init_process_group(timeout=...) or `switchsum job create --timeout` changes how long)"
)
"""Text at the end of an error that a time-out has caused."""


class UnsupportedDtype(LocalError, TypeError):
    """The switch cannot reduce the array's dtype without a loss that the caller did not allow."""


class Interrupted(LocalError):
    """A signal handler raised during a collective, which therefore did not end.  Later calls raise this error."""


class ProtocolError(RemoteError):
    """A peer sent a message that the protocol does not allow in its state."""


class ControllerUnreachable(RemoteError):
    """No controller answers at the given address."""


class JoinRefused(RemoteError):
    """The controller refused a member.  Subclasses say why."""


class UnknownJob(JoinRefused):
    """The controller has no job of that name."""


class RankTaken(JoinRefused):
    """Another live member holds this rank, or the rank is outside the job."""


class WorldSizeMismatch(JoinRefused):
    """The member's world size, or the number of its links, is not the job's.

    `world_size` is the one that the member has; 0: it is about links.
    """

    def __init__(self, message: str, world_size: int = 0) -> None:
        super().__init__(message)
        self.world_size = world_size


class VersionMismatch(JoinRefused):
    """Member and switch have different wire versions or numbers of lanes.  The text names both sides."""


class NoCapacity(JoinRefused):
    """The switch has too few free slots, groups or table entries for the job."""


class NotAdmitted(RemoteError):
    """The switch refuses this member's contributions: its job was removed or went on under a new epoch."""


class UnknownMembership(NotAdmitted):
    """The controller does not know this member, for instance because it was started after the member had joined."""


class OperationMismatch(RemoteError):
    """Ranks issued different operations (dtype, shape, operator or order) on the same communicator."""

    def __init__(self, message: str, operation: str = "") -> None:
        """Take this rank's own operation in words, for comparison with the others'."""
        super().__init__(message)
        self.operation = operation


class SumOverflow(RemoteError, OverflowError):
    """An integer sum does not fit its dtype.  `blocks` are the indices of the blocks with such sums."""

    def __init__(self, message: str, blocks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.blocks = tuple(blocks)


class CollectiveTimeout(RemoteError, TimeoutError):
    """A collective did not finish in time.  `missing` are the ranks that the switch was still waiting for."""

    def __init__(self, message: str, missing: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.missing = tuple(missing)


class WorkerLost(RemoteError):
    """A member died, stopped answering, or left while this rank waits for it.  `rank` is its rank.

    `advice` is the end of the text that says how to go on without the member; empty: the text does not say.
    """

    def __init__(self, message: str, rank: int, advice: str = "") -> None:
        super().__init__(message + advice)
        self.rank = rank
        self.advice = advice

    def __reduce__(self) -> tuple[type[WorkerLost], tuple[str, int, str]]:
        """Pickle it with its rank: it goes to other processes."""
        return type(self), (str(self).removesuffix(self.advice), self.rank, self.advice)


class SwitchLost(RemoteError):
    """The switch stopped answering."""
