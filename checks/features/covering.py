"""Rows in which every three values that can meet do meet: the greedy covering array of a table.

The rows that can be are few enough to be listed.  Each time that row is taken in which the most triples meet for the
first time; a seed decides between equals.  So many rows at once are looked at as have room in memory: those that come
later are for the few triples that are in none of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any, Final

import numpy as np

Row = Mapping[str, str]
AT_ONCE: Final = 50_000
"""Rows that are looked at together: 100 MB."""


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
    numbered, count = _numbering(rows, size)
    is_new = np.ones(count, np.bool_)
    taken: list[dict[str, str]] = []
    for first in range(0, len(rows), AT_ONCE):
        some = [rows[at] for at in order[first : first + AT_ONCE]]
        meets = numbered(some)
        if taken:  # nearly all triples are in rows that are taken
            having = np.flatnonzero(is_new[meets].any(axis=1))
            some, meets = [some[at] for at in having], meets[having]
        taken += [some[at] for at in _greedy(meets, is_new)]
    return taken


def _greedy(meets: Any, is_new: Any) -> Iterator[int]:
    """Yield rows until all that meets in any of them is not new; of each, the numbers of what meets are given."""
    if not len(meets):
        return
    by_number = np.argsort(meets, axis=None, kind="stable")
    starts = np.searchsorted(meets.reshape(-1)[by_number], np.arange(len(is_new) + 1))
    having = by_number // meets.shape[1]  # rows, ordered by what meets in them
    new = is_new[meets].sum(axis=1)
    while new.max():
        best = int(new.argmax())
        met = meets[best][is_new[meets[best]]]
        is_new[met] = False
        new -= np.bincount(np.concatenate([having[starts[one] : starts[one + 1]] for one in met]), minlength=len(meets))
        yield best


def _numbering(rows: Sequence[Row], size: int) -> tuple[Callable[[Sequence[Row]], Any], int]:
    """Return what gives rows the numbers of the combinations of so many values that meet in them, and how many are."""
    names = list(rows[0])
    places = [{value: at for at, value in enumerate(sorted({row[name] for row in rows}))} for name in names]
    columns = list(combinations(range(len(names)), size))
    counts = [[len(places[at]) for at in some] for some in columns]
    firsts = np.cumsum([0, *map(prod, counts)])

    def numbered(some: Sequence[Row]) -> Any:
        codes = np.array([[own[row[name]] for name, own in zip(names, places, strict=True)] for row in some])
        met = [
            first + np.ravel_multi_index([codes[:, at] for at in pair], count)
            for pair, count, first in zip(columns, counts, firsts, strict=False)
        ]
        return np.stack(met, axis=1)

    return numbered, int(firsts[-1])
