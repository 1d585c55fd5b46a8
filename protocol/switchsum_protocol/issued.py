"""How ranks differ in what they have called: the sentence of ranks that raise, and of whoever looks at their job."""

from __future__ import annotations

from collections.abc import Sequence

UNKNOWN = "nothing that is known of"


def issuers(operations: Sequence[str]) -> list[tuple[list[int], str]]:
    """Return which ranks have issued each operation, those that differ from most first.

    `operations` has the operation of each rank, empty where the rank has said none.

    >>> issuers(["sum", "sum", "max", ""])
    [([2], 'max'), ([3], 'nothing that is known of'), ([0, 1], 'sum')]
    """
    found: dict[str, list[int]] = {}
    for rank, operation in enumerate(operations):
        found.setdefault(operation or UNKNOWN, []).append(rank)
    return sorted(((ranks, operation) for operation, ranks in found.items()), key=lambda one: (len(one[0]), one[0]))


def compared(operations: Sequence[str]) -> str:
    """Say which ranks issued what, those that differ from most first; empty where all have said the same.

    >>> compared(["sum", "sum", "max", "sum"])
    'rank 2 issued max; ranks 0, 1, 3 issued sum'
    >>> compared(["sum", "sum"])
    ''
    """
    found = issuers(operations)
    if len(found) < 2:
        return ""
    return "; ".join(f"{_ranks(ranks)} issued {operation}" for ranks, operation in found)


def _ranks(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
