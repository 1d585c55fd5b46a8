"""Whole members of a header stack at run-time indices: copied to and from, made invalid."""

from __future__ import annotations

import itertools

import pytest

from .conftest import Load

ITEMS = [b"A\x00\x01", b"B\x00\x02", b"C\x00\x03"]
COPY, TAKE, PUT, REMOVE = range(4)


def expected(operation: int, source: int, target: int) -> bytes:
    """Say in Python what the program does; the fourth member is invalid at first."""
    items: list[bytes | None] = [*ITEMS, None]
    single = None
    if operation == COPY:
        items[target] = items[source]
    elif operation == TAKE:
        single = items[source]
    elif operation == PUT:
        items[target] = b"\xee\x00\x00"
    else:
        items[target] = None
    return b"".join(part for part in (*items, single) if part is not None)


@pytest.mark.parametrize("operation", [COPY, TAKE, PUT, REMOVE])
def test_each_member_by_its_index(load: Load, operation: int) -> None:
    pipeline = load("members")
    for source, target in itertools.product(range(4), repeat=2):
        command = bytes([source, target, operation])
        sent = pipeline.process(1, command + b"".join(ITEMS) + b"rest")
        assert sent == [(1, command + expected(operation, source, target) + b"rest")], (source, target)


@pytest.mark.parametrize("operation", [COPY, PUT, REMOVE])
def test_an_index_beyond_the_end_does_nothing(load: Load, operation: int) -> None:
    frame = bytes([0, 4, operation]) + b"".join(ITEMS)
    assert load("members").process(1, frame) == [(1, frame)]
