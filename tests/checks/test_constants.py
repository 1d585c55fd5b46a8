"""Each constant of a worker's recovery can be changed alone, and the page says which networks need it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from checks.bench.ages import unmarked
from checks.clone import ROOT
from checks.constants import __main__ as command
from checks.constants import page, sources, trying
from checks.constants.neutral import FIXED, NEUTRAL
from checks.rough import short
from checks.rough.cells import Cell
from checks.rough.running import Outcome

CONSTANTS = sources.constants()
SOURCE = """\
from typing import Final

_TRIPS: Final = 16
\"\"\"Round trips.\"\"\"
_MOST: Final = 1 << _TRIPS
NAMES: Final = {"a": 1}
half = 1 / 2
"""


def test_each_constant_has_values_that_switch_it_off_or_a_reason_why_not() -> None:
    assert NEUTRAL.keys().isdisjoint(FIXED)
    assert NEUTRAL.keys() | FIXED.keys() == CONSTANTS.keys(), "checks/constants/neutral.py has the values"


def test_the_page_has_each_constant_with_its_value() -> None:
    text = page.PAGE.read_text()
    missing = [one.name for one in CONSTANTS.values() if f"| `{one.name}` | {one.value} |" not in text]
    assert missing == [], "python -m checks.constants --only NAME, and then --publish"


def test_the_page_has_what_was_found() -> None:
    text = unmarked(page.PAGE.read_text())
    assert page.between() == text.partition(page.BEGIN)[2].partition(page.END)[0]


def test_values_that_were_tried_are_those_of_the_table() -> None:
    for name, row in page.kept().items():
        assert set(row["tries"]) <= set(NEUTRAL.get(name, row["tries"])), name


def test_constants_are_numbers_and_not_what_is_computed_of_them() -> None:
    assert CONSTANTS["pacing._BURST"].value == "1 / 8"
    assert CONSTANTS["pacing._BURST"].module == "switchsum_host.engine.policies.pacing"
    assert not {"timer._MOST_TIMES", "round_trips.UNKNOWN", "recovery._REPEAT"} & CONSTANTS.keys()


def test_a_changed_constant_reaches_what_is_computed_of_it() -> None:
    made: dict[str, object] = {}
    exec(sources.changed(SOURCE, "_TRIPS", "3 + 1", "some.py"), made)
    assert (made["_TRIPS"], made["_MOST"], made["half"]) == (4, 16, 0.5)


@pytest.mark.parametrize("symbol", ["_LEAST", "_MOST", "NAMES", "half"])
def test_a_constant_that_is_not_there_is_refused(symbol: str) -> None:
    with pytest.raises(ValueError, match=r"some\.py names 0 numbers"):
        sources.changed(SOURCE, symbol, "1", "some.py")


def test_a_module_that_has_been_imported_is_refused() -> None:
    with pytest.raises(ImportError, match="has been imported"):
        sources.change(CONSTANTS["window._QUIET"], "0")


def test_names_that_other_modules_import_are_changed_too() -> None:
    script = (
        "from checks.constants.sources import change, constants\n"
        "change(constants()['round_trips.FEW_TIMED'], '77')\n"
        "from switchsum_host.engine.policies import round_trips, window\n"
        "print(round_trips.FEW_TIMED, window.FEW_TIMED)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["77", "77"]


def test_code_that_holds_no_constant_is_copied_and_other_code_is_not(tmp_path: Path) -> None:
    held = trying.of_the_engine()
    assert {"switchsum_host.engine.by_hand", "switchsum_host.engine.loop", "switchsum_host.engine.recovery"} <= held
    assert not {"switchsum_host.engine.kernels", "switchsum_lab.simulation.loop", "switchsum_switch.ports"} & held
    trying.copy_code(tmp_path / "cache")
    names = [path.name for path in (tmp_path / "cache").rglob("*.object")]
    assert not [name for name in names if name.startswith(("host.engine.by_hand.", "host.engine.loop."))]


def test_only_cells_that_hold_with_a_constant_fall_without_it() -> None:
    cells = {"good": Cell(kind="plain"), "bad": Cell(kind="plain")}
    slow = Outcome(bound_s=1.0, took_s=2.0, repeats=0.0)
    fast = Outcome(bound_s=1.0, took_s=1.0, repeats=0.0)
    usual = {"good": fast, "bad": slow}
    assert command.fallen(cells, usual, {"good": slow, "bad": slow}) == {"good": "share of the bound 0.500, not 0.8"}
    assert not command.fallen(cells, usual, usual)


def test_what_breaks_in_a_cell_is_its_outcome_and_others_go_on() -> None:
    cells = [("broken", json.dumps({"kind": "plain", "shape": "ring"})), ("whole", Cell(kind="plain", blocks=40).text)]
    found = dict(trying.outcomes(cells))
    assert found["broken"]["error"].startswith("KeyError")
    assert not found["whole"]["error"]
    assert found["whole"]["took_s"] > 0


def test_a_network_is_said_in_words() -> None:
    assert page.words(short.CELLS["four-frames"]) == (
        "queue: star of 4 hosts, 100 Mbit/s, trip 0.1 ms, 64 slots, queues of 4 frames"
    )
    assert page.words(short.CELLS["tenth-rate"]).endswith("128 slots, rate 1 s at 0.1 times its rate")
