"""Random programs as text: the same for the same seed, whole without any statement, each table applied once at most."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from random import Random

import pytest

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
