"""Random programs that p4c has compiled, with frames that BMv2 has sent (`checks.random_p4.seeds`), on both engines."""

from __future__ import annotations

import pytest

from checks.random_p4.seeds import load
from switchsum_switch.stf import parse, run_embedded

PROGRAMS = 200
PART = 10
"""Programs of one test."""


@pytest.mark.parametrize("first", range(0, PROGRAMS, PART))
def test_both_engines_do_what_bmv2_did(first: int) -> None:
    programs = load()
    assert len(programs) == PROGRAMS
    for seed, program, text in programs[first : first + PART]:
        test = parse(text)
        for engine in ("interpreter", "native"):
            outcome = run_embedded(program, test, engine)
            assert outcome.problems == (), f"{engine}, program of seed {seed}"
            assert outcome.left > 0
