"""Action profiles: entries that lead to members and groups, on both engines, from Python and by P4Runtime."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from switchsum_switch import BadEntry, EntryExists, EntryMissing, Group, InUse, ProfileMember, Switch, TableFull
from switchsum_switch.execution.pipeline import EngineName
from switchsum_switch.messages.p4runtime import Code, parse_p4info, v1
from switchsum_switch.p4runtime.entities import Entities
from switchsum_switch.state.profiles import Numbers

from .conftest import PROGRAMS

FILES = PROGRAMS / "profiles.json", PROGRAMS / "profiles.p4info.txtpb"
KEY = "h.flow.key"
PLAIN, SPREAD, SPREAD_TOO = 1, 100, 200
"""Keys that go to each of the three tables."""


@pytest.fixture(params=["interpreter", "native"])
def switch(request: pytest.FixtureRequest) -> Switch:
    engine: EngineName = request.param
    return Switch.from_file(*FILES, engine=engine)


def chosen(switch: Switch, key: int, entropy: int = 0) -> tuple[int, int, int] | None:
    """Return port, choice and hit of a frame; None: it was dropped."""
    sent = switch.process(1, bytes([key]) + entropy.to_bytes(2, "big") + bytes(2))
    return (sent[0][0], sent[0][1][3], sent[0][1][4]) if sent else None


def choice(switch: Switch, key: int, entropy: int) -> int:
    """Return the port of a frame that is not dropped."""
    found = chosen(switch, key, entropy)
    assert found is not None
    return found[0]


def test_an_entry_does_what_its_member_does(switch: Switch) -> None:
    own, table = switch.profiles["own"], switch.tables["plain"]
    own.add_member(7, "choose", which=5, port=3)
    own.add_member(8, "refuse")
    table.insert({KEY: 1}, ProfileMember(7))
    table.insert({KEY: 2}, ProfileMember(7))
    table.insert({KEY: 3}, ProfileMember(8))
    assert [chosen(switch, key) for key in (1, 2, 3, 4)] == [(3, 5, 1), (3, 5, 1), None, (0, 0, 0)]
    own.modify_member(7, "choose", which=6, port=4)
    assert [chosen(switch, key) for key in (1, 2)] == [(4, 6, 1), (4, 6, 1)]
    table.modify({KEY: 1}, ProfileMember(8))
    assert chosen(switch, 1) is None
    assert str(table.entries()[0]) == f"{KEY}=1 -> member 8"
    assert own.members == {7: "SwitchIngress.choose(which=6, port=4)", 8: "SwitchIngress.refuse()"}


@pytest.mark.parametrize(("table", "key"), [("spreading", SPREAD), ("spreading_too", SPREAD_TOO)])
def test_the_selector_chooses_the_member_of_a_group(switch: Switch, table: str, key: int) -> None:
    spread, hit = switch.profiles["spread"], 2 * (table == "spreading")
    for number in (30, 10, 20):  # they are chosen in the order in which they were added, as in BMv2
        spread.add_member(number, "choose", which=number, port=number)
    spread.set_group(4, [10, 20, 30])
    switch.tables[table].insert({KEY: key}, Group(4), priority=int(table == "spreading"))
    expected = [(number, number, hit) for number in (30, 10, 20)]
    assert [chosen(switch, key, entropy) for entropy in range(7)] == [*expected, *expected, expected[0]]
    spread.set_group(4, {10: 1, 30: 3})
    seen = [chosen(switch, key, entropy) for entropy in range(4)]
    assert [found[0] for found in seen if found] == [30, 30, 30, 10]
    spread.modify_member(10, "choose", which=1, port=11)
    assert chosen(switch, key, 3) == (11, 1, hit)
    spread.set_group(4, [])
    assert chosen(switch, key, 3) == (0, 0, hit)  # an empty group does nothing


def test_a_trace_shows_which_member_of_a_group_runs(switch: Switch) -> None:
    spread = switch.profiles["spread"]
    for number in (1, 2):
        spread.add_member(number, "choose", which=number, port=number)
    spread.set_group(4, [1, 2])
    switch.tables["spreading"].insert({KEY: SPREAD}, Group(4), priority=1)
    for entropy, number in enumerate((1, 2)):
        frame = bytes([SPREAD]) + entropy.to_bytes(2, "big") + bytes(2)
        [lookup] = (step for step in switch.trace(1, frame).find("lookup") if step.detail["hit"])
        assert lookup.text.endswith(f"-> group 4 -> SwitchIngress.choose(which={number}, port={number})")
        assert lookup.detail["params"] == [number, number]
        assert switch.process(1, frame)[0][0] == number


def test_counters_of_entries_count_whatever_is_chosen(switch: Switch) -> None:
    spread, table = switch.profiles["spread"], switch.tables["spreading"]
    for number in (1, 2):
        spread.add_member(number, "choose", which=number, port=number)
    spread.set_group(1, [1, 2])
    table.insert({KEY: SPREAD}, Group(1), priority=1)
    for entropy in range(5):
        chosen(switch, SPREAD, entropy)
    assert [(entry.action, entry.packets, entry.bytes) for entry in table] == [("group 1", 5, 25)]
    [lookup] = switch.trace(1, bytes([SPREAD, 0, 1, 0, 0])).find("lookup")
    assert f"hit: {KEY}=" in lookup.text
    assert "-> group 1" in lookup.text


def test_a_snapshot_has_members_and_groups(switch: Switch) -> None:
    spread, table = switch.profiles["spread"], switch.tables["spreading"]
    for number in (1, 2):
        spread.add_member(number, "choose", which=number, port=number)
    spread.set_group(1, [1, 2])
    table.insert({KEY: SPREAD}, Group(1), priority=1)
    kept = switch.snapshot()
    before = [chosen(switch, SPREAD, entropy) for entropy in range(2)]
    table.clear()
    spread.delete_group(1)
    spread.delete_member(1)
    spread.modify_member(2, "refuse")
    switch.restore(kept)
    assert [chosen(switch, SPREAD, entropy) for entropy in range(2)] == before
    spread.add_member(3, "choose", which=3, port=3)
    spread.set_group(1, [1, 2, 3])
    assert chosen(switch, SPREAD, 2) == (3, 3, 2)


def test_mistakes_with_profiles(switch: Switch) -> None:
    own, spread, table = switch.profiles["own"], switch.profiles["spread"], switch.tables["plain"]
    with pytest.raises(BadEntry, match="no member 1"):
        table.insert({KEY: 1}, ProfileMember(1))
    with pytest.raises(BadEntry, match=r"profile SwitchIngress\.own: its entries have ProfileMember\(number\)"):
        table.insert({KEY: 1}, "choose", which=1, port=1)
    own.add_member(1, "choose", which=1, port=1)
    with pytest.raises(EntryExists, match="a member 1 already"):
        own.add_member(1, "refuse")
    with pytest.raises(BadEntry, match="no selector"):
        own.set_group(1, [1])
    table.insert({KEY: 1}, ProfileMember(1))
    with pytest.raises(InUse, match=r"is in table SwitchIngress\.plain"):
        own.delete_member(1)
    for number in (2, 3, 4):
        own.add_member(number, "refuse")
    with pytest.raises(TableFull, match="4 members"):
        own.add_member(5, "refuse")
    with pytest.raises(EntryMissing):
        own.delete_member(9)
    with pytest.raises(KeyError, match=r"SwitchIngress\.choose"):
        own.add_member(5, "select")
    spread.add_member(1, "refuse")
    for weights in ({2: 1}, {1: 0}):
        with pytest.raises(BadEntry):
            spread.set_group(1, weights)
    spread.set_group(1, [1])
    with pytest.raises(InUse, match="is in group 1"):
        spread.delete_member(1)
    switch.tables["spreading_too"].insert({KEY: 1}, Group(1))
    with pytest.raises(InUse, match=r"group 1 .* is in table"):
        spread.delete_group(1)


class Controller:
    """Writes to a program as a P4Runtime client does, and reads it."""

    def __init__(self, switch: Switch, **rules: Any) -> None:
        """Connect to a switch; `rules` are what its P4Info says of action selectors."""
        config = v1.ForwardingPipelineConfig(p4info=parse_p4info(FILES[1].read_text()))
        for profile in config.p4info.action_profiles:
            if profile.with_selector:
                profile.MergeFrom(type(profile)(**rules))
        self.entities = Entities(config, switch.pipeline.state)
        info = config.p4info
        self.ids = {one.preamble.alias: one.preamble.id for kind in (info.tables, info.action_profiles) for one in kind}
        self.actions = {action.preamble.alias: action.preamble.id for action in info.actions}

    def action(self, which: int, port: int) -> Any:
        made = v1.Action(action_id=self.actions["choose"])
        made.params.add(param_id=1, value=bytes([which]))
        made.params.add(param_id=2, value=bytes([port]))
        return made

    def write(self, kind: str, *entities: Any, atomic: bool = False) -> list[Code]:
        updates = [v1.Update(type=v1.Update.Type.Value(kind), entity=entity) for entity in entities]
        mode = v1.WriteRequest.ROLLBACK_ON_ERROR if atomic else v1.WriteRequest.CONTINUE_ON_ERROR
        return [outcome.code for outcome in self.entities.write(updates, mode)]

    def member(self, number: int, which: int, port: int) -> Any:
        member = v1.ActionProfileMember(
            action_profile_id=self.ids["spread"], member_id=number, action=self.action(which, port)
        )
        return v1.Entity(action_profile_member=member)

    def group(self, number: int, weights: dict[int, int], **more: Any) -> Any:
        group = v1.ActionProfileGroup(action_profile_id=self.ids["spread"], group_id=number, **more)
        for member, weight in weights.items():
            group.members.add(member_id=member, weight=weight)
        return v1.Entity(action_profile_group=group)

    def entry(self, **action: Any) -> Any:
        made = v1.TableEntry(table_id=self.ids["spreading_too"], action=v1.TableAction(**action))
        made.match.add(field_id=1).exact.value = bytes([SPREAD_TOO])
        return v1.Entity(table_entry=made)

    def read(self, **kind: Any) -> list[Any]:
        return self.entities.read(v1.Entity(**kind))


def test_members_and_groups_by_p4runtime(switch: Switch) -> None:
    client = Controller(switch)
    assert client.write("INSERT", client.member(1, 1, 1), client.member(2, 2, 2)) == [Code.OK] * 2
    assert (
        client.write("INSERT", client.group(5, {1: 1, 2: 2}), client.entry(action_profile_group_id=5)) == [Code.OK] * 2
    )
    assert [chosen(switch, SPREAD_TOO, entropy) for entropy in range(3)] == [(1, 1, 0), (2, 2, 0), (2, 2, 0)]
    members = [entity.action_profile_member for entity in client.read(action_profile_member={})]
    assert [(member.member_id, member.action) for member in members] == [
        (1, client.action(1, 1)),
        (2, client.action(2, 2)),
    ]
    [group] = client.read(action_profile_group={"group_id": 5, "action_profile_id": client.ids["spread"]})
    assert group == client.group(5, {1: 1, 2: 2})
    [entry] = client.read(table_entry={"table_id": client.ids["spreading_too"]})
    assert entry == client.entry(action_profile_group_id=5)
    assert client.write("INSERT", client.member(1, 1, 1), client.group(5, {})) == [Code.ALREADY_EXISTS] * 2
    assert client.write("DELETE", client.member(1, 1, 1), client.group(5, {})) == [Code.FAILED_PRECONDITION] * 2
    assert client.write("MODIFY", client.member(2, 9, 9), client.group(5, {2: 1})) == [Code.OK] * 2
    assert chosen(switch, SPREAD_TOO, 5) == (9, 9, 0)
    assert client.write("DELETE", client.entry(), client.group(5, {}), client.member(2, 0, 0)) == [Code.OK] * 3
    assert client.write("MODIFY", client.group(5, {}), client.member(2, 0, 0)) == [Code.NOT_FOUND] * 2


def test_sets_of_actions_come_and_go_with_their_entries(switch: Switch) -> None:
    client = Controller(switch)

    def one_shot(*ports: int) -> Any:
        actions = [{"action": client.action(port, port), "weight": 1} for port in ports]
        return client.entry(action_profile_action_set={"action_profile_actions": actions})

    assert client.write("INSERT", one_shot(1, 2, 3)) == [Code.OK]
    assert [chosen(switch, SPREAD_TOO, entropy) for entropy in range(3)] == [(1, 1, 0), (2, 2, 0), (3, 3, 0)]
    [entry] = client.read(table_entry={"table_id": client.ids["spreading_too"]})
    assert entry == one_shot(1, 2, 3)
    assert client.read(action_profile_member={}) == client.read(action_profile_group={}) == []
    assert client.write("MODIFY", one_shot(4, 5)) == [Code.OK]
    assert [chosen(switch, SPREAD_TOO, entropy) for entropy in range(2)] == [(4, 4, 0), (5, 5, 0)]
    assert client.write("INSERT", one_shot(6)) == [Code.ALREADY_EXISTS]
    assert client.write("MODIFY", one_shot(*range(1, 10))) == [Code.RESOURCE_EXHAUSTED]
    assert chosen(switch, SPREAD_TOO, 1) == (5, 5, 0)
    for _ in range(20):  # nothing is left of sets that went
        assert client.write("DELETE", client.entry()) == [Code.OK]
        assert client.write("INSERT", one_shot(1, 2, 3, 4)) == [Code.OK]


def test_an_atomic_batch_that_fails_leaves_profiles_as_they_were(switch: Switch) -> None:
    client = Controller(switch)
    client.write("INSERT", client.member(1, 1, 1), client.member(2, 2, 2), client.group(5, {1: 1, 2: 1}))
    client.write("INSERT", client.entry(action_profile_group_id=5))
    before = client.read(action_profile_member={}) + client.read(action_profile_group={}) + client.read(table_entry={})
    changes = [
        ("MODIFY", client.member(1, 9, 9)),
        ("MODIFY", client.group(5, {2: 4})),
        ("INSERT", client.member(3, 3, 3)),
        ("INSERT", client.group(6, {3: 1})),
        ("DELETE", client.entry()),
        ("DELETE", client.group(5, {})),
        ("DELETE", client.member(2, 0, 0)),
    ]
    for count in range(1, len(changes) + 1):
        updates = [v1.Update(type=v1.Update.Type.Value(kind), entity=entity) for kind, entity in changes[:count]]
        updates.append(v1.Update(type=v1.Update.DELETE, entity=client.member(9, 0, 0)))
        outcomes = client.entities.write(updates, v1.WriteRequest.ROLLBACK_ON_ERROR)
        assert outcomes[-1].code is Code.NOT_FOUND
        after = [client.read(**{kind: {}}) for kind in ("action_profile_member", "action_profile_group", "table_entry")]
        assert sorted(map(str, itertools.chain(*after))) == sorted(map(str, before))
        assert [chosen(switch, SPREAD_TOO, entropy) for entropy in range(2)] == [(1, 1, 0), (2, 2, 0)]


def test_what_p4runtime_refuses(switch: Switch) -> None:
    client = Controller(switch)
    client.write("INSERT", client.member(1, 1, 1))
    watched = client.group(1, {1: 1})
    watched.action_profile_group.members[0].watch = 600
    direct = client.entry(action=client.action(1, 1))
    wrong = [client.member(0, 1, 1), client.group(0, {}), watched, direct, client.entry(), client.group(1, {1: 0})]
    assert client.write("INSERT", *wrong) == [Code.INVALID_ARGUMENT] * 6
    missing = [client.group(1, {9: 1}), *(client.entry(**{f"action_profile_{of}_id": 9}) for of in ("member", "group"))]
    assert client.write("INSERT", *missing) == [Code.NOT_FOUND] * 3
    watched.action_profile_group.members[0].watch_port = b"\2\0"
    assert client.write("INSERT", watched) == [Code.OUT_OF_RANGE]
    assert not client.read(action_profile_group={})


def a_set(client: Controller, *weights: int, **more: Any) -> Any:
    """Return an entry with a set of actions of such weights."""
    actions = [{"action": client.action(port, port), "weight": weight} for port, weight in enumerate(weights, start=1)]
    return client.entry(action_profile_action_set={"action_profile_actions": actions, **more})


def test_a_selector_has_members_or_sets_of_actions(switch: Switch) -> None:
    client = Controller(switch)
    assert client.write("INSERT", client.member(1, 1, 1), a_set(client, 1)) == [Code.OK, Code.INVALID_ARGUMENT]
    assert client.write("DELETE", client.member(1, 1, 1)) == [Code.OK]
    refused = [client.member(1, 1, 1), client.group(1, {})]
    assert client.write("INSERT", a_set(client, 1), *refused) == [Code.OK, *[Code.INVALID_ARGUMENT] * 2]
    before = switch.snapshot()
    assert client.write("DELETE", client.entry()) == [Code.OK]
    assert client.write("INSERT", *refused) == [Code.OK] * 2
    switch.restore(before)
    assert client.write("INSERT", client.member(2, 1, 1)) == [Code.INVALID_ARGUMENT]
    assert client.write("DELETE", client.entry()) == [Code.OK]


def test_the_size_of_a_group_is_that_of_its_weights_or_of_its_members(switch: Switch) -> None:
    by_weights, by_members = (
        Controller(switch, max_group_size=4),
        Controller(switch, max_group_size=2, sum_of_members={"max_member_weight": 5}),
    )
    by_weights.write("INSERT", *(by_weights.member(number, number, number) for number in (1, 2, 3)))
    assert by_weights.write("INSERT", by_weights.group(1, {1: 2, 2: 3})) == [Code.RESOURCE_EXHAUSTED]
    assert by_weights.write("INSERT", by_weights.group(1, {1: 2, 2: 2})) == [Code.OK]
    assert by_weights.write("INSERT", by_weights.group(2, {1: 2, 2: 2}, max_size=3)) == [Code.RESOURCE_EXHAUSTED]
    assert by_weights.write("INSERT", by_weights.group(2, {}, max_size=5)) == [Code.INVALID_ARGUMENT]
    assert by_weights.read(action_profile_group={}) == [
        by_weights.group(1, {1: 2, 2: 2})
    ]  # no size that it did not write
    assert by_members.write("MODIFY", by_members.group(1, {1: 5, 2: 5})) == [Code.OK]
    assert by_members.write("MODIFY", by_members.group(1, {1: 6})) == [Code.INVALID_ARGUMENT]
    assert by_members.write("MODIFY", by_members.group(1, {1: 1, 2: 1, 3: 1})) == [Code.RESOURCE_EXHAUSTED]


def test_a_set_of_actions_says_how_its_size_counts(switch: Switch) -> None:
    client = Controller(switch, max_group_size=2)
    wrong = [a_set(client, 3), a_set(client, 1, 1, 1), a_set(client, 1, 1, 1, size_semantics="SUM_OF_MEMBERS")]
    assert client.write("INSERT", *wrong) == [Code.INVALID_ARGUMENT] * 3
    later = a_set(client, 1, group_action=client.action(1, 1))  # of P4Runtime 1.6
    assert client.write("INSERT", later) == [Code.UNIMPLEMENTED]
    entry = a_set(client, 3, 4, size_semantics="SUM_OF_MEMBERS", action_selection_mode="HASH")
    assert client.write("INSERT", entry) == [Code.OK]
    assert client.read(table_entry={"table_id": client.ids["spreading_too"]}) == [entry]
    assert client.write("DELETE", entry, client.member(9, 1, 1), atomic=True) == [Code.ABORTED, Code.NOT_FOUND]
    assert client.read(table_entry={"table_id": client.ids["spreading_too"]}) == [entry]


def test_a_set_of_actions_is_chosen_from_at_random() -> None:
    """By random numbers, the same on both engines, though the selector's key is the same in all packets."""
    seen = []
    for engine in ("interpreter", "native"):
        switch = Switch.from_file(*FILES, engine=engine)
        client = Controller(switch)
        entry = a_set(client, 3, 1, action_selection_mode="RANDOM")
        assert client.write("INSERT", entry) == [Code.OK]
        assert client.read(table_entry={"table_id": client.ids["spreading_too"]}) == [entry]
        seen.append([choice(switch, SPREAD_TOO, 0) for _ in range(400)])
        assert 60 < seen[-1].count(2) < 140  # 100 of 400, and 140 is 4.6 times their standard deviation away
        before = switch.snapshot()
        assert client.write("MODIFY", a_set(client, 3, 1, action_selection_mode="HASH")) == [Code.OK]
        assert {choice(switch, SPREAD_TOO, 0) for _ in range(20)} == {1}
        switch.restore(before)
        assert {choice(switch, SPREAD_TOO, 0) for _ in range(40)} == {1, 2}
    assert seen[0] == seen[1]


def test_where_the_switch_has_the_weights_clients_give_none(switch: Switch) -> None:
    client = Controller(switch, weights_disallowed=True)
    client.write("INSERT", client.member(1, 1, 1), client.member(2, 2, 2))
    assert client.write("INSERT", client.group(1, {1: 1})) == [Code.INVALID_ARGUMENT]
    assert client.write("INSERT", client.group(1, {1: 0, 2: 0})) == [Code.OK]
    assert client.read(action_profile_group={}) == [client.group(1, {1: 0, 2: 0})]
    assert client.write("INSERT", client.entry(action_profile_group_id=1)) == [Code.OK]
    assert [choice(switch, SPREAD_TOO, entropy) for entropy in range(3)] == [1, 2, 1]


def test_many_members_come_and_go() -> None:
    """Numbers of rows and lists are given back: the next members have room."""
    numbers = Numbers(1, 4)
    assert [numbers.take() for _ in range(4)] == [1, 2, 3, None]
    numbers.give(2)
    assert [numbers.take(), numbers.take()] == [2, None]
    numbers.reset({1, 3})
    assert [numbers.take(), numbers.take()] == [2, None]
    numbers.reset(set())
    assert numbers.take() == 1


def test_a_member_whose_port_is_down_is_not_chosen(switch: Switch) -> None:
    client = Controller(switch)
    client.write("INSERT", client.member(1, 1, 1), client.member(2, 2, 2), client.member(3, 3, 3))
    group = client.group(5, {1: 1, 2: 2, 3: 1})
    group.action_profile_group.members[0].watch_port = b"\1"
    group.action_profile_group.members[1].watch = 2
    assert client.write("INSERT", group, client.entry(action_profile_group_id=5)) == [Code.OK] * 2
    assert client.read(action_profile_group={}) == [group]

    def choices() -> list[int]:
        return [choice(switch, SPREAD_TOO, entropy) for entropy in range(4)]

    assert choices() == [1, 2, 2, 3]
    switch.set_port(2, up=False)
    assert choices() == [1, 3, 1, 3]
    switch.set_port(1, up=False)
    assert choices() == [3, 3, 3, 3]
    switch.set_port(2, up=True)
    assert choices() == [2, 2, 3, 2]
    assert client.read(action_profile_group={}) == [group]


def test_actions_of_a_set_watch_ports_too(switch: Switch) -> None:
    client = Controller(switch)
    actions = [{"action": client.action(port, port), "weight": 1, "watch_port": bytes([port])} for port in (1, 2)]
    entry = client.entry(action_profile_action_set={"action_profile_actions": actions})
    assert client.write("INSERT", entry) == [Code.OK]
    switch.set_port(1, up=False)
    assert [choice(switch, SPREAD_TOO, entropy) for entropy in range(2)] == [2, 2]
    [read] = client.read(table_entry={"table_id": client.ids["spreading_too"]})
    assert read == entry


def test_members_watch_ports_that_a_test_takes_down(switch: Switch) -> None:
    spread = switch.profiles["spread"]
    for number in (1, 2):
        spread.add_member(number, "choose", which=number, port=number)
    spread.set_group(1, {1: 1, 2: 1}, watch={1: 7})
    switch.tables["spreading"].insert({KEY: SPREAD}, Group(1), priority=1)
    assert [choice(switch, SPREAD, entropy) for entropy in range(2)] == [1, 2]
    switch.set_port(7, up=False)
    assert [choice(switch, SPREAD, entropy) for entropy in range(2)] == [2, 2]
