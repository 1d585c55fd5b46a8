"""Tests in STF: what the language takes, and that each statement does on a switch what it says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from switchsum.cli.app import application
from switchsum_switch import stf
from switchsum_switch.bmv2.simple_switch import run_bmv2
from switchsum_switch.execution.pipeline import EngineName
from switchsum_switch.program.reader import read_program
from switchsum_switch.stf import Outcome, StfError, parse, run_embedded
from switchsum_switch.stf.language import Add, CheckCounter, Expect, MatchValue, Send

from .conftest import PROGRAMS

TESTS = Path(__file__).parent / "stf"
NAMES = sorted(path.stem for path in TESTS.glob("*.stf"))


def run(name: str, text: str, engine: EngineName = "interpreter") -> Outcome:
    return run_embedded((PROGRAMS / f"{name}.json").read_bytes(), parse(text), engine)


def problems(name: str, text: str) -> list[tuple[int, str]]:
    return [(problem.line, problem.text) for problem in run(name, text).problems]


def test_there_are_tests() -> None:
    assert {"matching", "replication", "stateful"} <= set(NAMES)


@pytest.mark.parametrize("engine", ["interpreter", "native"])
@pytest.mark.parametrize("name", NAMES)
def test_the_embedded_switch_passes(name: str, engine: EngineName) -> None:
    outcome = run(name, (TESTS / f"{name}.stf").read_text(), engine)
    assert outcome.problems == ()
    assert outcome.left > 0


@pytest.mark.bmv2
@pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on PATH")
@pytest.mark.parametrize("name", NAMES)
def test_bmv2_passes(name: str) -> None:
    outcome = run_bmv2((PROGRAMS / f"{name}.json").read_bytes(), parse((TESTS / f"{name}.stf").read_text()))
    assert outcome.problems == ()
    assert outcome.left > 0


def test_statements_are_read() -> None:
    text = """
    # a comment
    ADD "a table" 100 data.f$1.g:0x0*12 low:0b*1 routes:0x0a000000/8 act(val:0x7f, port:2) = $A  # and one behind
    packet 1 01 02 0x0304
    expect 2 0102*3 $
    expect 3
    check_counter hits($A) bytes <= 5
    check_counter hits(0x10)
    """
    add, packet, whole, anything, counted, zero = parse(text).statements
    assert isinstance(add, Add)
    assert (add.line, add.table, add.priority, add.label) == (3, "a table", 100, "$A")
    assert add.keys == (
        ("data.f$1.g", MatchValue("0x0*12")),
        ("low", MatchValue("0b*1")),
        ("routes", MatchValue("0x0a000000", prefix_len=8)),
    )
    assert (add.call.action, add.call.arguments) == ("act", (("val", 0x7F), ("port", 2)))
    assert packet == Send(line=4, port=1, frame=bytes([1, 2, 3, 4]))
    assert whole == Expect(line=5, port=2, digits="0102*3", whole=True)
    assert anything == Expect(line=6, port=3, digits=None, whole=False)
    assert counted == CheckCounter(line=7, counter="hits", index="$A", unit="bytes", comparison="<=", number=5)
    assert zero == CheckCounter(line=8, counter="hits", index=16, unit="packets", comparison="==", number=0)


def test_names_in_quotes_may_have_a_hash() -> None:
    [add] = parse('add "tables.!@#$%" "key #1":0x01 "act#"() # and a comment with "quotes"').statements
    assert isinstance(add, Add)
    assert (add.table, add.keys, add.call.action) == ("tables.!@#$%", (("key #1", MatchValue("0x01")),), "act#")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hello 1", "no statement 'hello'"),
        ("packet x 00", "invalid literal"),
        ("packet 1 0", "fromhex"),
        ("packet", "not enough values"),
        ("expect 1 0g", "must be hexadecimal digits"),
        ("add t k:1", "action's name is missing"),
        ("add t k: act()", "value is missing"),
        ("add t k:1 act", "no arguments in brackets"),
        ("add t k:1 act(a:1 b:2)", "comma or bracket"),
        ("add t k:1 act() more", "too much"),
        ("add t k:1 act(~)", "not understood"),
        ("remove t", "only `remove all`"),
        ("mc_node_associate 1", "takes 2 words, not 1"),
        ("check_counter c", "no index in brackets"),
        ("check_counter c(1) frames == 2", "no frames"),
        ("check_counter c(1) packets = 2", "not a comparison"),
        ("no_packet 1", "no arguments"),
    ],
)
def test_other_text_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(StfError, match=reason) as caught:
        parse("wait\n" + text, "name.stf")
    assert str(caught.value).startswith("name.stf:2: ")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("packet 1 0003\nexpect 2 0004", 2, "byte 1 differs"),
        ("packet 1 0003\nexpect 2 0003 $", 2, "2 were expected"),
        ("packet 1 0003\nexpect 2 " + "0" * 40, 2, "20 were expected"),
        ("packet 1 0003\nexpect 2\nexpect 2", 3, "no frame left port 2; expected any"),
        ("packet 1 0003", 1, ""),
        ("expect 2\nno_packet\npacket 1 0003\npacket 1 0003", 4, "not expected"),
        ("packet 1 0003\nexpect 2\nno_packet\nmirroring_get 7", 4, "KeyError"),
        ("packet 1 0003\nno_packet\nexpect 2", 2, "a frame left port 2"),
        ("mc_mgrp_create 1\nmc_node_associate 1 0", 2, "no replication node 0"),
        ("mirroring_delete 3", 1, "no mirroring session 3"),
    ],
)
def test_what_is_not_as_expected_fails_at_its_line(text: str, line: int, reason: str) -> None:
    found = problems("replication", text)
    if reason:
        assert found
        assert any(at == line and reason in words for at, words in found)
    else:  # a frame leaves a port that the test does not name: p4c's runner has no such interface
        assert found == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("add nothing key.a:1 found_hit(value:1)", "no table nothing; there is:"),
        ("add table key.a:1 found_hit(value:1)", "several table table"),
        ("add hit_table nothing:1 found_hit(value:1)", "no key nothing; its keys: "),
        ("add hit_table key.a:0x100 found_hit(value:1)", "0x100 does not fit the 8 bits"),
        ("add hit_table key.a:1 found_hit(value:0x100)", "0x100 does not fit the 8 bits of value"),
        ("add hit_table key.a:1 found_hit()", "takes value, not"),
        ("add hit_table key.a:1 found_lpm(value:1)", "no action of table SwitchIngress.hit_table found_lpm"),
        ("add lpm_table key.b:0x1200/17 found_lpm(value:1)", "no prefix of 17"),
        ("add hit_table key.a:1 found_hit(value:1)\nadd hit_table key.a:1 found_hit(value:2)", "already has an entry"),
        ("setdefault declared_table found_declared(value:1)", "const"),
        ("check_counter events(0)", "no counter events"),
        ("check_counter events($A)", "no entry has the label"),
    ],
)
def test_what_the_program_lacks_fails_and_names_what_there_is(text: str, reason: str) -> None:
    assert any(reason in words for _, words in problems("matching", text))


def test_a_direct_counter_is_checked_by_the_label_of_its_entry() -> None:
    text = (
        "add exact_table key.a:1 key.c:2 NoAction() = $A\npacket 1 " + "01 0000 000000000002" + "00" * 17 + "\nexpect 1"
    )
    assert problems("matching", text + "\ncheck_counter exact_counter($A) packets == 1") == []
    assert problems("matching", text + "\ncheck_counter exact_counter($A) bytes == 26") == []
    found = problems("matching", text + "\ncheck_counter exact_counter($A) packets > 1")
    assert found == [(4, "exact_counter has 1 packets, not > 1")]


def test_a_session_sends_to_the_replicas_of_a_group_as_it_is_now() -> None:
    text = "mirroring_add_mc 1 5\nmc_mgrp_create 5\nmc_node_create 3 7 8\nmc_node_associate 5 0\n"
    program = (PROGRAMS / "lives.json").read_bytes()
    switch = stf.Embedded(program, "interpreter")
    outcome = stf.run(parse(text), stf.Names(read_program(program)), switch)
    assert outcome.passed
    assert [(one.port, one.instance) for one in switch.pipeline.clones.get(1).replicas] == [(7, 3), (8, 3)]


def test_the_command_runs_tests_and_ends_with_1_if_one_fails(tmp_path: Path) -> None:
    bad = tmp_path / "bad.stf"
    bad.write_text("packet 1 0003\nexpect 2 ff\n")
    program, p4info = PROGRAMS / "replication.json", PROGRAMS / "replication.p4info.txtpb"
    words = ["stf", str(program), str(p4info), str(TESTS / "replication.stf")]
    passed = CliRunner().invoke(application("stf"), [*words, "--engine", "interpreter"])
    assert passed.exit_code == 0
    assert passed.output == "replication.stf: passed (5 packets in, 8 out)\n"
    failed = CliRunner().invoke(application("stf"), [*words, str(bad), "--engine", "interpreter"])
    assert failed.exit_code == 1
    assert "bad.stf:2: port 2: byte 0 differs" in failed.output
    assert "bad.stf: FAILED (1 packets in, 1 out)" in failed.output
