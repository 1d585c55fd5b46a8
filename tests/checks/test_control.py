"""Processor time of entries and starts: what is counted, with few of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from checks.bench import control
from checks.bench.choice import Choice
from checks.bench.control import entries, parsing, run, start
from checks.bench.program_cases import PROGRAMS, fill_firewall
from checks.bench.records import Record

FIREWALL = replace(PROGRAMS[1], fill=partial(fill_firewall, count=200, masks=8))


def test_entries_take_processor_time_of_the_switch() -> None:
    assert 0 < parsing(FIREWALL) < entries(FIREWALL) < 5


def test_switches_start_together() -> None:
    started = start(FIREWALL, 2)
    assert started.processor_s > 0
    assert started.seconds > 0
    assert started.megabytes > 10


def test_a_record_has_parsing_beside_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ROUTES": 300, "RULES": 100, "MASKS": 8, "SWITCHES": (1,)}.items():
        monkeypatch.setattr(control, name, value)
    records: dict[str, Record] = {one.name: one for one in run(Choice(runs=1))}
    assert records.keys() == {"control.lpm.300", "control.ternary.100", "control.start.1"}
    assert all("parsing alone" in one.more for name, one in records.items() if "start" not in name)
