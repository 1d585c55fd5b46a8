"""Compiled programs in a folder are loaded, compared and tested, and the page says what came of each."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from checks.conformance import public, public_tests
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
    (tmp_path / "ours.other_p4info.why").write_text("no path")
    tests = tmp_path / "ours.replication.tests"
    tests.mkdir()
    (tests / "unreadable.stf").write_text("packet x\n")
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
    assert good.tests == {"made": 3, "interpreter": 1, "native": 1}
    assert [text.rpartition(":")[0] for text in good.failed if "unreadable" not in text] == [
        f"{switch}: wrong: line 2: port 2" for switch in ("interpreter", "native")
    ]
    assert [text.partition(": not read: ")[0] for text in good.failed if "unreadable" in text] == [
        f"{switch}: unreadable" for switch in ("interpreter", "native")
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
            "failed": [
                "native: x_1: line 1: port 3: byte 7 differs",
                "bmv2: x_1: line 1: port 3: byte 8 differs",
                "interpreter: x_2: line 9: no frame left port 0; expected 00ff",
                "native: x_2: line 9: no frame left port 0; expected 00ff",
                "bmv2: x_2: line 9: frames left",
                "native: x_3: line 12: port 3: byte 1 differs",
                "bmv2: x_3: line 12: port 3: byte 1 differs",
            ],
        },
    }
    other = {**row, "name": "a.c", "difference": "native and bmv2: r[1] is 2 and 3", "tests": {}, "failed": []}
    refused = {**other, "name": "a.d", "loaded": "not a BMv2 program: | missing", "difference": "", "why": "no path"}
    record: dict[str, Any] = {
        "date": "2026-01-01",
        "programs": [row, other, refused],
        "refused_by_p4c": {"a.e": "no such extern"},
    }
    record["about_missing"] = {"ours": "nor here"}
    text = "\n".join(section(record))
    assert "- a.e: no such extern" in text
    assert "2 of 3 load with their P4Info (2026-01-01). 360 random packets" in text
    assert "1 programs show no difference" in text
    assert "| a.b | 0.50 s | 180, 90 | 7 | none | 3, 4 of 4 |" in text
    assert "| a.c | 0.50 s | 180, 90 | 7 | native and bmv2: r[1] is 2 and 3 |  |" in text
    assert "| a.d | refused: not a BMv2 program: \\| missing | | | | |" in text
    assert "\n3 of p4testgen's tests do not pass." in text
    assert "| a.b | 2 | native and BMv2: a frame differs |" in text
    assert "| a.b | 1 | interpreter and native: no frame left the port; BMv2: frames left |" in text
    assert "- a.d: no path" in text
    assert "- ours: nor here" in text


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_tests_of_public_programs_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """p4c refuses the second program, and p4testgen makes no test of the third one."""
    script(
        tmp_path / "p4c-bm2-ss",
        'for last; do :; done; case "$last" in */two.p4) echo "x(1): error: no" >&2; exit 1;; esac\n'
        'while [ "$1" != -o ]; do shift; done; echo "{}" > "$2"',
    )
    script(
        tmp_path / "p4testgen",
        f'echo "$@" >> {tmp_path}/said; for last; do :; done; case "$last" in */three.p4) exit 0;; esac\n'
        'while [ "$1" != --out-dir ]; do shift; done; echo wait > "$2/x_1.stf"',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    sources = {
        name: public_tests.Source("clone", f"p4/{name}.p4", ("-DX", "-I", "p4")) for name in ("one", "two", "three")
    }
    monkeypatch.setattr(public_tests, "PROGRAMS", sources)
    made = tmp_path / "made"
    monkeypatch.setattr("sys.argv", ["public_tests", str(tmp_path / "clones"), str(made)])
    for _ in range(2):
        public_tests.main()
    assert sorted(path.name for path in made.iterdir()) == [
        *("one.json", "one.tests", "three.json", "three.tests", "three.why")
    ]
    assert (made / "one.tests" / "x_1.stf").exists()
    assert (made / "three.why").read_text() == "no path that ends in a test"
    calls = (tmp_path / "said").read_text().splitlines()
    assert len(calls) == 2
    assert all(f"-DX -I {tmp_path}/clones/clone/p4 {tmp_path}/clones/clone/p4/" in call for call in calls)


def test_checking_goes_on_where_it_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def check(path: Path, cases: int, bmv2: bool) -> public.Program:
        if seen[-1:] == ["ours.broken"]:
            seen.append("ended")
            raise KeyboardInterrupt
        seen.append(path.stem)
        return public.Program(name=path.stem)

    monkeypatch.setattr(public, "check", check)
    monkeypatch.setattr(public, "RECORD", folder / "record")
    monkeypatch.setattr("sys.argv", ["public", str(folder)])
    with pytest.raises(KeyboardInterrupt):
        public.main()
    public.main()
    public.main()
    assert seen == ["ours.broken", "ended", "ours.other_p4info", "ours.replication"]
    assert len(json.loads((folder / "record").read_text())["programs"]) == 3
