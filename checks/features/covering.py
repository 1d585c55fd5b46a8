"""Rows in which every three values that can meet do meet: the greedy covering array of a table.

The rows that can be are few enough to be listed.  Each time that row is taken in which the most triples meet for the
first time; a seed decides between equals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

Row = Mapping[str, str]


def possible_rows(columns: Mapping[str, Sequence[str]], is_possible: Callable[[Row], bool]) -> list[dict[str, str]]:
    """Return all rows that can be; `is_possible` is also asked of beginnings, and may raise KeyError there."""
    rows: list[dict[str, str]] = [{}]
    for name, values in columns.items():
        longer = (row | {name: value} for row in rows for value in values)
        rows = [row for row in longer if _may_be(row, is_possible)]
    return rows


def _may_be(beginning: Row, is_possible: Callable[[Row], bool]) -> bool:
    try:
        return is_possible(beginning)
    except KeyError:
        return True


def cover(rows: Sequence[dict[str, str]], seed: int, size: int = 3) -> list[dict[str, str]]:
    """Return some of the rows, in which every `size` values meet that meet in any of them; the dearest come first."""
    order = np.random.default_rng(seed).permutation(len(rows))
    meets = _numbered(rows, size)[order]
    by_number = np.argsort(meets, axis=None, kind="stable")
    starts = np.searchsorted(meets.reshape(-1)[by_number], np.arange(int(meets.max()) + 2))
    having = by_number // meets.shape[1]  # rows, ordered by what meets in them
    is_new, new = np.ones(len(starts), np.bool_), np.full(len(rows), meets.shape[1])
    taken = []
    while new.max():
        best = int(new.argmax())
        met = meets[best][is_new[meets[best]]]
        is_new[met] = False
        new -= np.bincount(np.concatenate([having[starts[one] : starts[one + 1]] for one in met]), minlength=len(rows))
        taken.append(rows[order[best]])
    return taken


def _numbered(rows: Sequence[Row], size: int) -> Any:
    """Return for each row the numbers of the combinations of so many values that meet in it."""
    names = list(rows[0])
    places = [{value: at for at, value in enumerate(sorted({row[name] for row in rows}))} for name in names]
    codes = np.array([[own[row[name]] for name, own in zip(names, places, strict=True)] for row in rows])
    columns, first = [], 0
    for some in combinations(range(len(names)), size):
        counts = [len(places[at]) for at in some]
        columns.append(first + np.ravel_multi_index([codes[:, at] for at in some], counts))
        first += prod(counts)
    return np.stack(columns, axis=1)
