"""Fields of variable length that begin within a byte, against the same bits put together in Python."""

from __future__ import annotations

import shutil
import zlib

import pytest

from switchsum_switch.differ.search import Differ

from .conftest import PROGRAMS, Load

DATA = ["", "a5", "0102", "ff00ff00", "00112233445566778899aabb"]


def odd(data: str, kind: int = 6, behind: int = 0x0A) -> bytes:
    bits = kind << 4 * len(data) + 5 | int(data or "0", 16) << 5 | behind
    return bits.to_bytes(len(data) // 2 + 1, "big")


def deep(data: str, following: int = 2, wide: int = 0x0123456789ABCDEF << 64) -> bytes:
    bits = (4 * len(data)) << 4 * len(data) + 3 | int(data or "0", 16) << 3 | following
    return (bits << 128 | wide).to_bytes(len(data) // 2 + 18, "big")


def command(operation: int, data: str, result: int = 0) -> bytes:
    return bytes([operation, 4 * len(data)]) + result.to_bytes(4, "big")


@pytest.mark.parametrize("data", DATA)
def test_the_field_and_its_neighbours(load: Load, data: str) -> None:
    pipeline = load("unaligned")
    zeros = "0" * len(data)
    hashed = zlib.crc32(odd(data))
    for operation, result, expected in (
        (0, 0, odd(data)),
        (1, 0, odd(data) + odd(data, kind=5)),
        (2, 0, odd(data, kind=7, behind=0x15)),
        (3, hashed, odd(data)),
        (5, 1, odd(data) + odd(data, behind=0)),
        (6, 0, odd(zeros, kind=0, behind=9)),
    ):
        frame = command(operation, data) + odd(data) + b"rest"
        assert pipeline.process(0, frame) == [(1, command(operation, data, result) + expected + b"rest")], operation


@pytest.mark.parametrize("data", DATA)
def test_what_is_behind_the_field(load: Load, data: str) -> None:
    pipeline = load("unaligned")
    for long in ("", "c3", "5a" * 65):
        front = odd(data, behind=1)
        for operation, expected in (
            (0, front + deep(long)),
            (4, front),
            (7, front + deep(long, following=7, wide=(0x0123456789ABCDEF << 64) + 1)),
        ):
            frame = command(operation, data) + front + deep(long) + b"rest"
            assert pipeline.process(0, frame) == [(1, command(operation, data) + expected + b"rest")], operation
    short = command(0, data) + odd(data, behind=1) + deep("c3")[:-1]
    assert pipeline.process(0, short) == [(1, command(0, data, 0xEE) + short[6:])]


@pytest.mark.bmv2
@pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on PATH")
def test_bmv2_agrees() -> None:
    differ = Differ((PROGRAMS / "unaligned.json").read_bytes(), bmv2=True)
    assert [differ.try_seed(seed) for seed in range(3)] == [None] * 3
    assert differ.tally.frames > 100
