"""The kit passes on our program: on the embedded switch and on real BMv2; and finds what is broken in a changed one."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from checks.mutate.slot import PROGRAM, Ingress
from switchsum.testing.bmv2 import Bmv2
from switchsum.testing.embedded import Embedded
from switchsum.testing.rig import (
    EPOCH,
    FIRST_SLOT,
    JOB,
    LIMITED_GROWTH,
    SLOT_COUNT,
    SWITCH,
    Engine,
    Rig,
    cookie,
    worker,
)
from switchsum_lab.conform.facts import Facts, MemberFacts
from switchsum_lab.conform.rules import RULES
from switchsum_lab.conform.run import run
from switchsum_lab.conform.wires import InProcess
from switchsum_switch.execution.pipeline import Pipeline

MEMBERS = 3
NO_BMV2 = pytest.mark.skipif(
    shutil.which("simple_switch_grpc") is None or os.geteuid() != 0, reason="needs simple_switch_grpc on PATH, and root"
)


def job_of(engine: Engine, lanes: int, growth_bytes: int | None) -> Facts:
    """Enter the kit's job on a switch that runs our program; return its facts."""
    Rig(engine, workers=MEMBERS, lanes_per_frame=lanes, growth_bytes=growth_bytes or 0xFFFF)
    return Facts(
        lanes=lanes,
        growth_bytes=growth_bytes,
        switch=SWITCH,
        job=JOB,
        epoch=EPOCH,
        first_slot=FIRST_SLOT,
        slot_count=SLOT_COUNT,
        fresh=True,
        members=tuple(MemberFacts(cookie=cookie(rank), address=worker(rank)) for rank in range(MEMBERS)),
    )


@pytest.mark.parametrize("growth_bytes", [None, pytest.param(LIMITED_GROWTH, marks=pytest.mark.slow)])
def test_the_embedded_switch_passes(growth_bytes: int | None) -> None:
    engine = Embedded(256, "native")
    facts = job_of(engine, 256, growth_bytes)
    outcome = run(InProcess(engine.process), facts)
    assert outcome.is_right, outcome.failures[:1]
    assert set(outcome.played) == set(RULES)


@pytest.mark.bmv2
@pytest.mark.root
@NO_BMV2
@pytest.mark.timeout(300)
@pytest.mark.parametrize("lanes", [128, pytest.param(256, marks=pytest.mark.slow)])
def test_bmv2_passes(lanes: int) -> None:
    with Bmv2(lanes) as engine:
        facts = job_of(engine, lanes, LIMITED_GROWTH)
        outcome = run(InProcess(engine.process), facts)
    assert outcome.is_right, outcome.failures[:1]
    assert set(outcome.played) == set(RULES)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name in PROGRAM if not name.startswith(("row 1:", "row 2:"))])
def test_each_change_of_the_program_is_found(name: str) -> None:
    ingress = Ingress()
    PROGRAM[name](ingress)
    engine = Embedded(128, "interpreter")
    engine.pipeline = Pipeline.load(json.dumps(ingress.program), engine="interpreter")
    facts = job_of(engine, 128, None)
    rule = f"row {name.split(':', maxsplit=1)[0].split()[1]}"
    outcome = run(InProcess(engine.process), facts, rules=[rule, "row 4", "row 10", "row 11"], tries=1, stops=True)
    assert outcome.broken, name
