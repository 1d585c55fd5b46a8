"""The PyTorch backend: `torch.distributed.init_process_group("switchsum")`.

Installed, it is found without any import; `import switchsum.torch` registers it where torch's autoloading is off.
"""

from __future__ import annotations

from switchsum import torch_backend
from switchsum.host.pytorch.group import GroupStatistics, SwitchGroup
from switchsum.host.pytorch.scheduled import Scheduled
from switchsum.torch import hooks
from switchsum.torch.groups import statistics

torch_backend.register()

__all__ = ["GroupStatistics", "Scheduled", "SwitchGroup", "hooks", "statistics"]
