"""The rows of docs/sharing.md that are simulated: an aggregator that adds everything is a parameter server."""

from __future__ import annotations

import pytest

from checks.lab.sharing_rig import Case, Found
from checks.lab.sharing_rows import (
    ALL,
    ALONE,
    BEGIN,
    END,
    PAGE,
    PART,
    SERVER,
    SHARED,
    TREE,
    formula_ms,
    simulate,
    trip_delay_s,
)


def test_a_job_that_holds_all_slots_makes_the_aggregator_a_server_with_a_full_link() -> None:
    case = Case(sizes=(40_000, 40_000), way=SERVER, mbit=50.0, slots=8, window=4)
    found = simulate(case, 5e-5)
    assert found.taken == 1.0
    assert 1.0 < max(found.ms) / formula_ms(case) < 1.1


def test_a_cable_is_as_slow_as_a_round_trip_says() -> None:
    trip_ms = 2 * (0.1 + 1e3 * 8 * 1118 / 50e6)
    assert trip_delay_s(Found(ms=(392 * trip_ms,), taken=0.0), ALONE[0]) == pytest.approx(1e-4, rel=0.1)


def test_in_two_racks_the_spine_adds_what_a_tree_adds_for_twice_the_bytes_of_an_uplink() -> None:
    tree, part, shared = (
        simulate(Case(sizes=(40_000, 40_000), way=way, mbit=50.0, slots=64, window=8, racks=2), 5e-5)
        for way in (TREE, PART, SHARED)
    )
    assert max(shared.ms) < 1.3 * max(tree.ms)
    assert part.up_mb == pytest.approx(2 * tree.up_mb)
    assert shared.up_mb == pytest.approx(part.up_mb, rel=0.2), "a claim and a last round of each slot"


def test_the_page_has_a_place_for_the_rows() -> None:
    page = PAGE.read_text()
    assert page.index(BEGIN) < page.index(END)
    assert len({*ALL}) == len(ALL)
