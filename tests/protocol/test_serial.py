"""Serial arithmetic of round numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from switchsum_protocol import serial

NUMBERS = st.integers(0, (1 << 32) - 1)
STEPS = st.integers(1, (1 << 31) - 1)


@given(NUMBERS, STEPS)
def test_a_number_is_older_than_what_follows_it(number: int, steps: int) -> None:
    later = serial.advance(number, steps)
    assert serial.is_older(number, later)
    assert not serial.is_older(later, number)
    assert not serial.is_older(number, number)


@given(NUMBERS)
def test_versions_alternate_across_the_wrap(number: int) -> None:
    assert serial.version(serial.advance(number)) != serial.version(number)


@given(NUMBERS, st.lists(st.integers(0, 1000), min_size=1))
def test_the_newest_is_found_across_the_wrap(first: int, steps: list[int]) -> None:
    assert serial.newest([serial.advance(first, step) for step in steps]) == serial.advance(first, max(steps))
