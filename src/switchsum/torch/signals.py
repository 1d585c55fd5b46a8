"""Signal handlers that raise while a call of the process group begins its collectives."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import torch.distributed as dist

from switchsum.protocol.errors import SwitchsumError
from switchsum.torch.gradients import in_backward
from switchsum.torch.work import SwitchWork, raise_when_due

_P = ParamSpec("_P")


def calm(method: Callable[_P, dist.Work]) -> Callable[_P, dist.Work]:
    """Have a group's call that a signal handler interrupts begin its collectives all the same, and once.

    Until they are begun everything can be done again.  What was raised is raised when they have ended.
    """

    def told(*arguments: _P.args, **options: _P.kwargs) -> dist.Work:
        """Call the method; if it refuses the caller's arguments, let the other ranks hear of it."""
        group: Any = arguments[0]
        before = group.begun_so_far()
        try:
            return method(*arguments, **options)
        except Exception as error:
            if group.begun_so_far() == before:
                group.refuse(error)
            raise

    @wraps(method)
    def call(*arguments: _P.args, **options: _P.kwargs) -> dist.Work:
        group: Any = arguments[0]
        before = group.begun_so_far()
        held: BaseException | None = None
        try:
            work = method(*arguments, **options)
        except BaseException as error:
            if isinstance(error, SwitchsumError) or before is None:
                if group.begun_so_far() == before:
                    group.refuse(error)
                raise
            if group.begun_so_far() != before:
                group.break_off(error)
                raise
            work, held = told(*arguments, **options), error
        if isinstance(work, SwitchWork):
            held = held or work.held_back()
            if held is not None and in_backward():
                raise_when_due(held)  # DDP may wait for the future alone
            elif held is not None:
                work.hold_back(held)
        elif held is not None:
            work.wait()
            raise held
        return work

    return call
