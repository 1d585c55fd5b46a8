"""torch's short forms of calls (`group.allreduce(tensor, op, timeout)`), and its names of arguments.

A `ProcessGroup` of torch takes each collective in two forms: with lists of tensors and options, as `torch.distributed`
calls it, and with one tensor, operator, root and time-out, as people call a group's methods.  A group that is written
in Python has to tell them apart itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from switchsum_protocol.errors import UsageError

ALIASES: Final[Mapping[str, Mapping[str, str]]] = {"allreduce": {"tensor": "tensors"}}
"""Other names that torch has for arguments of a method."""
_DEFAULTS: Final = {"op": dist.ReduceOp.SUM, "timeout": None}
_SHORT: Final = (int, timedelta, dist.ReduceOp, dist.ReduceOp.RedOpType)
"""What the short forms have behind tensors: root, time-out, operator."""
_FIELDS: Final = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}
"""Fields of options by the names that the short forms have for them."""


@dataclass(frozen=True, slots=True)
class Form:
    """How torch calls a method: the names of its arguments in both forms, and what makes options."""

    long: tuple[str, ...]
    short: tuple[str, ...] = ()
    """Empty: there is no short form."""
    options: Callable[[], Any] | None = None
    lists: Callable[[list[Any]], list[Any]] = list
    """Makes the long form's tensors of those of the short form."""


def _in_lists(tensors: list[Any]) -> list[Any]:
    return [[one] if isinstance(one, torch.Tensor) else one for one in tensors]


def _nested(place: int) -> Callable[[list[Any]], list[Any]]:
    """Return what puts the tensor in a list, and the list at this place in another one."""

    def lists(tensors: list[Any]) -> list[Any]:
        other = tensors[1 - place]
        return [[one] if index == place else [other] for index, one in enumerate(tensors)]

    return lists


_SPLITS: Final = ("output", "input", "output_split_sizes", "input_split_sizes")
_COALESCED: Final = Form(("outputs", "inputs", "opts"))
_SCATTERED: Final = Form(("outputTensor", "inputTensor", "opts"))
_GATHERED: Final = Form(("output", "input", "opts"))
_TO_ALL: Final = Form((*_SPLITS, "opts"), (*_SPLITS, "timeout"), c10d.AllToAllOptions)
FORMS: Final[Mapping[str, Form]] = {
    "allreduce": Form(("tensors", "opts"), ("tensors", "op", "timeout"), c10d.AllreduceOptions, _in_lists),
    "allreduce_coalesced": Form(("tensors", "opts")),
    "reduce": Form(("tensors", "opts"), ("tensor", "root", "op", "timeout"), c10d.ReduceOptions, _in_lists),
    "broadcast": Form(("tensors", "opts"), ("tensor", "root", "timeout"), c10d.BroadcastOptions, _in_lists),
    "allgather": Form(
        ("output_tensors", "input_tensors", "opts"),
        ("output_tensors", "input_tensor", "timeout"),
        c10d.AllgatherOptions,
        _nested(1),
    ),
    "gather": Form(
        ("output_tensors", "input_tensors", "opts"),
        ("output_tensors", "input_tensor", "root", "timeout"),
        c10d.GatherOptions,
        lambda tensors: [[tensors[0]] if tensors[0] else [], [tensors[1]]],
    ),
    "scatter": Form(
        ("output_tensors", "input_tensors", "opts"),
        ("output_tensor", "input_tensors", "root", "timeout"),
        c10d.ScatterOptions,
        lambda tensors: [[tensors[0]], [tensors[1]] if tensors[1] else []],
    ),
    "reduce_scatter": Form(
        ("output_tensors", "input_tensors", "opts"),
        ("output", "input", "op", "timeout"),
        c10d.ReduceScatterOptions,
        _nested(0),
    ),
    "barrier": Form(("opts",), ("timeout",), c10d.BarrierOptions),
    "alltoall": Form(("output_tensors", "input_tensors", "opts")),
    "alltoall_base": _TO_ALL,
    "all_to_all_single": _TO_ALL,
    "allgather_coalesced": Form(("output_lists", "input_list", "opts")),
    "_allgather_base": _GATHERED,
    "all_gather_single": _GATHERED,
    "gather_single": _GATHERED,
    "gather_into_tensor": _GATHERED,
    "_reduce_scatter_base": _SCATTERED,
    "reduce_scatter_single": _SCATTERED,
    "all_gather_single_coalesced": _COALESCED,
    "allgather_into_tensor_coalesced": _COALESCED,
    "reduce_scatter_single_coalesced": _COALESCED,
    "reduce_scatter_tensor_coalesced": _COALESCED,
    "send": Form(("tensors", "dstRank", "tag")),
    "recv": Form(("tensors", "srcRank", "tag")),
}
"""By the name of the method."""


def in_full(name: str, values: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of a call in the order of its long form; raises TypeError, as Python does for others."""
    form, aliases = FORMS.get(name), ALIASES.get(name, {})
    named = {aliases.get(one, one): value for one, value in named.items()}
    if form is None:
        if named:
            raise TypeError(f"{name}() got an unexpected keyword argument {next(iter(named))!r}")
        return tuple(values)
    names = form.short if _is_short(form, values, named) else form.long
    found = dict(zip(names, values, strict=False))
    if len(values) > len(names):
        raise TypeError(f"{name}() takes {len(names)} arguments ({', '.join(names)}), not {len(values)}")
    for one, value in named.items():
        if one not in names:
            raise TypeError(f"{name}() got an unexpected keyword argument {one!r}: it takes {', '.join(names)}")
        if one in found:
            raise TypeError(f"{name}() got multiple values for argument {one!r}")
        found[one] = value
    if names is form.long:
        return tuple(found[one] for one in names if one in found)
    return _lengthened(name, form, found)


def _lengthened(name: str, form: Form, found: dict[str, Any]) -> tuple[Any, ...]:
    assert form.options is not None
    opts, tensors = form.options(), []
    for one in form.short:
        if one in _FIELDS:
            if one not in found and one not in _DEFAULTS:
                raise TypeError(f"{name}() missing 1 required argument: {one!r}")
            value = found.get(one, _DEFAULTS.get(one))
            if value is not None:
                setattr(opts, _FIELDS[one], value)
        elif one not in found:
            raise TypeError(f"{name}() missing 1 required argument: {one!r}")
        else:
            tensors.append(found[one])
    return (*form.lists(tensors), opts)


def _is_short(form: Form, values: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Return whether a call has the short form: a part of it that the long form has not."""
    if not form.short or "opts" in named:
        return False
    tensors = sum(one not in _FIELDS for one in form.short)
    if any(one is not None and not isinstance(one, _SHORT) for one in values[tensors:]):  # options, whosever they are
        return False
    own = set(form.short) - set(form.long)
    if len(values) > tensors or any(one in own for one in named):
        return any(one is not None for one in values[tensors:]) or bool(named)
    is_of_lists = form.lists is not list
    return is_of_lists and any(isinstance(one, torch.Tensor) for one in values)


def listed(tensors: Sequence[torch.Tensor] | torch.Tensor) -> list[torch.Tensor]:
    """Return tensors in a list."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def only_one(call: str, tensors: Sequence[torch.Tensor] | torch.Tensor, opts: Any = None) -> list[torch.Tensor]:
    """Return the one tensor that a call takes, in a list; raises UsageError where there are others."""
    found = listed(tensors)
    if len(found) != 1:
        raise UsageError(f"{call} takes one tensor, not {len(found)}: call it once for each")
    if getattr(opts, "rootTensor", 0):
        raise UsageError(f"{call}: rootTensor must be 0, not {opts.rootTensor}, for a call has one tensor")
    return found
