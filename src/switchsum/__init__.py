"""In-network allreduce for distributed training: a P4 switch adds gradients while they pass."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Final

from switchsum.protocol.errors import (
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

# gRPC's own lines come on top of the errors that we raise, and of late also whenever a process forks that has a
# connection.  The variable is read when grpc is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

if TYPE_CHECKING:
    from switchsum.host.api.communicator import Communicator
    from switchsum.host.api.handle import Handle
    from switchsum.host.api.statistics import Statistics
    from switchsum.host.connect import connect

__version__ = "0.1.0"

_LAZY: Final = {
    "Communicator": "switchsum.host.api.communicator",
    "Handle": "switchsum.host.api.handle",
    "Statistics": "switchsum.host.api.statistics",
    "connect": "switchsum.host.connect",
}
"""Imported when first asked for: the host's side brings a compiler, which most commands do without."""

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


def __dir__() -> list[str]:
    """List the public names, those included that are imported when they are first asked for."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
