"""Compression of DistributedDataParallel's gradients by name: `compress(model, "topk:0.01+int16")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from switchsum.torch.group import SwitchGroup
from switchsum.torch.hooks import CompressedHook, Compressor, EachValue, NarrowLanes, SmallBlocks, compressed
from switchsum_host.compress import (
    BlockScaled,
    BlockTopK,
    DeepGradientCompression,
    ErrorFeedback,
    GlobalTopK,
    Packed,
    PowerSgd,
    Qsgd,
    TernGrad,
    Thc,
    ThresholdTopK,
    TopK,
)
from switchsum_host.engine.operation import EACH, FLOAT_LANES
from switchsum_protocol.errors import UsageError

KEEP: Final = "keep"
SHARE: Final = "a share above 0 and up to 1"
COUNT: Final = "a whole number from 1 on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A compression that a user chose by name."""

    number: float
    """Number behind the method's name. 0: there was none."""
    lanes: str = "int32"
    keep: bool = False
    """True: of the sums only as many are kept as a rank sends values (`+keep`)."""

    @property
    def kept(self) -> float | None:
        """The share of sums that are kept."""
        return self.number if self.keep else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A compressor that has a name."""

    make: Callable[[Choice], Compressor]
    number: str = ""
    """Text behind the name and a colon. Empty: there was none."""
    example: str
    numbered: str = ""
    """An example with a number, where there may be none; empty: there must be one, or there must not."""
    own_lanes: str = ""
    """Why no lanes can be chosen; empty: they can."""
    has_keep: bool = False


def _scaled(lanes: str, block: float) -> Compressor:
    return BlockScaled(lanes, int(block)) if block else BlockScaled(lanes)


METHODS: Final[Mapping[str, Method]] = MappingProxyType(
    {
        "int16": Method(
            make=lambda asked: _scaled("int16", asked.number) if asked.number else NarrowLanes("int16"),
            number=COUNT,
            example="int16",
            numbered="int16:32",
            own_lanes="int16 sends everything, in these lanes",
        ),
        "int10": Method(
            make=lambda _: Packed(),
            example="int10",
            own_lanes="int10 sends everything, three values to 32 bits",
        ),
        "int8": Method(
            make=lambda asked: _scaled("int8", asked.number),
            number=COUNT,
            example="int8",
            numbered="int8:32",
            own_lanes="int8 sends everything, in these lanes",
        ),
        "thc": Method(
            make=lambda asked: ErrorFeedback(Thc(bits=int(asked.number or 8))),
            number=COUNT,
            example="thc",
            numbered="thc:4",
            own_lanes="thc sends everything, in 8 bits or 4",
        ),
        "blocks": Method(
            make=lambda asked: SmallBlocks(int(asked.number), asked.lanes), number=COUNT, example="blocks:32"
        ),
        "topk": Method(
            make=lambda asked: ErrorFeedback(TopK(asked.number, kept=asked.kept, lanes=asked.lanes)),
            number=SHARE,
            example="topk:0.01",
            has_keep=True,
        ),
        "oktopk": Method(
            make=lambda asked: ErrorFeedback(ThresholdTopK(asked.number, kept=asked.number, lanes=asked.lanes)),
            number=SHARE,
            example="oktopk:0.01",
        ),
        "globaltopk": Method(
            make=lambda asked: ErrorFeedback(GlobalTopK(asked.number, lanes=asked.lanes)),
            number=SHARE,
            example="globaltopk:0.02",
        ),
        "blocktopk": Method(
            make=lambda asked: ErrorFeedback(BlockTopK(asked.number, lanes=asked.lanes)),
            number=SHARE,
            example="blocktopk:0.05",
        ),
        "dgc": Method(
            make=lambda asked: DeepGradientCompression(asked.number, lanes=asked.lanes),
            number=SHARE,
            example="dgc:0.01",
        ),
        "powersgd": Method(
            make=lambda asked: ErrorFeedback(PowerSgd(int(asked.number))),
            number=COUNT,
            example="powersgd:4",
            own_lanes="factors of powersgd travel in lanes of 32 bits",
        ),
        "qsgd": Method(make=lambda _: Qsgd(), example="qsgd", own_lanes="levels of qsgd travel in lanes of 8 bits"),
        "terngrad": Method(
            make=lambda _: TernGrad(), example="terngrad", own_lanes="levels of terngrad travel in lanes of 8 bits"
        ),
        EACH: Method(
            make=lambda _: EachValue(),
            example=EACH,
            own_lanes="each sends everything, with an exponent of its own",
        ),
    }
)


def compress(model: DistributedDataParallel, how: str, *, check_every: int = 0) -> CompressedHook:
    """Compress the gradients of a DistributedDataParallel, from its next step on.

    Args:
        model: The DistributedDataParallel, whose process group has the backend "switchsum".
        how: `METHOD` or `METHOD:NUMBER`, such as "int16", "int10", "topk:0.01", "powersgd:4" or "blocks:32".  Behind it
            may stand `+int16`, `+int8` or `+each`, what its values travel as, and `+keep`, to keep only as many sums as
            a rank sends: "topk:0.01+int16+keep".  docs/compression.md says what to choose.
        check_every: Average one in so many steps without compression, too, so that the hook's `statistics()` have each
            parameter's error; 0: none.

    Returns:
        The hook, whose `state_dict()` belongs into checkpoints.  Its `statistics()` are bytes saved by parameter.

    Raises:
        UsageError: `how` is unknown or contradicts itself (the text says what would work), or the model is no
            DistributedDataParallel on the backend "switchsum", or has a hook already.

    Note:
        Methods that are not right in the mean have error feedback.

    Example:
        >>> import torch
        >>> import torch.distributed as dist
        >>> from torch.nn.parallel import DistributedDataParallel
        >>> import switchsum.torch
        >>> dist.init_process_group("switchsum", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = DistributedDataParallel(torch.nn.Linear(4, 2))
        >>> hook = switchsum.torch.compress(model, "topk:0.01+int16")
        >>> dist.destroy_process_group()

    """
    compressor = compressor_of(how)
    if not isinstance(model, DistributedDataParallel):
        raise UsageError(
            f"compress takes a DistributedDataParallel, not {type(model).__name__}: for FSDP, call "
            'switchsum.torch.gradient_lanes(model, "int16")'
        )
    group: dist.ProcessGroup = model.process_group
    if not isinstance(group, SwitchGroup):
        raise UsageError("compress needs a model whose process group has the backend 'switchsum'")
    if model._comm_hooks:
        raise UsageError("the model already has a communication hook: call compress once, in place of that hook")
    hook = compressed(compressor, group, model=model, check_every=check_every)
    model.register_comm_hook(None, hook)
    return hook


def compressor_of(how: str) -> Compressor:
    """Return the compressor of a name; raises UsageError."""
    if not isinstance(how, str):
        raise UsageError(f'compress takes a name, as in "topk:0.01", not {how!r}; hooks.compressed takes compressors')
    first, *others = how.replace(" ", "").lower().split("+")
    name, colon, text = first.partition(":")
    if name not in METHODS:
        examples = [one for method in METHODS.values() for one in (method.example, method.numbered) if one]
        raise UsageError(f"no compression {name!r}: use one of {', '.join(examples)}")
    method = METHODS[name]
    is_lacking = bool(method.number) and not text and (bool(colon) or not method.numbered)
    if is_lacking or (colon and not method.number):
        wanted = f"{method.number}, as in" if method.number else "no number:"
        raise UsageError(f"{name} takes {wanted} {method.numbered or method.example}, not {first!r}")
    lanes, keep = _options(method, how, first, others)
    return method.make(Choice(number=_number(method, first, text), lanes=lanes, keep=keep))


def _number(method: Method, first: str, text: str) -> float:
    """Read what stands behind a method's name; 0 where there is nothing."""
    if not text:
        return 0.0
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not (number >= 1 and number.is_integer() if method.number == COUNT else 0 < number <= 1):
        raise UsageError(
            f"the number in {first!r} is missing or out of range: give {method.number}, as in "
            f"{method.numbered or method.example}"
        )
    return number


def _options(method: Method, how: str, first: str, others: list[str]) -> tuple[str, bool]:
    """Read what is added to a method: lanes, and whether only some sums are kept."""
    lanes = [word for word in others if word in tuple(FLOAT_LANES)]
    unknown = [word for word in others if word not in (*FLOAT_LANES, KEEP)]
    if unknown:
        can_be_added = f"+int16, +int8, +{EACH} and +{KEEP}"
        raise UsageError(f"{how!r}: {unknown[0]!r} is unknown; use one of {can_be_added}")
    if len(lanes) > 1:
        raise UsageError(f"{how!r} names lanes twice: use {first}+{lanes[0]} or {first}+{lanes[1]}")
    if lanes and method.own_lanes:
        raise UsageError(f"{how!r}: {method.own_lanes}; use {first} alone, or topk:0.01+{lanes[0]}")
    if KEEP in others and not method.has_keep:
        raise UsageError(f"{how!r}: only topk takes +{KEEP}, as in topk:0.01+{KEEP}; oktopk always keeps")
    return lanes[0] if lanes else "int32", KEEP in others
