"""Groups that are never used: how many calls it takes to end them, some of which wait for a rank that never joins."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from switchsum.torch import groups
from switchsum.torch.group import SwitchGroup
from switchsum_protocol.clients.member_client import MemberClient

GROUPS = 5
ABSENT = 2
"""The rank that is in all groups, and never joins their jobs."""

calls: Counter[str] = Counter()


def counted(owner: Any, name: str, what: Any) -> None:
    """Count calls of a function under what `what` makes of its arguments."""
    function = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        calls[what(arguments)] += 1
        return function(*arguments, **options)

    setattr(owner, name, call)


def main() -> None:
    """Make groups, and end them."""
    dist.init_process_group("switchsum", timeout=timedelta(minutes=10))
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(3))
    if rank == ABSENT:
        SwitchGroup.connect_in_background = lambda self: None  # type: ignore[method-assign]
    for _ in range(GROUPS):
        dist.new_group([0, 1, ABSENT])
    dist.barrier()
    counted(MemberClient, "call", lambda arguments: arguments[1])
    counted(groups, "await_leaving", lambda arguments: "await_leaving")
    dist.destroy_process_group()
    print(json.dumps({"rank": rank, "ready": calls["Ready"], "waits": calls["await_leaving"]}), flush=True)


if __name__ == "__main__":
    main()
