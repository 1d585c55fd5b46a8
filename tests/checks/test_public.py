"""Compiled programs in a folder are loaded, compared and tested, and the page says what came of each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from checks.conformance.cases import PASSED
from checks.conformance.public import check, programs, section

PROGRAMS = Path(__file__).parents[2] / "switch" / "tests" / "programs"
STF = Path(__file__).parents[2] / "switch" / "tests" / "stf"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for suffix in (".json", ".p4info.txtpb"):
        shutil.copy(PROGRAMS / f"replication{suffix}", tmp_path / f"ours.replication{suffix}")
    shutil.copy(PROGRAMS / "profiles.json", tmp_path / "ours.other_p4info.json")
    shutil.copy(PROGRAMS / "matching.p4info.txtpb", tmp_path / "ours.other_p4info.p4info.txtpb")
    (tmp_path / "ours.broken.json").write_text("{}")
    tests = tmp_path / "ours.replication.tests"
    tests.mkdir()
    shutil.copy(STF / "replication.stf", tests / "good.stf")
    (tests / "wrong.stf").write_text("packet 1 0003\nexpect 2 ff\n")
    return tmp_path


def test_programs_of_a_folder_are_checked(folder: Path) -> None:
    made = {path.stem: check(path, 1, bmv2=False) for path in programs(folder)}
    assert sorted(made) == ["ours.broken", "ours.other_p4info", "ours.replication"]
    good = made["ours.replication"]
    assert (good.loaded, good.difference, good.bmv2) == (PASSED, "", "not run")
    assert good.packets > 20
    assert good.frames > 20
    assert good.load_s > 0
    assert good.tests == {"made": 2, "interpreter": 1, "native": 1}
    assert [text.rpartition(":")[0] for text in good.failed] == [
        f"{switch}: wrong: line 2: port 2" for switch in ("interpreter", "native")
    ]
    assert made["ours.broken"].loaded.startswith("not a BMv2 program")
    assert "SwitchIngress" in made["ours.other_p4info"].loaded


def test_the_page_names_what_is_refused_and_what_differs() -> None:
    row = {
        **{"name": "a.b", "loaded": PASSED, "load_s": 0.5, "packets": 180, "entries": 7, "frames": 90},
        **{
            "difference": "",
            "bmv2": PASSED,
            "tests": {"made": 4, "native": 3, "bmv2": 4},
            "failed": ["native: x: line 1"],
        },
    }
    other = {**row, "name": "a.c", "difference": "native and bmv2: r[1] is 2 and 3", "tests": {}, "failed": []}
    refused = {**other, "name": "a.d", "loaded": "not a BMv2 program: | missing", "difference": ""}
    record = {"date": "2026-01-01", "programs": [row, other, refused], "refused_by_p4c": {"a.e": "no such extern"}}
    text = "\n".join(section(record))
    assert "- a.e: no such extern" in text
    assert "2 of 3 load with their P4Info (2026-01-01). 360 random packets" in text
    assert "1 programs show no difference" in text
    assert "| a.b | 0.50 s | 180, 90 | 7 | none | 3, 4 of 4 |" in text
    assert "| a.c | 0.50 s | 180, 90 | 7 | native and bmv2: r[1] is 2 and 3 |  |" in text
    assert "| a.d | refused: not a BMv2 program: \\| missing | | | | |" in text
    assert "- a.b, native: x: line 1" in text
