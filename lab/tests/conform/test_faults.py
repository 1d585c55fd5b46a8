"""The kit passes on switches that keep the rules, and names the rule that a switch breaks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import pytest

from checks.mutate.mutant import edited
from checks.mutate.slot import DEFINITION
from switchsum.testing.faults import FAULTS
from switchsum_lab.conform.facts import Facts, MemberFacts
from switchsum_lab.conform.play import Answers
from switchsum_lab.conform.rules import ROWS, RULES, rule_of
from switchsum_lab.conform.run import Outcome, chosen, run
from switchsum_lab.conform.wires import InProcess
from switchsum_protocol import slot_rules
from switchsum_protocol.frame import Reason
from switchsum_protocol.slot_rules import SWITCH_ADDRESS, ReferenceSwitch
from switchsum_protocol.wire import parse_frame
from switchsum_switch.wires.headers import Address

LANES = 4


def facts_of(lanes: int = LANES, members: int = 3, growth_bytes: int | None = None) -> Facts:
    return Facts(
        lanes=lanes,
        growth_bytes=growth_bytes,
        switch=SWITCH_ADDRESS,
        job=7,
        epoch=3,
        first_slot=16,
        slot_count=8,
        fresh=True,
        members=tuple(
            MemberFacts(cookie=0xC0FFEE00 + rank, address=Address(mac=0x20000 + rank, ip=0x0A000064 + rank, port=4000))
            for rank in range(members)
        ),
    )


def target_of(make: Callable[..., ReferenceSwitch], facts: Facts) -> InProcess:
    switch = make(lanes_per_frame=facts.lanes, growth_bytes=facts.growth_bytes, address=facts.switch)
    for member in facts.members:
        switch.admit(facts.admission(member))
    return InProcess(switch.process)


def outcome_of(make: Callable[..., ReferenceSwitch], facts: Facts, *rules: str) -> Outcome:
    return run(target_of(make, facts), facts, rules=rules, tries=1, stops=True)


@pytest.mark.parametrize("members", [2, pytest.param(32, marks=pytest.mark.slow)])
def test_a_switch_that_keeps_the_rules_passes(members: int) -> None:
    facts = facts_of(members=members)
    assert run(target_of(ReferenceSwitch, facts), facts).is_right


class Recorder:
    """A target that keeps the rules, and notes which numbers came."""

    is_raw = True

    def __init__(self, facts: Facts) -> None:
        self.inner = target_of(ReferenceSwitch, facts)
        self.numbers: set[int] = set()

    def exchange(self, frames: Sequence[tuple[int, bytes]]) -> Answers:
        packets = [parse_frame(frame) for _, frame in frames]
        self.numbers |= {packet.header.number for packet in packets if packet is not None}
        return self.inner.exchange(frames)


def test_all_rules_are_played_and_rows_with_both_versions_of_a_slot() -> None:
    facts, cases = facts_of(lanes=256, growth_bytes=512), chosen([])
    recorder, versions = Recorder(facts), defaultdict[str, set[int]](set)

    def note(done: int, _of: int) -> None:
        if done:
            versions[cases[done - 1].rule] |= {number & 1 for number in recorder.numbers}
        recorder.numbers.clear()

    outcome = run(recorder, facts, on_case=note)
    assert outcome.is_right
    assert set(outcome.played) == set(RULES)
    assert outcome.played.total() == len(cases) > 150
    assert {rule for rule, seen in versions.items() if seen == {0, 1}} >= {rule for rule in RULES if "row" in rule}


@pytest.mark.parametrize("what", FAULTS)
def test_each_broken_rule_is_found_and_named(what: str) -> None:
    fault = FAULTS[what]
    facts = facts_of(lanes=256 if fault.rule == "padding" else LANES, growth_bytes=512)
    outcome = outcome_of(fault.switch, facts, fault.rule)
    assert outcome.broken[fault.rule], outcome
    assert outcome.failures[0].steps


def test_every_rule_that_one_switch_can_break_alone_is_among_the_faults() -> None:
    # Contributions at the same time are harmless to a switch in plain Python; row 6 stands for what combines.
    assert {fault.rule for fault in FAULTS.values()} == RULES.keys() - {"order"}


ON_THE_WIRE = [
    name for name in DEFINITION if not name.startswith(("row 1:", "row 2:")) and not name.endswith("is not counted so")
]
"""Rows 1 and 2 are the controller's, whose frames no member can send; and no frame shows a counter."""


@pytest.mark.parametrize("name", ON_THE_WIRE)
def test_each_change_of_the_definition_is_found(name: str) -> None:
    before, after = DEFINITION[name]
    broken = edited(slot_rules, before, after).ReferenceSwitch
    number = int(name.split(":", maxsplit=1)[0].split()[1])
    outcome = outcome_of(broken, facts_of(), f"row {number}", "next")
    assert outcome.broken, name


@pytest.mark.parametrize("first_number", [0, 1, 0x7FFF_FFFF, 0xFFFF_FFFD])
def test_numbers_pass_zero_wherever_they_begin(first_number: int) -> None:
    facts = facts_of()
    facts = Facts(**{name: getattr(facts, name) for name in Facts.__slots__} | {"first_number": first_number})
    recorder = Recorder(facts)
    assert run(recorder, facts, rules=["numbers", "row 4"]).is_right
    assert {0xFFFF_FFFE, 0xFFFF_FFFF, 0, 1} <= recorder.numbers


def test_a_way_that_loses_a_frame_is_told_from_a_broken_rule() -> None:
    class Losing(Recorder):
        count = 0

        def exchange(self, frames: Sequence[tuple[int, bytes]]) -> Answers:
            self.count += 1
            return {} if self.count == 60 else super().exchange(frames)

    facts = facts_of()
    outcome = run(Losing(facts), facts, rules=["row 6", "row 11"])
    assert outcome.failures == []
    assert len(outcome.unsteady) == 1
    assert not outcome.is_right


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule.upper() in Reason.__members__ or rule in ROWS.values()]
)
def test_cases_meet_the_rule_that_they_are_about(rule: str) -> None:
    facts = facts_of(lanes=256 if rule == "padding" else LANES, growth_bytes=512)
    switch = ReferenceSwitch(lanes_per_frame=facts.lanes, growth_bytes=512)
    for member in facts.members:
        switch.admit(facts.admission(member))
    run(InProcess(switch.process), facts, rules=[rule])
    assert sum(switch.events[reason] for reason in Reason if rule_of(reason) == rule)


def test_no_two_cases_have_one_title() -> None:
    titles = Counter(case.title for case in chosen([]))
    assert max(titles.values()) == 1
