"""Operators, wide values and hashes, each against the same thing said in Python."""

from __future__ import annotations

import json
import random
import zlib

import pytest

from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.wires.headers import internet_checksum

from .conftest import PROGRAMS, Load

WIDE_BYTES = 256
ODD_BITS = 4 + 132 + 128 + 192
FULL = (1 << 2048) - 1
LANE_LOW = int("7fff" * 128, 16)


def signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def expected_arithmetic(a: int, b: int, c: int, d: int, e: int, f: int) -> list[tuple[int, int]]:
    """Return (value, width) of every result that arithmetic.p4 gives."""
    c_signed, d_signed = signed(c, 8), signed(d, 8)
    return [
        (a + b, 8),
        (a - b, 8),
        (a * b, 8),
        (a & b, 8),
        (a | b, 8),
        (a ^ b, 8),
        (~a, 8),
        (a << b, 8),
        (a >> b, 8),
        (c_signed >> b, 8),
        (clamp(a + b, 0, 255), 8),
        (clamp(a - b, 0, 255), 8),
        (clamp(c_signed + d_signed, -128, 127), 8),
        (clamp(c_signed - d_signed, -128, 127), 8),
        (a << 8 | b, 16),
        ((a << 8 | b) >> 4, 8),
        (max(a, b), 8),
        (c_signed, 16),
        (a, 16),
        (a << 3, 8),
        (a >> 3, 8),
        (a < b, 1),
        (c_signed < d_signed, 1),
        (a == b, 1),
        ((a != 0 and b != 0) or a >= 5, 1),
        (a + (b >> 4), 4),
        (-a, 8),
        ((e + f) % (1 << 13), 16),
    ]


def bits(values: list[tuple[int, int]]) -> bytes:
    number = length = 0
    for value, width in values:
        number = number << width | value & ((1 << width) - 1)
        length += width
    assert length % 8 == 0
    return number.to_bytes(length // 8, "big")


def test_every_operator_on_narrow_values(load: Load) -> None:
    pipeline = load("arithmetic")
    draw = random.Random(1)
    edges = [0, 1, 7, 8, 127, 128, 254, 255]
    cases = [(a, b, b, a, a << 5 | 31, b & 7) for a in edges for b in edges]
    for _ in range(200):
        a, b, c, d = draw.randbytes(4)
        cases.append((a, b, c, d, draw.getrandbits(13), draw.getrandbits(3)))
    for case in cases:
        frame = bits(list(zip(case, (8, 8, 8, 8, 13, 3), strict=True)))
        assert pipeline.process(0, frame) == [(1, bits(expected_arithmetic(*case)))], case


def run_wide(
    operation: int, amount: int, index: int, a: int, b: int, odd: tuple[int, int, int, int]
) -> tuple[int, int, int, int, tuple[int, int, int, int]]:
    """Do what wide.p4's stateless operations do; return amount, index, a, b and the odd fields."""
    head, middle, unaligned, tail = odd
    match operation:
        case 0:
            a = a + b & FULL
        case 1:
            a = a - b & FULL
        case 2:
            a = ((a & LANE_LOW) + (b & LANE_LOW)) ^ ((a ^ b) & (FULL ^ LANE_LOW))
        case 3:
            a, b = b, a
        case 4:
            amount = (a == b) | (a < b) << 1 | (a != 0) << 2
        case 5:
            index, amount = a >> 1016 & 0xFFFF, (b & 0x3F) << 2 | a >> 2046
            head = b >> 1024 & 0xF
        case 6:
            a = a << amount & FULL
        case 7:
            a >>= amount
        case 10:
            middle = (middle + 1) % (1 << 132)
            unaligned = unaligned * 3 % (1 << 128)
            tail = (tail - 1) % (1 << 192)
        case 11:
            a = (a % (1 << 1024)) << 1024 | b >> 1024
        case 12:
            a = b if amount > 127 else a ^ FULL
        case 13:
            a, b = b, (5 if amount == 0 else a)
    return amount, index, a, b, (head, middle, unaligned, tail)


def wide_frame(operation: int, amount: int, index: int, a: int, b: int, odd: tuple[int, int, int, int]) -> bytes:
    widths = [(value, width) for value, width in zip(odd, (4, 132, 128, 192), strict=True)]
    return bits([(operation, 8), (amount, 8), (index, 16), (a, 2048), (b, 2048), *widths])


def wide_cases(count: int) -> list[tuple[int, int, tuple[int, int, int, int]]]:
    draw = random.Random(2)
    zeros = (0, 0, 0, 0)
    cases = [(0, 0, zeros), (FULL, 1, (15, (1 << 132) - 1, (1 << 128) - 1, 0)), (1, FULL, zeros), (FULL, FULL, zeros)]
    for _ in range(count):
        odd = (draw.getrandbits(4), draw.getrandbits(132), draw.getrandbits(128), draw.getrandbits(192))
        a = draw.getrandbits(2048)
        cases.append((a, draw.choice([draw.getrandbits(2048), a, a + 1 & FULL]), odd))
    return cases


@pytest.mark.parametrize("operation", [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13])
def test_wide_operations(load: Load, operation: int) -> None:
    pipeline = load("wide")
    for a, b, odd in wide_cases(12):
        for amount in (0, 1, 64, 200, 255):
            frame = wide_frame(operation, amount, 3, a, b, odd)
            expected = wide_frame(operation, *run_wide(operation, amount, 3, a, b, odd))
            assert pipeline.process(0, frame + b"payload") == [(1, expected + b"payload")]


def test_wide_registers(load: Load) -> None:
    pipeline = load("wide")
    cells, odd_cells = [0] * 4, [0] * 2
    for turn, (a, b, odd) in enumerate(wide_cases(40)):
        index = turn * 7 % 6  # beyond the end of both arrays now and then
        operation = 8 + turn % 3 // 2
        middle = odd[1]
        old = cells[index] if index < 4 else 0
        if operation == 8:
            new_a, new_b, new_middle = a, old ^ a, middle
            stored = new_b
            if index < 2:
                odd_cells[index] = middle
        else:
            new_a, new_b, new_middle = old, b, odd_cells[index] if index < 2 else 0
            stored = b
        if index < 4:
            cells[index] = stored
        expected = wide_frame(operation, 0, index, new_a, new_b, (odd[0], new_middle, *odd[2:]))
        assert pipeline.process(0, wide_frame(operation, 0, index, a, b, odd)) == [(1, expected)]
    register = pipeline.registers["SwitchIngress.cells"]
    assert [register.read(index) for index in range(4)] == cells


def crc16(data: bytes) -> int:
    """CRC-16/ARC by its definition: polynomial 0x8005 over bits, lowest first."""
    remainder = 0
    for byte in data:
        for position in range(8):
            top = (remainder >> 15) ^ (byte >> position & 1)
            remainder = (remainder << 1 & 0xFFFF) ^ (0x8005 if top else 0)
    return int(f"{remainder:016b}"[::-1], 2)


def test_hashes(load: Load) -> None:
    pipeline = load("hashing")
    draw = random.Random(3)
    assert crc16(b"123456789") == 0xBB3D
    for _ in range(50):
        widths = (32, 32, 8, 16, 4, 4, 256)
        a, _, c, d, e, f, g = values = [draw.getrandbits(width) for width in widths]
        frame = bits(list(zip(values, widths, strict=True)))
        five = frame[:11]
        odd = bits([(e, 4), (a, 32), (d, 16), (0, 4)])
        wide = bits([(g, 256), (f, 4), (e, 4)])
        words = [int.from_bytes((five + b"\0")[start : start + 2], "big") for start in range(0, 12, 2)]
        exclusive = 0
        for word in words:
            exclusive ^= word
        expected = [
            (crc16(five), 16),
            (zlib.crc32(five), 32),
            (internet_checksum(five), 16),
            (exclusive, 16),
            (a << 8 | c, 64),
            (100 + zlib.crc32(five) % 7, 32),
            (crc16(odd), 16),
            (zlib.crc32(wide), 32),
            (3, 8),
            (crc16(five), 16),
            (zlib.crc32(five), 32),
        ]
        assert pipeline.process(0, frame) == [(1, frame + bits(expected))]


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_a_struct_in_a_hash_stands_for_its_fields(engine: EngineName) -> None:
    frame = bytes(range(1, 73))
    sent = []
    for whole in (True, False):
        document = json.loads((PROGRAMS / "hashing.json").read_text())
        standard = next(one for one in document["header_types"] if one["name"] == "standard_metadata")
        fields = [{"type": "field", "value": ["standard_metadata", name]} for name, *_ in standard["fields"]]
        for calculation in document["calculations"]:
            calculation["input"] = [{"type": "header", "value": "standard_metadata"}] if whole else fields
        pipeline = Pipeline.load(json.dumps(document), engine=engine)
        sent.append([pipeline.process(port, frame) for port in (1, 2)])
    assert sent[0] == sent[1]
    assert sent[0][0] != sent[0][1]  # the port of arrival is among the fields
