"""Rows in which every three values that can meet do meet: the greedy covering array of a table.

The rows that can be are few enough to be listed.  Each time that row is taken in which the most triples meet for the
first time; a seed decides between equals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product

import numpy as np

Row = Mapping[str, str]


def possible_rows(columns: Mapping[str, Sequence[str]], is_possible: Callable[[Row], bool]) -> list[dict[str, str]]:
    """Return all rows that can be."""
    rows = (dict(zip(columns, values, strict=True)) for values in product(*columns.values()))
    return [row for row in rows if is_possible(row)]


def cover(rows: Sequence[dict[str, str]], seed: int, size: int = 3) -> list[dict[str, str]]:
    """Return some of the rows, in which every `size` values meet that meet in any of them; the dearest come first."""
    order = np.random.default_rng(seed).permutation(len(rows))
    numbers: dict[tuple[tuple[str, str], ...], int] = {}
    meets = np.array(
        [[numbers.setdefault(some, len(numbers)) for some in combinations(rows[at].items(), size)] for at in order]
    )
    is_open, taken = np.ones(len(numbers), np.bool_), []
    while is_open.any():
        best = int(is_open[meets].sum(axis=1).argmax())
        is_open[meets[best]] = False
        taken.append(rows[order[best]])
    return taken
