"""Rules that the P4 sources keep, so that they stay easy to read and to move to another architecture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from switchsum.p4src import SOURCES

FILES = sorted(SOURCES.glob("*.p4"))
NAMES = [path.name for path in FILES]
TEXTS = {path.name: path.read_text() for path in FILES}
MAIN = "switchsum.p4"
MADE = "wire.p4"
"""Is made from a table: its macros serve several files, and may be more tomorrow."""
OPTION = "LANES"
"""The macro that p4c's command line may set."""
NEUTRAL = ("config.p4", "wire.p4", "types.p4", "chunks.p4", "headers.p4", "slot.p4")
"""Files that an edition for another architecture takes as they are."""
V1MODEL = re.compile(
    r"\b(v1model|standard_metadata|register|counter|direct_counter|meter|random|mark_to_drop|"
    r"verify_checksum|update_checksum|parser_error|egress_spec|mcast_grp)\b"
)
ROW = re.compile(r"^// +(\d+) \|.*\n((?://    \| .*\n)+)", re.M)
"""A row of the slot machine's table: its number, and the lines that continue it."""


def code(name: str) -> str:
    """Return a file without its comments."""
    return re.sub(r"//.*", "", TEXTS[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_file_says_its_licence(name: str) -> None:
    assert TEXTS[name].startswith("// SPDX-License-Identifier: Apache-2.0\n")


@pytest.mark.parametrize("name", [name for name in NAMES if name != MADE])
def test_a_macro_bears_the_name_of_its_file_and_ends_with_it(name: str) -> None:
    prefix = name.removesuffix(".p4").upper()
    macros = set(re.findall(r"^#define (\w+)", TEXTS[name], re.M)) - {f"{prefix}_P4", OPTION}
    assert {macro for macro in macros if not macro.startswith(f"{prefix}_")} == set()
    # The lists of chunks serve several files; they end with the program.
    undefined = set(re.findall(r"^#undef (\w+)", TEXTS[MAIN if name == "chunks.p4" else name], re.M))
    assert macros - undefined == set()
    assert f"{prefix}_P4" not in undefined  # the guard lasts as long as the program


@pytest.mark.parametrize("name", NEUTRAL)
def test_what_belongs_to_no_architecture_names_nothing_of_one(name: str) -> None:
    assert V1MODEL.findall(code(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_bits_are_compared_in_parentheses(name: str) -> None:
    # In P4 & binds tighter than ==, in C it does not: who knows C must not have to know that.
    assert re.findall(r"[^(&]\w+ [&|^] [\w.]+ [!=]= ", code(name)) == []
    assert re.findall(r"&& [^()]*\|\||\|\| [^()]*&&", code(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_names_of_numbers_have_no_order(name: str) -> None:
    # Sets of them have names, in types.p4. A number off the wire may be compared with the last that the program knows.
    ordinal = r"\(bit<8>\)(?:meta|hdr)[\w.]+ [<>]=? (?!\w+_LAST\b).*|meta\.(?:traffic|reason|reply) [<>]"
    assert re.findall(ordinal, code(name)) == []


def test_each_row_of_the_slot_machines_table_has_its_test() -> None:
    rows = ROW.findall(TEXTS["slot.p4"])
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    assert len(rows) == len(re.findall(r"^// +\d+ \|", TEXTS["slot.p4"], re.M)) > 1
    texts = [(Path(__file__).parent / name).read_text() for name in ("test_program.py", "test_trees.py")]
    there = set(re.findall(r"^def (test_\w+)", "".join(texts), re.M))
    for number, rest in rows:
        named = re.findall(r"\btest_\w+", rest)
        assert named, f"row {number} names no test"
        assert set(named) <= there, f"row {number} names a test that is not there"


def test_the_readme_draws_every_file() -> None:
    page = (SOURCES / "README.md").read_text()
    assert [name for name in NAMES if name not in page] == []
