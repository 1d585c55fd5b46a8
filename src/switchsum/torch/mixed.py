"""Handles groups with a backend for each device, such as `cpu:gloo,cuda:switchsum`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from switchsum.torch.group import BACKEND


def others(options: Any, store: dist.Store) -> dict[str, dist.ProcessGroup]:
    """Return torch's groups for the devices that are not ours, by type of device, while torch makes a group.

    Only the frame of torch's own function knows of them (torch 2.13 to 2.15).  torch has already made the backends of
    devices that are named before ours.  It would make none of the later ones, because our group replaces the whole
    group.  So they are made here, in `store`, which no earlier group of the same name has used.
    """
    frame = _frame_of_torch()
    config = None if frame is None else frame.f_locals.get("backend_config")
    if frame is None or not isinstance(config, c10d.BackendConfig):
        return {}
    wanted = {device: name for device, name in config.get_device_backend_map().items() if name != BACKEND}
    begun = frame.f_locals["pg"]
    made = {device: begun for device in wanted if torch.device(device) in begun._device_types}
    later = ",".join(f"{device}:{name}" for device, name in wanted.items() if device not in made)
    if made:
        begun._set_group_name(options.group_id)
        begun._set_group_desc("undefined")
    if later:
        made |= dict.fromkeys((device for device in wanted if device not in made), _make(options, later, store))
    return made


def _make(options: Any, backends: str, store: dist.Store) -> dist.ProcessGroup:
    """Have torch make a group of the same ranks, and note it as `new_group` does."""
    ranks = options.global_ranks_in_group
    made, _ = c10d._new_process_group_helper(
        options.group_size,
        options.group_rank,
        ranks,
        backends,
        store,
        f"{options.group_id}/others",
        timeout=options.timeout,
    )
    c10d._world.pg_group_ranks[made] = {rank: place for place, rank in enumerate(ranks or range(options.group_size))}
    made._set_default_backend(dist.Backend.backend_type_map[backends.rpartition(":")[2]])
    return made


def close(made: Mapping[str, dist.ProcessGroup]) -> None:
    """End these groups; torch knows of those that it was asked for."""
    for group in {id(group): group for group in made.values()}.values():
        if group in c10d._world.pg_map:
            dist.destroy_process_group(group)
        else:
            group.shutdown()


def _frame_of_torch() -> FrameType | None:
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back
    return frame
