from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsum import p4src
from switchsum_controller.switches.schema import Schema, decode_group, encode_group
from switchsum_controller.switches.switch_session import COUNTERS
from switchsum_controller.tables.entries import Entry, Group, Match, Replica
from switchsum_protocol.errors import UsageError
from switchsum_switch.messages.matches import Lpm, Range, Ternary
from switchsum_switch.messages.p4runtime import parse_p4info, v1

EVERY_KIND = Schema(
    parse_p4info("""
tables {
  preamble { id: 10 name: "t" }
  match_fields { id: 1 name: "exact" bitwidth: 9 match_type: EXACT }
  match_fields { id: 2 name: "prefix" bitwidth: 32 match_type: LPM }
  match_fields { id: 3 name: "masked" bitwidth: 16 match_type: TERNARY }
  match_fields { id: 4 name: "between" bitwidth: 8 match_type: RANGE }
  match_fields { id: 5 name: "optional" bitwidth: 4 match_type: OPTIONAL }
  action_refs { id: 20 }
}
actions {
  preamble { id: 20 name: "go" }
  params { id: 1 name: "port" bitwidth: 9 }
  params { id: 2 name: "wide" bitwidth: 128 }
}
actions { preamble { id: 21 name: "elsewhere" } }
""")
)
PROGRAM = Schema(parse_p4info(p4src.load(128).p4info))


def values(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1)


matches: st.SearchStrategy[dict[str, Match]] = st.fixed_dictionaries(
    {"exact": values(9)},
    optional={
        "prefix": st.builds(Lpm, value=values(32), prefix_len=st.integers(1, 32)),
        "masked": st.builds(Ternary, value=values(16), mask=values(16)),
        "between": st.builds(Range, low=values(8), high=values(8)),
        "optional": values(4),
    },
)
entries = st.builds(
    Entry,
    table=st.just("t"),
    match=matches,
    action=st.just("go"),
    params=st.fixed_dictionaries({"port": values(9), "wide": values(128)}),
    priority=st.integers(0, 1000),
    metadata=st.binary(max_size=40),
)


@given(entries)
def test_an_entry_survives_the_wire(entry: Entry) -> None:
    message = v1.TableEntry.FromString(EVERY_KIND.encode_entry(entry).SerializeToString())
    assert EVERY_KIND.decode_entry(message) == entry


def test_byte_strings_are_the_shortest() -> None:
    message = EVERY_KIND.encode_entry(
        Entry(table="t", match={"exact": 0}, action="go", params={"port": 0x101, "wide": 1})
    )
    assert message.match[0].exact.value == b"\0"
    assert [param.value for param in message.action.action.params] == [b"\1\1", b"\1"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"table": "u"}, "no table 'u'"),
        ({"table": "tt"}, "no table 'tt'; did you mean 't'"),
        ({"match": {"exact": 1, "colour": 1}}, "no field .colour.; there are: exact, prefix, masked, between"),
        ({"match": {"exact": 1, "mask": 1}}, "no field 'mask'; did you mean 'masked'"),
        ({"match": {}}, r"needs values for \['exact'\]"),
        ({"match": {"exact": 512}}, "does not fit 9 bits"),
        ({"match": {"exact": -1}}, "does not fit 9 bits"),
        ({"match": {"exact": Lpm(1, 9)}}, "match kind EXACT"),
        ({"match": {"exact": 1, "prefix": Lpm(1, 33)}}, "match kind LPM"),
        ({"match": {"exact": 1, "prefix": Lpm(1, 0)}}, "match kind LPM"),
        ({"match": {"exact": 1, "masked": 1}}, "match kind TERNARY"),
        ({"action": "stay"}, "no action 'stay'"),
        ({"action": "elswhere"}, "no action 'elswhere'; did you mean 'elsewhere'"),
        ({"action": "elsewhere", "params": {}}, "has no action elsewhere"),
        ({"params": {"port": 1}}, r"needs values for \['wide'\]"),
        ({"params": {"port": 1, "wide": 1, "more": 1}}, "no field 'more'"),
        ({"params": {"port": 512, "wide": 1}}, "does not fit 9 bits"),
    ],
)
def test_what_the_program_does_not_have_is_named(fields: dict[str, Any], text: str) -> None:
    given_fields = {"table": "t", "match": {"exact": 1}, "action": "go", "params": {"port": 1, "wide": 1}}
    with pytest.raises(UsageError, match=text):
        EVERY_KIND.encode_entry(Entry(**(given_fields | fields)))


@pytest.mark.parametrize(
    "message",
    [
        v1.TableEntry(table_id=11),
        v1.TableEntry(table_id=10),
        v1.TableEntry(table_id=10, match=[v1.FieldMatch(field_id=9)], action={"action": {"action_id": 20}}),
        v1.TableEntry(table_id=10, action={"action": {"action_id": 20, "params": [{"param_id": 9, "value": b"1"}]}}),
    ],
)
def test_numbers_of_another_program_are_a_usage_error(message: Any) -> None:
    with pytest.raises(UsageError, match="the P4 program has no"):
        EVERY_KIND.decode_entry(message)


@given(st.frozensets(st.builds(Replica, port=values(9), instance=values(16)), max_size=5))
def test_a_group_survives_the_wire(replicas: frozenset[Replica]) -> None:
    group = Group(group=7, replicas=replicas)
    message = encode_group(group).packet_replication_engine_entry.multicast_group_entry
    assert decode_group(message) == group


def test_ports_of_replicas_are_read_in_both_forms() -> None:
    message = v1.MulticastGroupEntry(
        multicast_group_id=1, replicas=[{"egress_port": 300, "instance": 1}, {"port": b"\1\2", "instance": 2}]
    )
    assert decode_group(message).replicas == {Replica(port=300, instance=1), Replica(port=258, instance=2)}


def test_packets_carry_their_metadata() -> None:
    message = PROGRAM.encode_packet_out(b"frame", {"egress_port": 300, "unused": 0})
    assert message.payload == b"frame"
    assert [(item.metadata_id, item.value) for item in message.metadata] == [(1, b"\1\x2c"), (2, b"\0")]
    packet_in = v1.PacketIn(metadata=[{"metadata_id": 1, "value": b"\1\x2c"}, {"metadata_id": 2, "value": b"\0"}])
    assert PROGRAM.decode_packet_in(packet_in) == {"ingress_port": 300, "unused": 0}


def test_the_program_has_what_the_controller_names() -> None:
    assert PROGRAM.register_size("SwitchIngress.dispatch.cells.seen_members") == 2048
    ingress, egress = map(PROGRAM.counter_cells, COUNTERS)
    assert 0 != ingress.counter_entry.counter_id != egress.counter_entry.counter_id
    with pytest.raises(UsageError, match="no register"):
        PROGRAM.register_size("SwitchIngress.dispatch.cells.colours")
