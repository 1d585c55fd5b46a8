"""Parser, headers, stacks and checksums."""

from __future__ import annotations

import random
import zlib

import pytest

from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.program.hashes import HASHES
from switchsum_switch.wires.headers import internet_checksum

from .conftest import PROGRAMS, Load

FIRST, SECOND, THIRD = 4, 2, 1
FINE, TOO_SHORT, UNWANTED = 0, 1, 2


@pytest.mark.parametrize(
    ("frame", "code", "seen", "headers"),
    [
        ("", TOO_SHORT, 0, 0),  # the lookahead finds nothing
        ("ff 01 02", FINE, 0, 0),
        ("10", TOO_SHORT, 0, 0),
        ("10 00 1234 56", FINE, FIRST | SECOND, 4),
        ("10 00 12", TOO_SHORT, FIRST, 2),
        ("18 00 123456 78", FINE, FIRST | THIRD, 5),
        ("1f 00 123456", FINE, FIRST | THIRD, 5),
        ("14 00 123456", FINE, FIRST, 2),  # neither flag 0 nor the top flag
        ("30 00 1234", FINE, FIRST | SECOND, 4),
        ("50 00 1234", FINE, FIRST | SECOND, 4),
        ("60 00 1234", FINE, FIRST, 2),
        ("10 ee 1234", UNWANTED, FIRST, 2),
        ("20 02 aabb 1234 55", FINE, FIRST | SECOND, None),
        ("20 02 aabb 001234 55", FINE, FIRST | THIRD, None),
        ("20 00 1234", FINE, FIRST | SECOND, 4),
        ("20 02 aa", TOO_SHORT, FIRST, 2),  # cannot skip so far
        ("20 02 aabb 12", TOO_SHORT, FIRST, None),  # cannot look so far ahead
        ("20 ff 1234", TOO_SHORT, FIRST, 2),
    ],
)
def test_parser(load: Load, frame: str, code: int, seen: int, headers: int | None) -> None:
    data = bytes.fromhex(frame)
    [(port, out)] = load("parsing").process(0, data)
    assert port == 1
    assert (out[0], out[1]) == (code, seen)
    if headers is not None:
        assert out[2:] == data
    else:  # what was skipped is gone
        assert out[2:] == data[:2] + data[4:]


WIDE = bytes(range(33))


@pytest.mark.parametrize(
    ("command", "one", "two", "first", "second", "change"),
    [
        (0, b"\x05", b"", WIDE, b"", 0),
        (1, b"\x05", b"\0", WIDE, bytes(33), 34),
        (2, b"\x05", b"\x05", WIDE[:1] + bytes(31) + b"\1", b"\x09" + WIDE[1:], 0),
        (3, b"", b"", b"", b"", -34),
        (4, b"\x05", b"", bytes(33), b"", 0),
        (5, b"\x07", b"\x07", WIDE[:1] + bytes(255 - byte for byte in WIDE[1:]), b"\0" + WIDE[1:], 34),
        (6, b"\x05", b"", WIDE[:-1] + b"\x21", b"\0" + WIDE[1:-1] + b"\x21", 0),
    ],
)
def test_headers_come_and_go(
    load: Load, command: int, one: bytes, two: bytes, first: bytes, second: bytes, change: int
) -> None:
    frame = bytes([command]) + b"\x05" + WIDE + b"rest"
    # The length in egress counts what addHeader and removeHeader did, not copies, and the length header itself.
    lengths = len(frame).to_bytes(4, "big") + (len(frame) + 8 + change).to_bytes(4, "big")
    expected = lengths + bytes([command]) + one + two + first + second + b"rest"
    assert load("headers").process(0, frame) == [(1, expected)]


def labels(*values: int) -> bytes:
    """Return labels, the last one marked."""
    return bytes(value << 1 | (number == len(values) - 1) for number, value in enumerate(values))


def numbers(*values: int, at: int = 0) -> bytes:
    """Return numbers, the first one followed by `at` and all others by 0."""
    made = bytearray(byte for value in values for byte in (value & 0xFF, 0))
    made[1] = at
    return bytes(made)


def command(operation: int, index: int = 0, result: int = 0) -> bytes:
    return bytes([operation, index, result])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (command(0) + labels(1, 2, 3), command(0) + labels(1, 2, 3)),
        (command(0) + labels(1, 2, 3, 4, 5), command(0, 0, 0xEE) + labels(1, 2, 3, 4, 5)),
        (command(1) + labels(1, 2), command(1) + bytes([0xAA]) + labels(1, 2)),
        (command(1) + labels(1, 2, 3, 4), command(1) + bytes([0xAA]) + labels(1, 2, 3, 4)[:3]),
        (command(2) + labels(1, 2, 3), command(2) + labels(1, 2, 3)[2:]),
        (command(2) + labels(1), command(2)),
        (command(3, 2) + labels(1, 2, 3), command(3, 2, 3) + labels(1, 2, 3)),
        (command(4, 1) + labels(1, 2, 3), command(4, 1) + labels(1, 0x2A, 3)),
        (command(4, 9) + labels(1, 2, 3), command(4, 9) + labels(1, 2, 3)),
        (command(5) + labels(9, 2), command(5) + labels(9, 2) + labels(1, 2)),
        (command(6) + labels(9, 2), command(6) + labels(9, 2) + bytes([18])),
        (command(7, 1) + numbers(3, -128, 0), command(7, 1, 0x80) + numbers(3, -128, 0)),
        (command(7, 2) + numbers(-3, 0, -1), command(7, 2, 2) + numbers(-3, 0, -1)),
        (command(7, 1) + numbers(3, 127, 0), command(7, 1) + numbers(3, 127, 0)),
        (command(7, 2) + numbers(3, -1, 1) + labels(5), command(7, 2) + labels(5) + numbers(3, -1, 1)),
        (command(8, 7) + numbers(1, 1, 0, at=2), command(8, 7) + numbers(1, 1, 0, at=2)[:5] + b"\7"),
        (command(8, 2) + numbers(1, 1, 0, at=0), command(8, 2) + numbers(1, 1, 0, at=2)),
        (command(8, 1) + numbers(1, 1, 0, at=0), command(8, 1) + numbers(1, 1, 0, at=1)),
        (command(8, 7) + numbers(1, 1, 0, at=1), command(8, 7) + numbers(1, 1, 0, at=1)[:3] + b"\7" + b"\0\0"),
    ],
)
def test_stacks(load: Load, given: bytes, expected: bytes) -> None:
    assert load("stacks").process(0, given + b"rest") == [(1, expected + b"rest")]


@pytest.mark.parametrize("engine", ["interpreter", "native"])
@pytest.mark.parametrize("first", [0, 1, 2, 200])
def test_an_index_may_read_the_fields_to_which_it_leads(engine: EngineName, first: int) -> None:
    """The index is the sum of two of the fields: it is computed before any of them is assigned."""
    text = (PROGRAMS / "stacks.json").read_text()
    one, other = (f'{{"type":"field","value":["numbers[{number}]","next"]}}' for number in (0, 1))
    both = f'{{"type":"expression","value":{{"op":"+","left":{one},"right":{other}}}}}'
    pipeline = Pipeline.load(text.replace(one, both), engine=engine)
    given = bytes([1, first, 1, 0, 0, 0])
    expected = bytearray(given)
    if first < 3:
        expected[2 * first + 1] = 7
    assert pipeline.process(0, command(8, 7) + given) == [(1, command(8, 7) + expected)]


def padded(bits: str) -> bytes:
    bits += "0" * (-len(bits) % 8)
    return int(bits or "0", 2).to_bytes(len(bits) // 8, "big")


def as_bits(data: bytes) -> str:
    return "".join(f"{byte:08b}" for byte in data)


@pytest.mark.parametrize("present", range(8))
def test_checksums(load: Load, present: int) -> None:
    pipeline = load("checksums")
    draw = random.Random(present)
    for size in (0, 1, 64, 127):
        first, wide, last = (draw.randbytes(count) if present >> bit & 1 else b"" for bit, count in
                             enumerate((3, 258, 2)))  # fmt: skip
        payload = draw.randbytes(size)
        everything = as_bits(first) + "00011" + as_bits(wide + last) + f"{0xABCD:016b}"
        right = internet_checksum(padded(everything))
        for checksum, error in ((right, 0), (right ^ 1, 1)):
            frame = bytes([present]) + checksum.to_bytes(2, "big") + bytes(7) + first + wide + last + payload
            odd = internet_checksum(first[2:] + last[:1] + bytes([present])) if first else 0
            with_payload = internet_checksum(first[2:] + last[:1] + payload)
            results = b"".join(value.to_bytes(2, "big") for value in (right, odd, with_payload))
            expected = frame[:3] + results + bytes([error]) + frame[10:]
            assert pipeline.process(0, frame) == [(1, expected)]


def test_checksum_of_zeros_is_all_ones(load: Load) -> None:
    frame = bytes([1]) + bytes(9) + bytes(3)
    [(_, out)] = load("checksums").process(0, frame)
    assert int.from_bytes(out[7:9], "big") == 0xFFFF


@pytest.mark.parametrize("size", [0, 1, 5, 6, 64, 999])
def test_every_hash_covers_the_payload(load: Load, size: int) -> None:
    pipeline, payload = load("payload"), random.Random(size).randbytes(size)
    hashed = bytes([0xA5, 0b110_00000]) + payload
    for crc32, wrong in ((zlib.crc32(hashed), 0), (zlib.crc32(hashed) ^ 1, 1)):
        fields = bytes([0xA5, 0b110_00000 | wrong])
        results = b"".join(
            HASHES[name](hashed).to_bytes(bits // 8, "big")
            for name, bits in (("csum16", 16), ("crc16", 16), ("crc32", 32), ("xor16", 16), ("identity", 64))
        )
        frame = hashed[:2] + bytes(4) + crc32.to_bytes(4, "big") + bytes(10) + payload
        assert pipeline.process(0, frame) == [(1, fields + results + payload)]
