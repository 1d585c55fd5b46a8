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
COMMUNICATOR: Final = "communicator"
SOME: Final = "some"
"""A group of PyTorch's that has some ranks; others of them add in another group at the same time."""
GROUPS: Final = (COMMUNICATOR, "all", SOME)
"""What ranks add in: a communicator, or a group of PyTorch's."""
OF_SEVERAL_LINKS: Final = ("rails", "cables")
"""Topologies in which a rank has a link to each of two switches, or two links to one."""
WHOLE: Final = "1"
DENSE: Final = "all"
SAME: Final = "few, the same"
MANY: Final = "many"
"""Rows of an array that a rank has: all, or some of a longer array, which go different ways."""
LATER: Final = "2, delayed"
"""Fragments whose averages may take a step."""


def _named(method: str) -> list[str]:
    """Return a compressor's name, also with its number, where it has one."""
    name, colon, number = METHODS[method].example.partition(":")
    own = f"{name}:{DENSITY}" if colon and "." in number else METHODS[method].example
    return [own, METHODS[method].numbered] if METHODS[method].numbered else [own]


COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "link": ("memory", "shm", "udp", "veth"),
    "topology": ("star", "racks", *OF_SEVERAL_LINKS),
    "lanes": ("int32", "int16", "int8", "int4", "each"),
    "compressor": ("none", *(name for method in METHODS for name in _named(method))),
    "step": (*BY_COMMUNICATOR, "average", *OUTER),
    "group": GROUPS,
    "fragments": (WHOLE, "2", LATER),
    "rows": (DENSE, "few", SAME, MANY),
    "event": ("none", "late", "killed", "replaced", "newcomer", "checkpoint"),
    "sharing": ("own", "shared"),
    "loss": ("0", "0.01"),
    "dtype": (*FLOATS, "float64", "int32", "int64", "int8", ">f4"),
}


def _takes_lanes(row: Row) -> bool:
    name = row["compressor"].partition(":")[0]
    return row["step"] in BY_COMMUNICATOR if name == "none" else not METHODS[name].own_lanes


RULES: Final[Mapping[str, Callable[[Row], bool]]] = {
    "ranks in one process have one switch and no controller": lambda row: (
        (row["link"] == "memory" and (row["topology"], row["sharing"]) != ("star", "own"))
        or (row["link"] == "memory" and (row["event"] in ("late", "killed") or row["step"] in WITH_QUORUM))
        or (row["link"] == "memory" and row["group"] != COMMUNICATOR)
    ),
    "jobs that share slots have one link each, here to the root": lambda row: (
        row["sharing"] == "shared" and row["topology"] != "star"
    ),
    "shared memory is a single link": lambda row: row["link"] == "shm" and row["topology"] in OF_SEVERAL_LINKS,
    "calls of torch.distributed have no quorum": lambda row: row["group"] != COMMUNICATOR and row["step"] == "quorum",
    "tensors have the machine's order of bytes, and lanes of their own choice where they are integers": lambda row: (
        row["group"] != COMMUNICATOR and (row["dtype"].startswith(">") or row["lanes"] == "int4")
    ),
    "compressors are of switchsum.torch": lambda row: row["compressor"] != "none" and row["step"] in BY_COMMUNICATOR,
    "a compressor may have lanes of its own": lambda row: row["lanes"] != "int32" and not _takes_lanes(row),
    "integers have lanes of 32 bits, and small ones of 4": lambda row: (
        row["lanes"] not in ("int32", "int4") if row["dtype"].startswith("int") else row["lanes"] == "int4"
    ),
    "lanes of 4 bits are for int8": lambda row: row["lanes"] == "int4" and row["dtype"] != "int8",
    "a model has fragments in DiLoCo alone": lambda row: (
        row["fragments"] != WHOLE and row["step"] not in ("DiLoCo", "DiLoCo with quorum")
    ),
    "rows are of allreduces of a communicator, which do not narrow them": lambda row: (
        row["rows"] != DENSE
        and (
            row["step"] != "allreduce"
            or row["group"] != COMMUNICATOR
            or row["dtype"] == "float64"
            or row["lanes"] == "int4"
        )
    ),
    "outer steps with a quorum have no delay": lambda row: row["fragments"] == LATER and row["step"] in WITH_QUORUM,
    "models have floats of up to 32 bits": lambda row: (
        row["step"] not in BY_COMMUNICATOR and row["dtype"] not in FLOATS
    ),
    "only a quorum goes on without a late rank": lambda row: row["event"] == "late" and row["step"] not in WITH_QUORUM,
}
"""Why features do not meet, and when that is so."""


def is_possible(row: Row) -> bool:
    """Tell whether the features of a row can meet; of the beginning of one, whether nothing is known against it."""
    return not any(_rules_out(rule, row) for rule in RULES.values())


def _rules_out(rule: Callable[[Row], bool], row: Row) -> bool:
    try:
        return rule(row)
    except KeyError:
        return False
