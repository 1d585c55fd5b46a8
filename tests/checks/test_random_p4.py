"""Random programs as text: the same for the same seed, whole without any statement, each table applied once at most."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from random import Random

import pytest

from checks.random_p4 import __main__ as random_p4
from checks.random_p4.__main__ import main, shrunk
from checks.random_p4.generate import generate

SEEDS = range(60)


@cache
def all_texts() -> str:
    return "\n".join(generate(seed).text() for seed in range(150))


def is_balanced(text: str) -> bool:
    pairs, opened = {"}": "{", ")": "(", "]": "["}, list[str]()
    for character in re.sub(r'"[^"]*"', "", text):
        if character in pairs.values():
            opened.append(character)
        elif character in pairs and (not opened or opened.pop() != pairs[character]):
            return False
    return not opened


@pytest.mark.parametrize("seed", SEEDS)
def test_a_program_follows_from_its_seed(seed: int) -> None:
    text = generate(seed).text()
    assert text == generate(seed).text()
    assert text != generate(seed + 1).text()
    assert is_balanced(text)
    for name in ("table0_ingress", "table1_ingress", "table0_egress", "table1_egress"):
        assert text.count(f"table {name} {{") == 1
        assert text.count(f"{name}.apply()") <= 1  # BMv2's tables stand in one place each


@pytest.mark.parametrize(
    "word",
    [
        *("for (", "break;", "continue;", "b.advance(", "b.lookahead<", "value_set<", "verify(", "assume(", "assert("),
        *("direct_meter<", "direct_counter(", ".execute_meter(", "register<", "action_selector(", "action_profile("),
        *("hash(", "random(", "digest<", "truncate(", "log_msg(", "mark_to_drop(", "verify_checksum"),
        "update_checksum",
        *("push_front", "pop_front", "header_union", "varbit", ".hit", ".miss", "action_run", "exit;", "return;"),
        *("clone_preserving", "resubmit_preserving", "recirculate_preserving", "mcast_grp", "const entries", "enum "),
        *(": exact", ": lpm", ": ternary", ": range", ": optional", ": selector"),
    ],
)
def test_programs_have_everything(word: str) -> None:
    assert word in all_texts()


def test_statements_can_be_left_out() -> None:
    draw = Random(1)
    for seed in SEEDS:
        program = generate(seed)
        numbers = program.numbers()
        assert len(numbers) == len(set(numbers)) > 10
        dropped = set(draw.sample(numbers, len(numbers) // 2))
        assert is_balanced(program.text(dropped))
        assert len(program.text(dropped)) < len(program.text())
        assert is_balanced(program.text(numbers))


def test_a_program_is_cut_down_to_the_statements_that_matter() -> None:
    for seed in SEEDS[:10]:
        program = generate(seed)
        [wanted] = Random(seed).sample(program.numbers(), 1)

        def holds(dropped: Collection[int], wanted: int = wanted) -> bool:
            return wanted not in dropped

        assert set(program.numbers()) - shrunk(program, holds) == {wanted}


def test_the_command_shows_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--show", "--seed", "4"]) == 0
    assert capsys.readouterr().out == generate(4).text()


def test_a_run_goes_on_behind_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a program for which p4c finds no end."""
    monkeypatch.setattr(random_p4, "COMPILE_S", 1)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / random_p4.COMPILER).write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / random_p4.COMPILER).chmod(0o755)
    record = tmp_path / "record"
    arguments = ["--seed", "7", "--no-bmv2", "--small", "--record", str(record)]
    assert main([*arguments, "--programs", "1"]) == 0
    (tmp_path / random_p4.COMPILER).write_text("#!/bin/sh\necho 'Compiler Bug' >&2\nexit 1\n")
    assert main([*arguments, "--programs", "3"]) == 0
    made = [json.loads(line)[:2] for line in record.read_text().splitlines()]
    assert made == [[seed, "refused"] for seed in (7, 8, 9)]
    record.write_text(record.read_text() + json.dumps([10, "same", 60, 5, 40]) + "\n")
    found = random_p4.Record(record)
    assert (found.following, dict(found.counts)) == (11, {"refused": 3, "same": 1})
    assert (found.tally.packets, found.tally.entries, found.tally.frames) == (60, 5, 40)
