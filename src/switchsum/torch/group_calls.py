"""Wraps every call of a process group, whoever does it: device, profiler, recorder, and refusals.

torch lets a process group that is written in Python replace the whole group.  So the group keeps what torch has made
for other devices (`cpu:gloo,cuda:switchsum`), and hands on what is about their tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Final, NoReturn, ParamSpec

import torch
import torch.distributed as dist

from switchsum.torch.flight_recorder import FlightRecorder
from switchsum.torch.forms import in_full
from switchsum.torch.work import SwitchWork
from switchsum_host.api.operation_queue import own_timeout_s
from switchsum_protocol.errors import SwitchsumError, UsageError

_P = ParamSpec("_P")
_Method = Callable[_P, dist.Work]

PREFIX: Final = "switchsum:"
"""Prefix of a profiler's ranges."""


def collective(method: _Method[_P]) -> _Method[_P]:
    """Make a method a call of a group whose collectives are begun on the switch."""
    return _call(method.__name__, _refusals_heard(method))


def passed_on(method: _Method[_P]) -> _Method[_P]:
    """Make a method a call of a group that gloo does."""
    return _call(method.__name__, method)


def refused(name: str, instead: str) -> Callable[..., NoReturn]:
    """Return a method of this name that raises UsageError, and says what there is instead."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise UsageError(f"a group on a switch has no {name}: {instead}")

    return refuse


def _call(name: str, method: _Method[_P]) -> _Method[_P]:
    """Hand a call on to the group of its tensors' device; have a profiler and the flight recorder see it."""

    @wraps(method)
    def call(*arguments: _P.args, **options: _P.kwargs) -> dist.Work:
        group: Any = arguments[0]
        values: tuple[Any, ...] = arguments[1:]
        if options or not hasattr(values[-1] if values else None, "timeout"):
            values = in_full(name, values, options)
        other = other_of(group.others, values)
        if other is not None:
            work: dist.Work = getattr(other, name)(*values)
            return work
        begun: Any = method  # with its arguments in full

        def begin() -> dist.Work:
            recorder: FlightRecorder | None = group.recorder
            if recorder is None:
                return begun(group, *values)
            return recorder.record(group, name, values, lambda: begun(group, *values))

        own_s = group.own_timeout_of(values[-1] if values else None)
        if own_s is None:
            return _ranged(name, values, begin) if torch.autograd._profiler_enabled() else begin()
        before = own_timeout_s.set(own_s)
        try:
            return _ranged(name, values, begin) if torch.autograd._profiler_enabled() else begin()
        finally:
            own_timeout_s.reset(before)

    return call


def other_of(others: Mapping[str, Any], values: Iterable[Any]) -> Any:
    """Return torch's own group for the device of a call's tensors; None: they are this group's."""
    tensor = _first_tensor(values) if others else None
    return None if tensor is None else others.get(tensor.device.type)


def _first_tensor(values: Iterable[Any]) -> torch.Tensor | None:
    """Return the first tensor in nested lists."""
    for value in values:
        found = value if isinstance(value, torch.Tensor) else None
        if isinstance(value, (list, tuple)):
            found = _first_tensor(value)
        if found is not None:
            return found
    return None


def _ranged(name: str, values: Iterable[Any], begin: Callable[[], dist.Work]) -> dist.Work:
    """Begin a call in a range for torch.profiler, which has its bytes, and have whoever waits for it be in another."""
    octets = max((bytes_of([one]) for one in values), default=0)
    text = f"{name} {octets} bytes" if octets else name
    with torch.profiler.record_function(PREFIX + text):
        work = begin()
    if isinstance(work, SwitchWork):
        work.waiting = lambda: _waiting(text)
    return work


def _waiting(text: str) -> AbstractContextManager[object]:
    if not torch.autograd._profiler_enabled():
        return nullcontext()
    return torch.profiler.record_function(f"{PREFIX}wait for {text}")


def bytes_of(values: Iterable[Any]) -> int:
    """Return the bytes of all tensors in nested lists: a call's inputs or its outputs, whichever are more."""
    total = 0
    for value in values:
        if isinstance(value, torch.Tensor):
            plain = value._values() if value.layout == torch.sparse_coo else value
            total += plain.numel() * plain.element_size()
        elif isinstance(value, list | tuple):
            total += bytes_of(value)
    return total


def _refusals_heard(method: _Method[_P]) -> _Method[_P]:
    """Let the other ranks hear of a call that is refused, and break the communicator where one ends half begun.

    What a signal handler raises in the midst of it reaches the caller unchanged.
    """

    @wraps(method)
    def call(*arguments: _P.args, **options: _P.kwargs) -> dist.Work:
        group: Any = arguments[0]
        before = group.begun_so_far()
        try:
            return method(*arguments, **options)
        except BaseException as error:
            if group.begun_so_far() == before:
                group.refuse(error)
            elif before is not None and not isinstance(error, SwitchsumError):
                group.break_off(error)
            raise

    return call
