"""The PyTorch backend: `torch.distributed.init_process_group("switchsum")`.

Installed, it is found without any import; `import switchsum.torch` registers it where torch's autoloading is off.
"""

from __future__ import annotations

from switchsum import torch_backend
from switchsum.torch import hooks
from switchsum.torch.averaging import Average, average
from switchsum.torch.compression import compress
from switchsum.torch.elastic import ElasticGroup
from switchsum.torch.flight_recorder import dump_flight_recorder
from switchsum.torch.group import GroupStatistics, SwitchGroup
from switchsum.torch.groups import statistics
from switchsum.torch.lane_choice import lanes
from switchsum.torch.outer import DiLoCo, LocalSGD
from switchsum.torch.scheduled import Scheduled

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
    "hooks",
    "lanes",
    "statistics",
]
