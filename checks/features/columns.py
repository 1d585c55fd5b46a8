"""The features, as columns of a table, and which of them cannot meet.

A new feature is a new value of a column, or a new column.  Compressors come from the package itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from switchsum.torch.compression import METHODS

Row = Mapping[str, str]

DENSITY: Final = "0.25"
"""What sparse compressors send of a gradient."""
BY_COMMUNICATOR: Final = ("allreduce", "quorum")
"""Steps that are a call of the communicator."""
WITH_QUORUM: Final = ("quorum", "DiLoCo with quorum")
OUTER: Final = ("DiLoCo", "LocalSGD", "DiLoCo with quorum")
"""Steps of `switchsum.torch` between which ranks train alone."""
FLOATS: Final = ("float32", "float16", "bfloat16")
"""Dtypes of a model."""


def _named(method: str) -> str:
    """Return a compressor's name with its number, where it has one."""
    example = METHODS[method].example
    name, colon, number = example.partition(":")
    return f"{name}:{DENSITY}" if colon and "." in number else example


COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "link": ("memory", "shm", "udp"),
    "topology": ("star", "racks"),
    "lanes": ("int32", "int16", "int8", "each"),
    "compressor": ("none", *map(_named, METHODS)),
    "step": (*BY_COMMUNICATOR, "average", *OUTER),
    "event": ("none", "late", "killed", "replaced", "newcomer", "checkpoint"),
    "sharing": ("own", "shared"),
    "loss": ("0", "0.01"),
    "dtype": (*FLOATS, "float64", "int32", "int64", ">f4"),
}


def _takes_lanes(row: Row) -> bool:
    name = row["compressor"].partition(":")[0]
    return row["step"] in BY_COMMUNICATOR if name == "none" else not METHODS[name].own_lanes


RULES: Final[Mapping[str, Callable[[Row], bool]]] = {
    "ranks in one process have one switch and no controller": lambda row: (
        (row["link"] == "memory" and (row["topology"], row["sharing"]) != ("star", "own"))
        or (row["link"] == "memory" and (row["event"] in ("late", "killed") or row["step"] in WITH_QUORUM))
    ),
    "the slots that jobs share are at the root here": lambda row: (
        (row["sharing"], row["topology"]) == ("shared", "racks")
    ),
    "compressors are of switchsum.torch": lambda row: row["compressor"] != "none" and row["step"] in BY_COMMUNICATOR,
    "a compressor may have lanes of its own": lambda row: row["lanes"] != "int32" and not _takes_lanes(row),
    "integers have no other lanes": lambda row: row["dtype"].startswith("int") and row["lanes"] != "int32",
    "models have floats of up to 32 bits": lambda row: (
        row["step"] not in BY_COMMUNICATOR and row["dtype"] not in FLOATS
    ),
    "only a quorum goes on without a late rank": lambda row: row["event"] == "late" and row["step"] not in WITH_QUORUM,
}
"""Why features do not meet, and when that is so."""


def is_possible(row: Row) -> bool:
    """Tell whether the features of a row can meet."""
    return not any(rule(row) for rule in RULES.values())
