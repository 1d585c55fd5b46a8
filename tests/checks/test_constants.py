"""Each constant of a worker's recovery can be changed alone, and the page says which networks need it."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from checks.bench.ages import unmarked
from checks.compiled import copy_code, holding
from checks.constants import __main__ as command
from checks.constants import page, sources, trying
from checks.constants.neutral import ELSEWHERE, FIXED, NEUTRAL
from checks.rough import short
from checks.rough.cells import Cell

CONSTANTS = sources.constants()
SOURCE = """\
from typing import Final

_TRIPS: Final = 16
\"\"\"Round trips.\"\"\"
_MOST: Final = 1 << _TRIPS
half = 1 / 2

def now():
    return _TRIPS + _MOST + half
"""


def test_each_constant_has_values_that_switch_it_off_or_a_reason_why_not() -> None:
    assert NEUTRAL.keys().isdisjoint(FIXED)
    assert ELSEWHERE.keys() <= NEUTRAL.keys()
    assert NEUTRAL.keys() | FIXED.keys() == CONSTANTS.keys(), "checks/constants/neutral.py has the values"


def test_the_page_has_each_constant_with_its_value() -> None:
    text = page.PAGE.read_text()
    missing = [one.name for one in CONSTANTS.values() if f"| `{one.name}` | {one.value} |" not in text]
    assert missing == [], "python -m checks.constants --only NAME, and then --publish"


def test_the_page_has_what_was_found() -> None:
    text = unmarked(page.PAGE.read_text())
    assert page.between() == text.partition(page.BEGIN)[2].partition(page.END)[0]


def test_each_constant_is_needed_by_a_network_or_says_where_it_decides() -> None:
    needed = {name for name, row in page.kept().items() if command.is_needed(row)}
    assert CONSTANTS.keys() - needed - FIXED.keys() - ELSEWHERE.keys() == set(), "what nothing needs can go"


def test_values_that_were_tried_are_those_of_the_table() -> None:
    for name, row in page.kept().items():
        known = {f"{value:g}" for value in NEUTRAL[name]} if name in NEUTRAL else set(row["tries"])
        assert row["tries"].keys() <= known, name


def test_constants_are_numbers_and_not_what_is_computed_of_them() -> None:
    assert CONSTANTS["pacing._BURST"].value == "1 / 8"
    assert CONSTANTS["pacing._BURST"].module == "switchsum_host.engine.policies.pacing"
    assert not {"timer._MOST_TIMES", "round_trips.UNKNOWN", "recovery._REPEAT"} & CONSTANTS.keys()


def test_functions_read_constants_from_memory_and_what_is_computed_of_them_too() -> None:
    known = {"pacing._TRIPS": CONSTANTS["pacing._TRIPS"]}
    text = ast.unparse(sources.changed(SOURCE, known["pacing._TRIPS"].module, known))
    place = known["pacing._TRIPS"].place
    assert f"return _changed_integer({place}) + (1 << _changed_integer({place})) + half" in text
    assert "_TRIPS: Final = 16" in text


def test_constants_of_other_modules_are_read_from_memory_too() -> None:
    known = {name: CONSTANTS[name] for name in ("round_trips.FEW_TIMED", "window.LEAST")}
    few, least = (one.place for one in known.values())
    imported = "from typing import Final\nfrom .round_trips import FEW_TIMED as few\n\ndef now(): return few\n"
    text = ast.unparse(sources.changed(imported, "switchsum_host.engine.policies.window", known))
    assert f"return _changed_integer({few})" in text
    named = "from typing import Final\nfrom .policies import window\n\ndef now(): return window.LEAST\n"
    text = ast.unparse(sources.changed(named, "switchsum_host.engine.congestion", known))
    assert f"return _changed_real({least})" in text


def test_a_module_that_has_been_imported_is_refused() -> None:
    from switchsum_host.engine.policies import window

    with pytest.raises(ImportError, match=window.__name__):
        sources.install()


@pytest.mark.slow
def test_a_process_goes_as_the_engine_does_and_otherwise_only_while_a_constant_is_changed() -> None:
    cells = {"four-frames": short.CELLS["four-frames"].text}
    usual = trying.outcomes(cells.items())
    trier = trying.Trier(cells)
    try:
        assert trier.found() == usual
        changed = trier.found(CONSTANTS["delivery._FULL"], 1e9)
        assert changed["four-frames"]["repeats"] > 2 * usual["four-frames"]["repeats"]
        assert trier.found() == usual
    finally:
        trier.close()


def test_code_that_holds_no_constant_is_copied_and_other_code_is_not(tmp_path: Path) -> None:
    held = holding(sources.modules())
    assert {"switchsum_host.engine.by_hand", "switchsum_host.engine.loop", "switchsum_host.engine.recovery"} <= held
    assert not {"switchsum_host.engine.kernels", "switchsum_lab.simulation.loop", "switchsum_switch.ports"} & held
    assert "switchsum_lab.simulation.loop" in holding({"switchsum_host.engine.receiving"})
    copy_code(tmp_path / "cache", "digest", sources.modules())
    names = [path.name for path in (tmp_path / "cache" / "kernels" / "digest").glob("*.object")]
    assert not [name for name in names if name.startswith(("host.engine.by_hand.", "host.engine.loop."))]


def test_only_cells_that_hold_with_a_constant_fall_without_it() -> None:
    cells = {"good": Cell(kind="plain"), "bad": Cell(kind="plain")}
    bound_s = cells["good"].bound_s
    fast, slow = ({"took_s": times * bound_s, "repeats": 0.0, "error": "", "digest": ""} for times in (1, 2))
    usual = {"good": fast, "bad": slow}
    assert command.fallen(cells, usual, {"good": slow, "bad": slow}) == {"good": "share of the bound 0.500, not 0.8"}
    assert not command.fallen(cells, usual, usual)


def test_what_breaks_in_a_cell_is_its_outcome_and_others_go_on() -> None:
    cells = [("broken", json.dumps({"kind": "plain", "shape": "ring"})), ("whole", Cell(kind="plain", blocks=40).text)]
    found = trying.outcomes(cells)
    assert found["broken"]["error"].startswith("KeyError")
    assert not found["whole"]["error"]
    assert found["whole"]["took_s"] > 0


def test_a_network_is_said_in_words() -> None:
    assert page.words(short.CELLS["four-frames"]) == (
        "queue: star of 4 hosts, 100 Mbit/s, trip 0.1 ms, 64 slots, queues of 4 frames"
    )
    assert page.words(short.CELLS["tenth-rate"]).endswith("128 slots, rate 1 s at 0.1 times its rate")
