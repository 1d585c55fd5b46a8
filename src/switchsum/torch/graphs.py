"""Our methods are not for torch.compile, which meets a group's methods while it compiles the frames around them."""

from __future__ import annotations

from types import FunctionType
from typing import TypeVar

Kind = TypeVar("Kind", bound=type)


def kept_out_of_graphs(kind: Kind) -> Kind:
    """Have torch.compile run a class's methods, and all that they call, as they are.

    `torch.compiler.disable` would do the same, and would import the compiler with the first collective, which takes
    seconds.  What it does in the end is to mark the code, which torch 2.13 to 2.15 let one do directly; a torch that
    does not is left alone.
    """
    try:
        from torch._C._dynamo import eval_frame  # noqa: PLC0415

        skip = eval_frame._FrameAction.SKIP
        strategy = eval_frame._FrameExecStrategy(skip, skip)  # for the method itself, and for what it calls
        mark = eval_frame.set_code_exec_strategy
    except (ImportError, AttributeError):
        return kind
    for one in vars(kind).values():
        function = one.fget if isinstance(one, property) else one
        if isinstance(function, FunctionType):
            mark(function.__code__, strategy)
    return kind
