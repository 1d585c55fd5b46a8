"""The entry point `torch.backends`: torch calls it whenever it is imported, so it only registers a name.

An exception here would break every `import torch` of the environment; an import would slow it down.  So this stands
outside of `switchsum.torch`: an entry point in a package imports the package, which takes half a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

NAME = "switchsum"
DEVICES = ["cpu", "cuda"]


def register() -> None:
    """Register the backend's name with torch.distributed, if this torch has that; never raises."""
    try:
        from torch.distributed import Backend  # noqa: PLC0415

        if NAME.upper() not in Backend._plugins:
            Backend.register_backend(NAME, _create, extended_api=True, devices=list(DEVICES))
    except Exception:
        pass


def _create(options: Any, backend_options: Any) -> Any:
    """Make a process group, when one is asked for.

    Its imports take about as long as a switch and a controller to start, so these are started first.
    """
    from torch.distributed import is_initialized  # noqa: PLC0415

    services = import_module("switchsum.torch.services")
    try:
        if not is_initialized():  # groups of some ranks use what the group of all has started
            services.begin_early(options.group_rank, options.group_size)
        return import_module("switchsum.torch.groups").create(options, backend_options)
    finally:
        services.drop_begun()
