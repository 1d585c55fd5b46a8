"""Serial numbers of a slot's rounds (RFC 1982 arithmetic on 32 bits)."""

from __future__ import annotations

from typing import Final

NUMBER_BITS: Final = 32
_MASK: Final = (1 << NUMBER_BITS) - 1


def advance(number: int, rounds: int = 1) -> int:
    """Return the number that comes `rounds` rounds after `number`."""
    return (number + rounds) & _MASK


def is_older(number: int, than: int) -> bool:
    """Tell whether `number` comes before `than`; the two must lie less than 2**31 rounds apart."""
    return bool((number - than) & _MASK & (1 << (NUMBER_BITS - 1)))


def newest(numbers: list[int]) -> int:
    """Return the number of a non-empty list that no other one is newer than (all within 2**31 of each other)."""
    best = numbers[0]
    for number in numbers[1:]:
        if is_older(best, number):
            best = number
    return best


def version(number: int) -> int:
    """Return which of a slot's two versions the round `number` uses."""
    return number & 1
