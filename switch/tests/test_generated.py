"""Tests that p4testgen has made of our programs (`python -m checks.conformance.ours`), on both engines."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from switchsum_switch.execution.pipeline import EngineName
from switchsum_switch.stf import parse, run_embedded

HERE: Final = Path(__file__).parent
FILE: Final = HERE / "generated_tests.jsonl"


@cache
def made_of_ours() -> dict[str, list[tuple[str, str]]]:
    made: dict[str, list[tuple[str, str]]] = {}
    for line in FILE.read_text().splitlines():
        one = json.loads(line)
        made.setdefault(one["program"], []).append((one["name"], one["stf"]))
    return made


def test_there_are_a_hundred() -> None:
    assert sum(map(len, made_of_ours().values())) >= 100
    assert all("expect" in text or "packet" in text for found in made_of_ours().values() for _, text in found)


@pytest.mark.parametrize("engine", ["interpreter", "native"])
@pytest.mark.parametrize("program", sorted(made_of_ours()))
def test_a_program_passes_what_p4testgen_expects(program: str, engine: EngineName) -> None:
    text = (HERE / "programs" / f"{program}.json").read_bytes()
    for name, stf in made_of_ours()[program]:
        problems = run_embedded(text, parse(stf, name), engine).problems
        assert not problems, f"{name}: {problems}\n{stf}"
