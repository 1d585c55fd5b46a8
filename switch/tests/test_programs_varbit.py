"""Fields of variable length."""

from __future__ import annotations

import json
from typing import Any

import pytest

from switchsum_switch.errors import ProgramError
from switchsum_switch.execution.pipeline import EngineName, Pipeline

from .conftest import PROGRAMS

LONG = "00112233445566778899aabb"
"""As many bytes as the option may have."""


@pytest.fixture(scope="module", params=["interpreter", "native"])
def varbit(request: pytest.FixtureRequest) -> Pipeline:
    engine: EngineName = request.param
    return Pipeline.load((PROGRAMS / "varbit.json").read_bytes(), engine=engine)


def command(operation: int, bits: int, result: int = 0, checksum: int = 0) -> bytes:
    return bytes([operation, bits]) + result.to_bytes(4, "big") + checksum.to_bytes(2, "big")


def option(data: str, kind: int = 3, flags: int = 0, following: int = 0, behind: int = 0) -> bytes:
    """Return an option with its data in hexadecimal digits."""
    front, end = bytes([kind << 4 | flags]), (following << 12 | behind).to_bytes(2, "big")
    return front + bytes.fromhex(data) + end


@pytest.mark.parametrize("data", ["", "aa", "0011", "00112233", LONG])
def test_a_field_of_any_length_comes_and_goes(varbit: Pipeline, data: str) -> None:
    bits, zeros = 4 * len(data), "0" * len(data)
    for operation, expected, result in (
        (0, option(data), 0),
        (1, option(data) + option(data, kind=0xF), 0),
        (5, option(zeros, kind=0, following=9), 0),  # as in BMv2 it keeps its length when it was invalid
        (7, b"", 8 + 4),  # the length in egress: command and payload
    ):
        frame = command(operation, bits) + option(data) + b"rest"
        assert varbit.process(0, frame) == [(1, command(operation, bits, result) + expected + b"rest")]


@pytest.mark.parametrize(
    ("bits", "rest", "error"),
    [
        (12, option("aabb"), 0xA1),  # no whole bytes
        (255, option("aabb"), 0xA1),
        (104, option("aa" * 13), 0xA3),  # longer than the field may be
        (104, option("aa" * 2), 0xA2),  # longer, and the frame is too short
        (96, option("aa" * 12)[:-1], 0xA2),
        (8, option("99", following=2) + bytes.fromhex("02aabb 04ccddee 00"), 0xA3),
        (8, option("99", following=2) + bytes.fromhex("01aa 03ccddee 0199 0288"), 0xA4),  # the stack is full
        (8, option("99", following=2) + bytes.fromhex("03aabb"), 0xA2),
        (0, option("", following=3, behind=513) + bytes(2052), 0xA3),
        (0, option("", following=3, behind=512) + bytes(2047), 0xA2),
    ],
)
def test_wrong_lengths_are_errors_of_the_parser(varbit: Pipeline, bits: int, rest: bytes, error: int) -> None:
    expected = command(0, bits, error << 24 | bits) + rest
    assert varbit.process(0, command(0, bits) + rest) == [(1, expected)]


@pytest.mark.parametrize(
    ("operation", "first", "second", "expected", "result"),
    [
        (2, "0102", "00000102", "00000102", 0),
        (2, "00112233445566", "00000000", "00000000", 0),
        (3, "0102", "00000102", "0102", 2),  # as numbers they are equal, as in BMv2; the headers differ in `kind`
        (3, "00000102", "00000102", "00000102", 2),
        (3, "", "00000001", "", 0),
        (4, "0102", "00000102", "0102", 0x86B4652A),
        (4, "", "00000000", "", 0x67034F9B),
    ],
)
def test_fields_are_copied_compared_and_hashed(
    varbit: Pipeline, operation: int, first: str, second: str, expected: str, result: int
) -> None:
    bits, other = 4 * len(first), option(second, kind=1 if operation == 4 and first else 3)
    frame = command(operation, bits) + option(first, kind=3 if operation == 4 else 5, following=1) + other
    answer = command(operation, bits, result) + option(expected, kind=3 if operation == 4 else 5, following=1) + other
    assert varbit.process(0, frame + b"rest") == [(1, answer + b"rest")]


@pytest.mark.parametrize(
    ("data", "payload", "checksum"),
    [
        ("", "77", 0xCD88),
        ("", "7788", 0x4588),
        ("aa", "77", 0x5655),
        ("aa", "7788", 0x55CD),
        ("001122", "77", 0x45DD),
        ("0011223344556677889900aa", "7788", 0xF131),
    ],
)
def test_checksums_cover_a_field_and_the_payload(varbit: Pipeline, data: str, payload: str, checksum: int) -> None:
    """The sums are those that BMv2 sends."""
    bits, rest = 4 * len(data), option(data, flags=2) + bytes.fromhex(payload)
    assert varbit.process(0, command(0, bits, 0, 0x1234) + rest) == [(1, command(0, bits, 0, checksum) + rest)]
    verified = option(data, flags=1) + bytes.fromhex(payload)
    assert varbit.process(0, command(8, bits, 0, 0x1234) + verified) == [(1, command(8, bits, 1, 0x1234) + verified)]


def test_stacks_have_elements_of_different_lengths(varbit: Pipeline) -> None:
    items = "02aabb 03ccddee 00"
    for operation, left in ((0, items), (6, "03ccddee 00")):
        front = command(operation, 8) + option("99", following=2)
        frame = front + bytes.fromhex(items) + b"rest"
        assert varbit.process(0, frame) == [(1, front + bytes.fromhex(left) + b"rest")]


def test_a_long_field_is_not_copied_beyond_its_end(varbit: Pipeline) -> None:
    """A short frame after a long one has nothing of it."""
    for words in (512, 4, 0):
        frame = command(0, 0) + option("", following=3, behind=words) + bytes([words & 0xFF ^ 0x5A]) * (4 * words)
        assert varbit.process(0, frame + b"rest") == [(1, frame + b"rest")]


def test_a_trace_shows_the_bytes_that_are_there() -> None:
    pipeline = Pipeline.load((PROGRAMS / "varbit.json").read_bytes(), engine="interpreter")
    _, step = pipeline.trace(0, command(1, 16) + option("0a0b"))
    [shown] = [one.text for one in step.find("extract") if "option" in one.text]
    assert "data=0x0a0b" in shown
    assert "$" not in str(step)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda types: types["option_t"].pop("max_length"), r"option\.data is a field of variable length"),
        (lambda types: types["option_t"]["fields"].append(["more", "*"]), "second field of variable length"),
        (lambda types: types["option_t"]["fields"].insert(0, ["odd", 3, False]), "headers must have whole bytes"),
        (lambda types: types["long_t"].update(max_length=1 << 20), "1 to 524288 bits"),
    ],
)
def test_fields_that_cannot_be_are_refused(change: Any, text: str) -> None:
    document = json.loads((PROGRAMS / "varbit.json").read_text())
    change({one["name"]: one for one in document["header_types"]})
    with pytest.raises(ProgramError, match=text):
        Pipeline.load(json.dumps(document), engine="interpreter")
