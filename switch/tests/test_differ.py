"""`switchsum differ`: it finds no difference where there is none, and a small one where one side is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from switchsum.cli.app import application
from switchsum_protocol.errors import UsageError
from switchsum_switch import stf
from switchsum_switch.differ import search
from switchsum_switch.differ.case import Default, Group, Insert, Packet, Session, Step, stf_text
from switchsum_switch.differ.indices import index_fields
from switchsum_switch.differ.packets import Packets
from switchsum_switch.differ.search import Differ, with_last_defaults, with_narrow_bases, with_padded_prefixes
from switchsum_switch.differ.shrink import shrink
from switchsum_switch.differ.sides import TIMES, Chance, EmbeddedSide, Seen, difference
from switchsum_switch.messages.matches import Exact, Lpm, Range, Ternary
from switchsum_switch.program.reader import read_program
from switchsum_switch.state.state import AS_BEFORE

from .conftest import PROGRAMS

BENCH = Path(__file__).parents[2] / "checks" / "bench" / "p4"
OWN = Path(__file__).parents[2] / "p4src" / "compiled"


def program(name: str) -> bytes:
    return (PROGRAMS / f"{name}.json").read_bytes()


@pytest.mark.parametrize("name", ["matching", "parsing", "profiles", "replication", "sets", "stateful", "stacks"])
def test_engines_agree(name: str) -> None:
    differ = Differ(program(name), bmv2=False)
    assert [differ.try_seed(seed) for seed in range(3)] == [None] * 3
    assert differ.tally.frames > 50
    assert differ.tally.entries > {"matching": 20, "profiles": 20, "sets": 3}.get(name, -1)


@pytest.mark.bmv2
@pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on PATH")
@pytest.mark.parametrize(
    "name",
    [
        *("arithmetic", "checksums", "hashing", "headers", "lives", "parsing", "payload", "profiles", "replication"),
        *("sets", "stateful"),
    ],
)
def test_bmv2_agrees(name: str) -> None:
    differ = Differ(program(name), bmv2=True)
    assert [differ.try_seed(seed) for seed in range(3)] == [None] * 3
    assert differ.tally.frames > 20


def test_selectors_have_groups_of_several_members_to_choose_from() -> None:
    differ = Differ(program("profiles"), bmv2=False)
    inserts = [step for seed in range(3) for step in differ.case(seed) if isinstance(step, Insert)]
    groups = [step for step in inserts if step.others]
    assert {step.table for step in groups} == {"SwitchIngress.spreading", "SwitchIngress.spreading_too"}
    assert {step.table for step in inserts} == {step.table for step in groups} | {"SwitchIngress.plain"}
    names = stf.Names(read_program(program("profiles")))
    assert stf_text(groups[:1], names).count("# its group has") == len(groups[0].others)


def damaged(name: str) -> bytes:
    """Return a program that adds 3 to `mark` in egress where the true one adds 2."""
    text = json.dumps(json.loads(program(name)))
    assert '"value": "0x02"' in text
    return text.replace('"value": "0x02"', '"value": "0x03"').encode()


def test_a_difference_is_found_and_cut_down() -> None:
    differ = Differ(program("replication"), bmv2=False)
    other = Differ(damaged("replication"), bmv2=False)
    differ._native = other._native  # a side that computes something else
    findings = (differ.try_seed(seed) for seed in range(20))
    finding = next(one for one in findings if one is not None)
    packets = [step for step in finding.steps if isinstance(step, Packet)]
    assert finding.sides == ("interpreter", "native")
    assert len(packets) == 1
    assert len(packets[0].frame) <= 2
    assert finding.steps == tuple(packets)
    assert finding.stf == f"packet {packets[0].port} {packets[0].frame.hex()}\n"
    [trace] = differ.traces(finding)
    assert trace.find("set")


def test_what_the_parser_reads_in_a_clone_is_undefined() -> None:
    """BMv2 parses a clone from ingress with the metadata of another packet (p4lang/behavioral-model#795)."""
    side = EmbeddedSide(program("cloned_parser"), "interpreter")
    steps: list[Step] = [Session(session=1, port=2), Packet(port=3, frame=b"\x05\0"), Packet(port=3, frame=b"\x09\0")]
    assert side.run(steps).packets == [[(1, b"\0\x05")], [(2, b"\x09\x09"), (1, b"\x09\x09")]]
    other = side.run(steps, Chance(undefined=0x5A))
    assert other.packets == [[(1, b"\0\x05")], [(2, b"\x09\x63"), (1, b"\x09\x09")]]


def test_prefixes_of_const_entries_are_changed_as_bmv2_compares_them() -> None:
    """A key of 9 bits has 7 zeros in front in BMv2: of a prefix of 9 bits the first 2 bits of the key are compared."""
    match = [{"match_type": "lpm", "key": "0x01b", "prefix_length": 9}]
    short = [{"match_type": "lpm", "key": "0x010", "prefix_length": 5}]
    header = {"name": "m", "header_type": "m_t", "metadata": True}
    table = {"key": [{"match_type": "lpm", "target": ["m", "port"]}]}
    entries = [{"match_key": one} for one in (match, short, short)]
    made: dict[str, object] = {
        "header_types": [{"name": "m_t", "fields": [["port", 9, False]]}],
        "headers": [header],
        "pipelines": [{"tables": [{**table, "entries": entries}]}],
    }
    changed = with_padded_prefixes(json.dumps(made).encode())
    assert changed is not None
    [left] = json.loads(changed)["pipelines"][0]["tables"]
    assert [entry["match_key"] for entry in left["entries"]] == [
        [{"match_type": "lpm", "key": "0x0", "prefix_length": 2}],
        [{"match_type": "lpm", "key": "0x0", "prefix_length": 0}],
    ]
    assert with_padded_prefixes(program("matching")) is None


def test_a_default_before_other_cases_is_looked_at_as_bmv2_does() -> None:
    first, last = ({"type": "default", "value": None, "mask": None, "next_state": name} for name in "xy")
    case = {"type": "hexstr", "value": "0x01", "mask": None, "next_state": "z"}
    made = {"parsers": [{"parse_states": [{"transitions": [first, case, last]}]}]}
    changed = with_last_defaults(json.dumps(made).encode())
    assert changed is not None
    assert json.loads(changed)["parsers"][0]["parse_states"] == [{"transitions": [case, last]}]
    assert with_last_defaults(program("parsing")) is None


class EndsAt:
    """A BMv2 that ends itself at packets of one port, and otherwise does what an engine does."""

    name = "bmv2"

    def __init__(self, side: EmbeddedSide, port: int) -> None:
        self._side, self._port = side, port

    def run(self, steps: Sequence[Step], expected: Sequence[int], check: Callable[[], None] = lambda: None) -> Seen:
        check()
        for number, step in enumerate(steps):
            if isinstance(step, Packet) and step.port == self._port:
                seen = self._side.run(steps[:number])
                seen.ended, seen.ended_at = "it has ended", number
                return seen
        return self._side.run(steps)


def test_packets_at_which_bmv2_ends_itself_are_left_out_and_the_others_compared() -> None:
    differ = Differ(program("replication"), bmv2=False)
    differ._bmv2 = EndsAt(EmbeddedSide(program("replication"), "interpreter"), 3)  # type: ignore[assignment]
    packets = [step for step in differ.case(1) if isinstance(step, Packet)]
    left_out = [step for step in packets if step.port == 3]
    assert left_out
    assert differ.try_seed(1) is None
    assert (differ.tally.packets, len(differ.tally.ended)) == (len(packets) - len(left_out), len(left_out))
    assert differ.tally.ended[0].splitlines()[-1].startswith("packet 3 ")
    differ._bmv2 = EndsAt(EmbeddedSide(damaged("replication"), "interpreter"), 3)  # type: ignore[assignment]
    finding = differ.try_seed(1)
    assert finding is not None
    assert finding.sides == ("interpreter", "bmv2")
    assert all(step.port != 3 for step in finding.steps if isinstance(step, Packet))


def test_a_case_follows_from_its_seed() -> None:
    one, other = (Differ(program("matching"), bmv2=False) for _ in range(2))
    assert one.case(5) == other.case(5)
    assert one.case(5) != one.case(6)


def test_packets_take_every_way_through_the_parser() -> None:
    """Every state of the parser is reached by some of 300 packets."""
    text = program("parsing")
    read = read_program(text)
    packets, switch = Packets(read, Random(1)), stf.Embedded(text, "interpreter")
    seen = set()
    for _ in range(300):
        _, trace = switch.pipeline.trace(packets.port(), packets.frame())
        seen |= {step.detail.get("name") for step in trace.find("state")}
    assert {state.name for state in read.parser.states} <= seen


def test_packets_have_checksums_that_programs_verify() -> None:
    """Otherwise a router drops them all, and nothing of it is compared."""
    text = (BENCH / "router.json").read_bytes()
    packets, switch = Packets(read_program(text), Random(1)), stf.Embedded(text, "interpreter")
    traces = [switch.pipeline.trace(packets.port(), packets.frame())[1] for _ in range(200)]
    looked_up = [trace for trace in traces if trace.find("lookup")]
    assert len(looked_up) > 50
    assert len(looked_up) < len(traces)


def test_most_packets_have_indices_within_arrays() -> None:
    packets = Packets(read_program(program("stateful")), Random(1))
    made = [frame for frame in (packets.frame() for _ in range(400)) if len(frame) > 4]
    within = [int.from_bytes(frame[:2], "big") < 4 and frame[2] < 4 for frame in made]
    assert 0.6 < sum(within) / len(made) < 0.95
    case = Differ(program("stateful"), bmv2=False).reference.run([Packet(port=1, frame=frame) for frame in made])
    assert len(case.beyond) < len(made) / 2


def test_indices_are_followed_through_variables_masks_and_shifts() -> None:
    assert index_fields(read_program(program("stacks"))) == {("command", "index"): 3, ("numbers[0]", "next"): 3}
    found = index_fields(read_program((OWN / "switchsum_256.json").read_bytes()))
    # A slot has two cells of 2,048, and one bit of the number chooses between them.
    assert found["agg", "slot"] == 1024
    assert ("agg", "number") not in found


def test_a_packet_that_reads_what_some_earlier_packet_had_is_left_out() -> None:
    """BMv2 gives a packet the memory of any packet that is gone; the switch's own state remembers several."""
    differ = Differ(program("profiles"), bmv2=False)
    long, short = bytes([0xFF, 0, 0, 0, 0]), b"\x01"  # the short one lacks its header, whose key is read
    steps = [Packet(port=1, frame=frame) for frame in (long, bytes(5), bytes(5), short)]
    default = Default(table="SwitchIngress.spreading_too", action="SwitchIngress.choose", params=(1, 5))
    seen = {
        packets: differ._other.run([default, *steps], Chance(undefined=packets * AS_BEFORE)).packets[-1]
        for packets in (1, 2, 3)
    }
    assert seen == {1: [(0, short)], 2: [(0, short)], 3: [(5, short)]}


def test_a_packet_that_keeps_what_it_lacks_is_left_out() -> None:
    """Its frame tells nothing: a register has got a field that the packet does not have."""
    differ = Differ(program("stateful"), bmv2=False)
    differ._bmv2 = differ._other  # type: ignore[assignment] # any: without BMv2 nothing is left out
    frame = bytes.fromhex("0000000000000000000000000000000000c1".ljust(94, "0"))
    steps = (Packet(port=2, frame=frame), Packet(port=3, frame=b"\0"), Packet(port=2, frame=frame))
    assert differ._defined(steps) == (steps[0], steps[2])


def test_a_packet_beyond_the_end_of_a_register_is_left_out() -> None:
    """BMv2 ends itself there, and nothing of its case could be compared."""
    differ = Differ(program("stateful"), bmv2=False)
    frames = [index.to_bytes(2, "big") + bytes(1) + b"\xff" + bytes(44) for index in (7, 8, 3, 0xFFFF, 2)]
    steps = tuple(Packet(port=1, frame=frame) for frame in frames)
    assert differ.reference.run(steps).beyond == {0, 1, 3}  # the counter has four cells, the registers eight
    assert differ._defined(steps) == steps  # without BMv2 all are compared
    differ._bmv2 = differ._other  # type: ignore[assignment] # any
    assert differ._defined(steps) == (steps[2], steps[4])


def test_what_random_numbers_decide_is_not_compared() -> None:
    differ = Differ(program("lives"), bmv2=False)
    one, other = Seen(), Seen()
    one.packets, other.packets = [[(1, b"")]], [[]]
    runs = iter([one] * len(TIMES) + [one] * 5 + [other] * 50)
    differ._other.run = lambda *_, **__: next(runs)  # type: ignore[method-assign]
    one.ports[1] = [b""]
    assert difference(one, other, [one] * len(TIMES))
    assert differ._beside_bmv2((), one, other) == ""


def test_a_case_is_an_stf_test_that_does_the_same() -> None:
    text = program("matching")
    names = stf.Names(read_program(text))
    steps: list[Step] = [
        Group(group=2, replicas=((3, 7), (4, 8))),
        Session(session=3, port=6),
        Insert(
            table="SwitchIngress.lpm_table",
            match=(Exact(1), Lpm(0x1200, 8)),
            priority=0,
            action="SwitchIngress.found_lpm",
            params=(9,),
        ),
        Insert(
            table="SwitchIngress.range_table",
            match=(Range(1, 5), Ternary(0x10, 0xF0), Range(0, 7)),
            priority=4,
            action="SwitchIngress.found_range",
            params=(9,),
        ),
        Packet(port=2, frame=b"\x01\x02"),
    ]
    switch = stf.Embedded(text, "interpreter")
    outcome = stf.run(stf.parse(stf_text(steps, names)), names, switch)
    assert outcome.problems == ()
    tables = switch.pipeline.tables
    assert [(entry.match, entry.params) for entry in tables["SwitchIngress.lpm_table"]] == [
        ((Exact(1), Lpm(0x1200, 8)), (9,))
    ]
    assert [(entry.match, entry.priority) for entry in tables["SwitchIngress.range_table"]] == [
        ((Range(1, 5), Ternary(0x10, 0xF0), Range(0, 7)), 4)
    ]
    assert [(one.port, one.instance) for one in switch.pipeline.multicast.get(2)] == [(3, 7), (4, 8)]
    assert [one.port for one in switch.pipeline.clones.get(3).replicas] == [6]


def test_shrinking_keeps_what_matters() -> None:
    steps = [Packet(port=number, frame=bytes([number] * 40)) for number in range(30)]

    def differs(candidate: object) -> bool:
        found = [step for step in candidate if step.port in (3, 17)]  # type: ignore[attr-defined]
        return len(found) == 2 and len(found[1].frame) > 10 and found[1].frame[9] == 17

    small = shrink(steps, differs, 1000)
    assert [step.port for step in small if isinstance(step, Packet)] == [3, 17]
    frame = small[1].frame if isinstance(small[1], Packet) else b""
    assert 10 < len(frame) < 40
    assert frame.strip(b"\0") == b"\x11"


def test_differences_are_named() -> None:
    one, other = Seen(), Seen()
    one.ports[1], other.ports[1] = [b"\1\2"], [b"\1\3"]
    assert difference(one, other) == "frame 1 of port 1 differs at byte 1"
    chance = Seen()
    chance.ports[1] = [b"\1\4"]
    assert difference(one, other, [chance]) == ""  # the byte depends on the clock
    other.ports[1] = [b"\1\2", b""]
    assert difference(one, other) == "1 and 2 frames leave port 1"
    other.ports[1] = [b"\1\2"]
    one.cells["r"], other.cells["r"] = [1, 2], [1, 3]
    assert difference(one, other) == "r[1] is 2 and 3"
    one.cells["r"] = [1, 3]
    one.refused[4] = "full"
    assert difference(one, other) == "step 5 is refused by one: full"


def test_the_commands(tmp_path: Path) -> None:
    path = str(PROGRAMS / "replication.json")
    p4info = str(PROGRAMS / "replication.p4info.txtpb")
    done = CliRunner().invoke(application("differ"), ["differ", path, p4info, "--seconds", "0", "--no-bmv2"])
    assert done.exit_code == 0
    assert done.output.startswith("no difference between interpreter and native code")
    with pytest.raises(UsageError, match=r"no case ended within 1e-06 s; --seconds 0 runs one case to its end"):
        CliRunner().invoke(
            application("differ"), ["differ", path, "--seconds", "0.000001", "--no-bmv2"], catch_exceptions=False
        )
    done = CliRunner().invoke(application("differ"), ["differ", path, "--seconds", "0", "--no-bmv2", "--json"])
    assert json.loads(done.output)["difference"] is None
    entries = tmp_path / "entries.stf"
    entries.write_text("mc_mgrp_create 3\nmc_node_create 5 7\nmc_node_associate 3 0\n")
    words = ["trace", path, "0103", "--port", "4", "--stf", str(entries)]
    done = CliRunner().invoke(application("trace"), words)
    assert done.exit_code == 0
    assert "extract command: operation=1, argument=3" in done.output
    assert "send 14 bytes to port 7" in done.output
    done = CliRunner().invoke(application("trace"), [*words, "--json"])
    assert json.loads(done.output)["port"] == 4
    done = CliRunner().invoke(application("trace"), ["trace", path, "xyz"])
    assert done.exit_code != 0


class Slow:
    """A BMv2 for whose steps a second of a clock passes, each; it is wrong about every frame."""

    name = "bmv2"

    def __init__(self, side: EmbeddedSide, clock: list[float]) -> None:
        self._side, self._clock = side, clock

    def run(self, steps: Sequence[Step], expected: Sequence[int], check: Callable[[], None] = lambda: None) -> Seen:
        for _ in steps:
            check()
            self._clock[0] += 1
        return self._side.run(steps)

    def log(self, steps: Sequence[Step]) -> list[str]:
        return []


@pytest.mark.parametrize("side", ["replication", "damaged"])
def test_comparing_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    """Also while a case is shrunk, for which hundreds of runs would be needed."""
    clock = [0.0]
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    text = damaged("replication") if side == "damaged" else program("replication")
    differ = Differ(program("replication"), bmv2=False, until_s=600)
    differ._bmv2 = Slow(EmbeddedSide(text, "interpreter"), clock)  # type: ignore[assignment]
    finding, seed = None, 0
    while finding is None and clock[0] < 600:
        finding = differ.try_seed(seed)
        seed += 1
    assert (finding is None) == (side == "replication")
    # What is found as the time ends runs once more, and is smaller by then.
    assert clock[0] <= 600 + (len(finding.steps) + 1 if finding else 1)


def test_the_first_case_ends_in_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    differ = Differ(program("replication"), bmv2=False, until_s=20)
    differ._bmv2 = Slow(EmbeddedSide(program("replication"), "interpreter"), clock)  # type: ignore[assignment]
    assert differ.try_seed(0) is None
    assert (differ.tally.cases, differ.tally.packets) == (0, 0)
    assert clock[0] <= 20 + 1


def test_a_case_is_compared_before_its_packet_that_ends_bmv2_is_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try takes a new BMv2; when the time is over, the packet is shown as it is then."""
    clock = [0.0]
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    class Ends(EndsAt):
        def run(self, steps: Sequence[Step], expected: Sequence[int], check: Callable[[], None] = lambda: None) -> Seen:
            clock[0] += 1
            return super().run(steps, expected, check)

    steps = Differ(program("replication"), bmv2=False).case(1)
    runs = 1 + sum(isinstance(step, Packet) and step.port == 3 for step in steps)
    differ = Differ(program("replication"), bmv2=False, until_s=runs + 2)
    differ._bmv2 = Ends(EmbeddedSide(program("replication"), "interpreter"), 3)  # type: ignore[assignment]
    assert differ.try_seed(1) is None
    assert differ.tally.cases == 1
    assert differ.tally.ended[0].splitlines()[-1].startswith("packet 3 ")
    assert clock[0] == runs + 2


def field(header: str, name: str) -> dict[str, object]:
    return {"type": "field", "value": [header, name]}


@pytest.mark.parametrize("operation", ["push", "pop"])
def test_a_packet_that_reads_a_member_which_was_shifted_away_is_left_out(operation: str) -> None:
    document = json.loads(program("stacks"))
    action = next(one for one in document["actions"] if one["primitives"][0]["op"] == operation)
    member = "labels[0]" if operation == "push" else "labels[3]"
    shift = action["primitives"][0]
    action["primitives"] = [shift, {"op": "assign", "parameters": [field("command", "result"), field(member, "value")]}]
    differ = Differ(json.dumps(document).encode(), bmv2=False)
    differ._bmv2 = differ._other  # type: ignore[assignment] # any
    shifts, other = ((number, b"\2\4\6\x09") for number in (1 if operation == "push" else 2, 0))
    steps = tuple(Packet(port=1, frame=bytes([number, 0, 0]) + labels) for number, labels in (shifts, other))
    assert differ._defined(steps) == steps[1:]


@pytest.mark.parametrize("operation", ["push", "pop"])
def test_a_packet_that_reads_a_member_into_which_an_invalid_one_was_shifted_is_left_out(operation: str) -> None:
    """BMv2 shifts what the invalid member had as well."""
    document = json.loads(program("stacks"))
    action = next(one for one in document["actions"] if one["primitives"][0]["op"] == operation)
    before, after = ("labels[0]", "labels[1]") if operation == "push" else ("labels[2]", "labels[0]")
    removal = {"op": "remove_header", "parameters": [{"type": "header", "value": before}]}
    read = {"op": "assign", "parameters": [field("command", "result"), field(after, "value")]}
    action["primitives"] = [removal, action["primitives"][0], read]
    differ = Differ(json.dumps(document).encode(), bmv2=False)
    differ._bmv2 = differ._other  # type: ignore[assignment] # any
    shifts, other = ((number, b"\2\4\6\x09") for number in (1 if operation == "push" else 2, 0))
    steps = tuple(Packet(port=1, frame=bytes([number, 0, 0]) + labels) for number, labels in (shifts, other))
    assert differ._defined(steps) == steps[1:]


def test_a_copy_that_reads_a_header_which_was_invalid_before_is_left_out() -> None:
    """BMv2 copies the fields of valid headers alone; a packet that leaves by one port has them all."""
    document = json.loads(program("replication"))
    mark, result = field("seen", "mark"), field("command", "operation")
    actions = document["actions"]
    marks = [(one, step) for one in actions for step in one["primitives"] if step["parameters"][:1] == [mark]]
    (ingress, _), (_, egress) = marks
    ingress["primitives"].append({"op": "remove_header", "parameters": [{"type": "header", "value": "seen"}]})
    egress["parameters"] = [result, mark]
    differ = Differ(json.dumps(document).encode(), bmv2=False)
    group = Group(group=1, replicas=((4, 0),))
    one, copied = (Packet(port=1, frame=bytes([number, 1])) for number in (0, 1))
    assert differ.reference.run((group, one, copied)).packets == [[(2, b"\1\1")], [(4, b"\1\1")]]
    differ._bmv2 = differ._other  # type: ignore[assignment] # any
    assert differ._defined((group, one, copied)) == (group, one)


def test_two_clocks_are_not_compared() -> None:
    """The time between arrival and queue is 0 here, and some microseconds in BMv2."""
    document = json.loads(program("replication"))
    fields = [field("standard_metadata", name) for name in ("enq_timestamp", "ingress_global_timestamp")]
    difference_of = {"op": "-", "left": fields[0], "right": fields[1]}
    target = field("seen", "port")
    [action] = [
        one for one in document["actions"] if any(step["parameters"][:1] == [target] for step in one["primitives"])
    ]
    value = {"type": "expression", "value": {"type": "expression", "value": difference_of}}
    action["primitives"].append({"op": "assign", "parameters": [target, value]})
    text = json.dumps(document).encode()
    side = EmbeddedSide(text, "interpreter")
    steps: list[Step] = [Group(group=1, replicas=((3, 1),))]
    steps += [Packet(port=1, frame=bytes([kind, 1])) for kind in range(4)]
    runs = [side.run(steps, chance) for chance in (Chance(), *TIMES)]
    assert runs[0].packets != runs[1].packets != runs[2].packets


def test_bases_of_hashes_above_64_bits_are_named() -> None:
    text = program("hashing")
    assert with_narrow_bases(text) is None
    document = json.loads(text)
    steps = [step for action in document["actions"] for step in action["primitives"] if step["op"].endswith("_offset")]
    steps[0]["parameters"][1] = {"type": "hexstr", "value": hex((1 << 70) + 5)}
    changed = with_narrow_bases(json.dumps(document).encode())
    assert changed is not None
    assert EmbeddedSide(changed, "interpreter").run([Packet(port=1, frame=bytes(44))]).packets[0]


def test_prefixes_of_odd_keys_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.loads(program("matching"))
    keys = [key for one in document["pipelines"] for table in one["tables"] for key in table["key"]]
    lpm = next(key for key in keys if key["match_type"] == "lpm")
    header, name = lpm["target"]
    kind = next(one["header_type"] for one in document["headers"] if one["name"] == header)
    fields = next(one["fields"] for one in document["header_types"] if one["name"] == kind)
    place = next(number for number, one in enumerate(fields) if one[0] == name)
    fields[place][1] -= 4
    fields.append(["rest", 4, False])
    for pipeline in document["pipelines"]:
        for table in pipeline["tables"]:
            table.pop("entries", None)  # some have a whole value of the key
    text = json.dumps(document).encode()
    monkeypatch.setattr(search, "Bmv2Side", lambda text: EmbeddedSide(text, "interpreter"))
    differ = Differ(text, bmv2=True)
    assert any("no multiple of 8" in what for what in differ.tally.left_out)
    differ._bmv2 = None
    matches = [one for seed in range(3) for step in differ.case(seed) if isinstance(step, Insert) for one in step.match]
    assert [one for one in matches if isinstance(one, Lpm)]
    assert {one for one in matches if isinstance(one, Lpm)} == {Lpm(0, 0)}
