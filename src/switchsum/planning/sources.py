"""A topology as users name it: a file, or a shape such as `leaf-spine,4,4,2`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from switchsum.topologies import SHAPES
from switchsum_protocol.errors import UsageError

if TYPE_CHECKING:
    from switchsum.topologies import Network

MOST_OF_A_SHAPE = 128
"""Largest number of leaves, hosts or ports that a shape by name may have: more is a slip of the pen."""


def is_shape(source: str) -> bool:
    """Return whether this is the name of a shape; a file of that name is written ./NAME."""
    return source.partition(",")[0] in SHAPES


def read(source: str, mbit: float, *, is_given: bool = False) -> Network:
    """Read a topology from a file, or by the name of its shape; raises LocalError.

    Links of a shape have the rate `mbit`.  A file gives rates itself; if the user has given the rate, it takes the
    place of the file's `mbit`, which is that of links without one of their own.
    """
    from switchsum.planning import topology  # noqa: PLC0415 - scipy takes a tenth of a second

    if not is_shape(source):
        if not Path(source).exists():
            raise UsageError(f"{source} is neither a file nor a shape: the shapes are {', '.join(SHAPES)}")
        return topology.load(Path(source), mbit if is_given else None)
    if not mbit > 0:
        raise UsageError(f"--mbit must be above 0, not {mbit:g}")
    name, *texts = source.split(",")
    numbers: dict[str, float] = {}
    known = list(inspect.signature(SHAPES[name]).parameters)
    for place, text in enumerate(texts):
        key, _, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError as error:
            raise UsageError(f"{source}: {text!r} is not a number") from error
        key = key or (known[place] if place < len(known) else "")
        if key not in known:
            raise UsageError(f"{name} takes {', '.join(known)}, in this order or as NAME=NUMBER, not {text!r}")
        is_rate = key in ("fast", "slow")
        if not is_rate and not (number.is_integer() and 1 <= number <= MOST_OF_A_SHAPE):
            raise UsageError(f"{source}: {key} must be a whole number from 1 to {MOST_OF_A_SHAPE}, not {value}")
        numbers[key] = number if is_rate else int(number)
    try:
        network = SHAPES[name](**numbers).limited(mbit)
    except ValueError as error:
        raise UsageError(f"{source}: {error}") from error
    found = topology.problems(network)
    if found:
        raise UsageError(f"{source}: {found[0]}")
    return network
