from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsum_controller.tables.entries import (
    Change,
    Entry,
    Group,
    Match,
    Replica,
    SwitchState,
    Write,
    diff,
)
from switchsum_switch.messages.matches import Lpm, Range, Ternary

from .planned import apply

GATE = "gate"
small = st.integers(0, 2)
matches: st.SearchStrategy[Mapping[str, Match]] = st.fixed_dictionaries(
    {"port": small},
    optional={
        "address": st.builds(Lpm, value=small, prefix_len=st.integers(1, 3)),
        "kind": st.builds(Ternary, value=small, mask=st.integers(1, 3)),
        "length": st.builds(Range, low=small, high=small),
    },
)
entries = st.builds(
    Entry,
    table=st.sampled_from([GATE, "members", "stations"]),
    match=matches,
    action=st.sampled_from(["admit", "drop"]),
    params=st.dictionaries(st.sampled_from(["a", "b"]), small),
    priority=small,
    metadata=st.sampled_from([b"", b"x"]),
)
defaults = st.builds(Entry, table=st.just("identity"), action=st.sampled_from(["a", "b"]), is_default=st.just(True))
groups = st.builds(
    Group, group=st.integers(1, 3), replicas=st.frozensets(st.builds(Replica, port=small, instance=small), max_size=3)
)
states = st.builds(
    lambda default, items: SwitchState.of([default, *items]), defaults, st.lists(entries | groups, max_size=12)
)


@given(states, states)
def test_the_diff_makes_one_state_of_the_other(current: SwitchState, desired: SwitchState) -> None:
    steps = diff(current, desired, GATE)
    assert apply(steps, current) == desired
    assert diff(desired, desired, GATE) == []


@given(states, states)
def test_the_gate_is_closed_first_and_opened_last_but_for_defaults(current: SwitchState, desired: SwitchState) -> None:
    steps = diff(current, desired, GATE)
    defaults = [[isinstance(write.item, Entry) and write.item.is_default for write in step] for step in steps]
    assert all(all(kinds) or not any(kinds) for kinds in defaults), "defaults have a step to themselves"
    if steps and defaults[-1][0]:
        steps.pop()
    assert not any(any(kinds) for kinds in defaults[: len(steps)]), "it is the last one"
    at_gate = [[isinstance(write.item, Entry) and write.item.table == GATE for write in step] for step in steps]
    for index, step in enumerate(steps):
        for write, gate in zip(step, at_gate[index], strict=True):
            if gate and write.change is Change.DELETE:
                assert index == 0
            if gate and write.change is not Change.DELETE:
                assert index == len(steps) - 1
    assert all(all(kinds) or not any(kinds) for kinds in at_gate), "the gate has its steps to itself"


@given(states, states)
def test_room_is_made_before_it_is_taken(current: SwitchState, desired: SwitchState) -> None:
    changes = [write.change for step in diff(current, desired, GATE) for write in step]
    deletes = [index for index, change in enumerate(changes) if change is Change.DELETE]
    assert deletes == list(range(len(deletes)))


def test_a_group_is_there_before_entries_that_name_it_and_goes_after_them() -> None:
    group = Group(group=1, replicas=frozenset())
    entry = Entry(table="members", match={"port": 1}, action="admit", params={"group": 1})
    there, empty = SwitchState.of([group, entry]), SwitchState()
    assert [write.item for step in diff(empty, there, GATE) for write in step] == [group, entry]
    assert [write.item for step in diff(there, empty, GATE) for write in step] == [entry, group]


@pytest.mark.parametrize("change", Change)
def test_apply_refuses_what_a_switch_would_refuse(change: Change) -> None:
    entry = Entry(table="members", action="admit")
    state = SwitchState.of([entry]) if change is Change.INSERT else SwitchState()
    with pytest.raises(ValueError, match=str(change)):
        apply([[Write(change=change, item=entry)]], state)


def test_a_default_action_is_only_ever_modified() -> None:
    default = Entry(table="identity", action="a", is_default=True)
    assert diff(SwitchState(), SwitchState.of([default]), GATE) == [[Write(change=Change.MODIFY, item=default)]]
    assert diff(SwitchState.of([default]), SwitchState(), GATE) == []
