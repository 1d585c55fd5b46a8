"""In-network allreduce for distributed training: a P4 switch adds gradients while they pass."""

from __future__ import annotations

from switchsum import moved

TYPE_CHECKING = (
    False  # as typing's, which takes a hundredth of a second to import: an interrupt meanwhile is a traceback
)
if TYPE_CHECKING:
    from switchsum_host.api.communicator import Communicator
    from switchsum_host.api.operation_queue import Handle
    from switchsum_host.api.sparse import SparseSum
    from switchsum_host.api.statistics import Statistics
    from switchsum_host.connect import connect
    from switchsum_protocol.errors import (
        CollectiveTimeout,
        ControllerUnreachable,
        Interrupted,
        JoinRefused,
        LocalError,
        NoCapacity,
        NotAdmitted,
        OperationMismatch,
        RankTaken,
        RemoteError,
        SumOverflow,
        SwitchLost,
        SwitchsumError,
        TransportError,
        UnknownJob,
        UnsupportedDtype,
        UsageError,
        VersionMismatch,
        WorkerLost,
        WorldSizeMismatch,
    )

__version__ = "0.2.0"

_ELSEWHERE = {
    "Communicator": "switchsum_host.api.communicator",
    "Handle": "switchsum_host.api.operation_queue",
    "SparseSum": "switchsum_host.api.sparse",
    "Statistics": "switchsum_host.api.statistics",
    "connect": "switchsum_host.connect",
}
"""Modules of the names that are not errors. They are imported when they are used: the worker's code brings a compiler,
which most commands do not need.
"""

__all__ = [
    "CollectiveTimeout",
    "Communicator",
    "ControllerUnreachable",
    "Handle",
    "Interrupted",
    "JoinRefused",
    "LocalError",
    "NoCapacity",
    "NotAdmitted",
    "OperationMismatch",
    "RankTaken",
    "RemoteError",
    "SparseSum",
    "Statistics",
    "SumOverflow",
    "SwitchLost",
    "SwitchsumError",
    "TransportError",
    "UnknownJob",
    "UnsupportedDtype",
    "UsageError",
    "VersionMismatch",
    "WorkerLost",
    "WorldSizeMismatch",
    "connect",
]


moved.install()


def __dir__() -> list[str]:
    """List the public names, those included that are imported when they are first asked for."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_ELSEWHERE.get(name, "switchsum_protocol.errors")), name)
