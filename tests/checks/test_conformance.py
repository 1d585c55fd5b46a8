"""docs/results/conformance.md is what the record says, and the tests of a clone of p4c are found and sorted."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import pytest

from checks.bench.ages import unmarked
from checks.conformance import __main__ as conformance
from checks.conformance import cases as cases_module
from checks.conformance import generated, minutes
from checks.conformance.__main__ import PAGE, RECORD, as_record
from checks.conformance.cases import PASSED, Case, SwitchName, cases, run_case
from checks.conformance.load import load_seconds, summary
from checks.conformance.page import page
from checks.conformance.published import LISTS, bmv2_fails, fourward_passes, verdict
from switchsum_switch import stf
from switchsum_switch.differ.search import Differ, Finding

PROGRAMS = Path(__file__).parents[2] / "switch" / "tests" / "programs"
STF = Path(__file__).parents[2] / "switch" / "tests" / "stf"


def test_the_page_is_made_of_the_record() -> None:
    made = page(json.loads(RECORD.read_text()))
    assert unmarked(PAGE.read_text()) == made, "python -m checks.conformance writes it anew"


def test_the_record_has_every_kind_of_test() -> None:
    record = json.loads(RECORD.read_text())
    applied = [case for case in record["cases"] if not case["excluded"]]
    assert len(applied) > 250
    assert {case["language"] for case in applied} == {"P4_14", "P4_16"}
    assert all(set(case["results"]) == {"interpreter", "native", "bmv2"} for case in applied)
    # The engines are one switch: what one passes, the other does.
    assert all((case["results"]["interpreter"] == PASSED) == (case["results"]["native"] == PASSED) for case in applied)


def test_tests_are_found_and_sorted(tmp_path: Path) -> None:
    samples = tmp_path / "testdata" / "p4_16_samples"
    (samples / "parser-inline").mkdir(parents=True)
    old = tmp_path / "testdata" / "p4_14_samples"
    old.mkdir()
    for folder, name, text in (
        (samples, "one", "#include <v1model.p4>"),
        (samples, "two", '#include "../psa.p4"'),
        (samples / "parser-inline", "three", "#include <v1model.p4>"),
        (old, "four", "header_type h_t {}"),
    ):
        (folder / f"{name}.p4").write_text(text)
        (folder / f"{name}.stf").write_text("wait\n")
    (samples / "five.stf").write_text("wait\n")
    found = {case.name: case for case in cases(tmp_path)}
    assert {name: case.excluded for name, case in found.items()} == {
        "p4_16_samples/one": "",
        "p4_16_samples/two": "architecture of psa.p4",
        "p4_16_samples/five": "no program of that name",
        "p4_16_samples/parser-inline/three": "",
        "p4_16_samples/parser-inline/three --parser-inline-opt": "",
        "p4_14_samples/four": "",
    }
    assert found["p4_14_samples/four"].language == "P4_14"


def test_what_fails_and_what_is_refused_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "good.stf").write_text((STF / "replication.stf").read_text())
    (tmp_path / "bad.stf").write_text("packet 1 0003\nexpect 2 ff\n")
    program = (PROGRAMS / "replication.json").read_bytes()
    outcomes = {}
    for name, text in (("good", program), ("bad", program), ("refused", b"{}")):
        if name == "refused":
            (tmp_path / "refused.stf").write_text("wait\n")
        case = Case(name=f"p4_16_samples/{name}", source=tmp_path / f"{name}.p4")
        run_case(case, text, ("interpreter",))
        outcomes[name] = as_record(case)["results"]["interpreter"]
    assert outcomes["good"] == PASSED
    assert outcomes["bad"].startswith("line 2: port 2: byte 0 differs")
    assert outcomes["refused"].startswith("refused: not a BMv2 program")


def test_results_in_p4_14_stay_where_p4c_was_built_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = json.loads(RECORD.read_text())
    names = ("p4_16_samples/action-two-params", "p4_14_samples/gateway1")
    record = {**old, "dates": {"P4_14": "2026-01-01", "P4_16": "2026-01-01"}}
    (tmp_path / "record").write_text(json.dumps(record))
    monkeypatch.setattr(conformance, "RECORD", tmp_path / "record")
    monkeypatch.setattr(conformance, "PAGE", tmp_path / "page")
    monkeypatch.setattr(conformance, "_version", lambda *_: "Version 9.9 ")
    monkeypatch.setattr(conformance, "cases", lambda _: [Case(name=name, source=tmp_path / "x.p4") for name in names])

    def compile_case(case: Case, scratch: Path) -> None:
        case.excluded = "p4c refuses it: " + ("Illegal language version p4-14" if case.language == "P4_14" else "no")

    monkeypatch.setattr(conformance, "compile_case", compile_case)
    monkeypatch.setattr("sys.argv", ["conformance", str(tmp_path)])
    conformance.main()
    made = json.loads((tmp_path / "record").read_text())
    assert made["dates"]["P4_14"] == "2026-01-01" < made["dates"]["P4_16"]
    of = {case["name"]: case for case in made["cases"]}
    assert of[names[0]]["excluded"] == "p4c refuses it: no"
    assert of[names[1]] in old["cases"]
    assert "P4_16 on 20" in (tmp_path / "page").read_text()


def test_published_lists_are_read() -> None:
    suites = """
corpus_test_suite(
    name = "v1model_stf_corpus_test",
    includes = ["@p4c//testdata:skeleton.p4"],
    tests = [
        "one-bmv2",
        "two-bmv2",  # a remark
    ],
)
corpus_test_suite(
    name = "slow_test",
    tests = [
        "three-bmv2",
    ],
)
"""
    assert fourward_passes(suites) == ["p4_16_samples/one-bmv2", "p4_16_samples/two-bmv2"]
    programs = "  # why\n  testdata/p4_16_samples/four-bmv2.p4 # more\n  testdata/p4_14_samples/five.p4\n)"
    assert bmv2_fails(programs) == ["p4_16_samples/four-bmv2", "p4_14_samples/five"]


def test_published_lists_are_of_the_tests_of_the_record() -> None:
    lists = json.loads(LISTS.read_text())
    applied = {case["name"] for case in json.loads(RECORD.read_text())["cases"] if not case["excluded"]}
    assert set(lists["4ward"]["passes"]) <= applied
    assert verdict(lists, "4ward", lists["4ward"]["passes"][0]) == PASSED
    assert verdict(lists, "4ward", "p4_14_samples/bridge1") == "not listed"
    assert verdict(lists, "bmv2", f"{lists['bmv2']['fails'][0]} --parser-inline-opt") == "expected to fail"


def test_a_cold_load_is_timed() -> None:
    seconds = {name: load_seconds((PROGRAMS / f"{name}.json").read_bytes()) for name in ("lives", "sets")}
    assert all(time_s > 0 for time_s in seconds.values())
    first, *rest = summary({"a": 0.5, "b": 0.25, "c": 2.0}, refused=1)
    assert first == "3 programs load, 1 are refused: median 0.50 s, 95 % within 2.00 s, longest 2.00 s"
    assert rest == ["0.25 s b", "0.50 s a", "2.00 s c"]


def test_what_p4testgen_makes_is_run_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = (STF / "replication.stf").read_text(), "packet 1 0003\nexpect 2 ff\n"
    for name, text in (("one_1", good), ("one_2", bad), ("one_3", good), ("one_4", "packet x\n")):
        (tmp_path / f"{name}.stf").write_text(text)
    ran: list[str] = []

    def outcome(program: bytes, test: stf.Test, switch: SwitchName) -> str:
        ran.append(f"{test.name} {switch}")
        return "line 2: it says so" if switch == "bmv2" else cases_module.outcome(program, test, switch)

    monkeypatch.setattr(generated, "outcome", outcome)
    made = generated.run((PROGRAMS / "replication.json").read_bytes(), tmp_path)
    assert (made.made, made.interpreter, made.native, made.bmv2, made.bmv2_ran) == (4, 2, 2, 0, 2)
    assert [name for name in ran if name.endswith("bmv2")] == ["one_1 bmv2", "one_2 bmv2"]  # the first, and what fails
    assert made.failed[0] == "one_2, interpreter and native: line 2: port 2: byte 0 differs; BMv2: line 2: it says so"
    assert made.failed[1].startswith("one_4: not read: ")
    made.failed.append(made.failed[0].replace("one_2", "one_5"))
    refused = generated.Tested(why=f"{generated.REFUSED}: another architecture")
    programs = {"p4/one": asdict(made), "p4/two": asdict(refused), "p4/three": asdict(generated.Tested(why="no path"))}
    page = "\n".join(generated.section({"p4c": "1.2", "tests": 5, "date": "today", "programs": programs}))
    assert "4 tests of 1 of the 2 samples" in page
    assert "| no path | 1 |" in page
    assert "| one | 2 | interpreter and native: line 2: port 2: byte 0 differs; BMv2: line 2: it says so |" in page


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo '/a/b/x.p4(3): Compiler Bug: no such thing' >&2", "x.p4(3): Compiler Bug: no such thing"),
        ("echo 'x.p4(3): [--Wwarn=x] warning: no error' >&2", "no path that ends in a test"),
        ("true", "no path that ends in a test"),
        ("while :; do :; done", "no test in 1 s of processor time"),
        ('while [ "$1" != --out-dir ]; do shift; done; echo wait > $2/x_1.stf', ""),
    ],
)
def test_a_program_without_tests_has_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    (tmp_path / "p4testgen").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "p4testgen").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    why = generated.make(tmp_path / "x.p4", tmp_path, 3, 1.0 if "while :" in script else 60.0)
    assert (tmp_path / "x_1.stf").exists() != bool(said)
    assert not said or why == said


def test_comparing_goes_on_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (PROGRAMS / "replication.json").read_bytes()
    row = minutes.Row(name="RSVP")
    seeds: list[int] = []
    real = Differ.try_seed

    def try_seed(differ: Differ, seed: int) -> Finding | None:
        seeds.append(seed)
        return real(differ, seed)

    monkeypatch.setattr(Differ, "try_seed", try_seed)
    for step, state in enumerate(minutes.go_on(row, program, 1e6, bmv2=False)):
        if step == 1:
            packets = state.packets
            break
    assert (row.seeds, seeds) == (2, [0, 1])
    list(islice(minutes.go_on(row, program, 1e6, bmv2=False), 2))
    assert (row.seeds, seeds) == (4, [0, 1, 2, 3])
    assert row.packets > packets > 0
    assert not list(minutes.go_on(row, program, row.seconds, bmv2=False))  # its time is over
    [line] = [line for line in minutes.section({"date": "today", "programs": [asdict(row)]}) if "RSVP" in line]
    assert "github.com/nsg-ethz/p4-learning 0ddba18" in line
    assert line.endswith("| none |")
