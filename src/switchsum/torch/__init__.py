"""The PyTorch backend: `torch.distributed.init_process_group("switchsum")`.

Installed, it is found without any import; `import switchsum.torch` registers it where torch's autoloading is off.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from switchsum import torch_backend

if TYPE_CHECKING:
    from switchsum.torch import hooks
    from switchsum.torch.averaging import Average, average
    from switchsum.torch.compression import compress
    from switchsum.torch.elastic import ElasticGroup
    from switchsum.torch.flight_recorder import dump_flight_recorder
    from switchsum.torch.group import GroupStatistics, SwitchGroup
    from switchsum.torch.groups import statistics
    from switchsum.torch.lane_choice import lanes
    from switchsum.torch.lanes_of_models import gradient_lanes
    from switchsum.torch.outer import DiLoCo, LocalSGD
    from switchsum.torch.scheduled import Scheduled

_MODULES = {
    "Average": "averaging",
    "DiLoCo": "outer",
    "ElasticGroup": "elastic",
    "GroupStatistics": "group",
    "LocalSGD": "outer",
    "Scheduled": "scheduled",
    "SwitchGroup": "group",
    "average": "averaging",
    "compress": "compression",
    "dump_flight_recorder": "flight_recorder",
    "gradient_lanes": "lanes_of_models",
    "hooks": "hooks",
    "lanes": "lane_choice",
    "statistics": "groups",
}
"""Modules of the public names, which are imported when they are used: every rank's start waits for what is imported."""

torch_backend.register()

__all__ = [
    "Average",
    "DiLoCo",
    "ElasticGroup",
    "GroupStatistics",
    "LocalSGD",
    "Scheduled",
    "SwitchGroup",
    "average",
    "compress",
    "dump_flight_recorder",
    "gradient_lanes",
    "hooks",
    "lanes",
    "statistics",
]


def __dir__() -> list[str]:
    """List the public names, those included that are imported when they are first asked for."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "hooks":
        return import_module("switchsum.torch.hooks")
    return getattr(import_module(f"switchsum.torch.{_MODULES[name]}"), name)
