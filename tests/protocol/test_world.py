"""Which lanes hold the sums of how many workers."""

from __future__ import annotations

import pytest

from switchsum.protocol.errors import UsageError
from switchsum.protocol.frame import MOST_WORKERS
from switchsum.protocol.lanes import full_scale
from switchsum.protocol.world import EXACT_WORKERS, check_lanes, most_workers


@pytest.mark.parametrize(
    ("lanes", "bits", "most"), [("int8", 8, 42), ("int16", 16, MOST_WORKERS), ("int32", 32, MOST_WORKERS)]
)
def test_formats_hold_as_many_workers_as_are_said(lanes: str, bits: int, most: int) -> None:
    assert most_workers(lanes) == most
    assert full_scale(most, bits) * most <= 1 << (bits - 1)  # of 32 bits all stay below it
    check_lanes(lanes, most)


def test_what_would_work_is_named() -> None:
    with pytest.raises(UsageError, match=r"lanes='int8' hold.*at most 42 workers.*has 43: lanes='int32' or 'int16'"):
        check_lanes("int8", 43)


def test_digits_of_exact_sums_fit_their_lanes_for_as_many_workers() -> None:
    largest = (1 << 26) - 1
    assert largest * EXACT_WORKERS <= (1 << 31) - 1 < largest * (EXACT_WORKERS + 1)
