"""Makes cases, runs them on all sides, and stops at the first that they do not agree about."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from switchsum_switch.errors import StateError
from switchsum_switch.execution.trace import Step as Trace
from switchsum_switch.program import model
from switchsum_switch.program.reader import read_program
from switchsum_switch.stf import Names
from switchsum_switch.stf.embedded import STEP_US

from .case import Group, Insert, Packet, Session, SetMember, Step, apply, stf_text
from .entries import Entries
from .packets import PORTS, Packets
from .shrink import shrink
from .sides import FURTHER_TIMES, FURTHER_UNDEFINED, TIMES, UNDEFINED, Bmv2Side, Chance, EmbeddedSide, Seen, difference

PACKETS: Final = 60
"""Packets of a case."""
LEARN_FROM: Final = 16
"""Packets of a case whose lookups entries are made for."""
ENTRIES: Final = 8
"""Most entries of a table."""
ROUNDS: Final = 3
"""Number of times that entries are made. The action of one entry leads to further lookups."""
HASH_BITS: Final = 64
"""Bits in which BMv2 computes `hash()`."""
TRIES: Final = 400
"""Runs that shrinking may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A case about which two sides disagree, shrunk."""

    seed: int
    sides: tuple[str, str]
    what: str
    steps: tuple[Step, ...]
    stf: str
    """The case as an STF test without expectations."""
    seen: dict[str, Seen]
    """Output of each side for the shrunk case."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What was compared."""

    cases: int = 0
    packets: int = 0
    entries: int = 0
    frames: int = 0
    left_out: list[str] = field(default_factory=list)
    """What is not compared, since BMv2 alone does it so."""
    ended: list[str] = field(default_factory=list)
    """Number of times that BMv2 ended itself. The first one is kept as an STF test."""


class _OutOfTime(Exception):
    """The time for comparing is over."""


class Differ:
    """Compares the switches with one program."""

    def __init__(self, device_config: bytes, *, bmv2: bool, until_s: float = math.inf) -> None:
        """Load the program everywhere; raises ProgramError, and LocalError if BMv2 does not take it.

        `until_s` is the time of the machine's monotonic clock at which no case goes on.
        """
        self._until_s = self._last_s = until_s
        self._program = read_program(device_config)
        self._names = Names(self._program)
        self._table_names = {table.name for table in self._names.tables()}
        self.reference = EmbeddedSide(device_config, "interpreter")
        self._other = EmbeddedSide(device_config, "interpreter")
        self._native = EmbeddedSide(device_config, "native")
        changes = (with_pushes, with_narrow_bases, with_padded_prefixes, with_last_defaults)
        changed = [change(device_config) for change in changes] if bmv2 else []
        self._changed = [EmbeddedSide(one, "interpreter") for one in changed if one is not None]
        """The program as BMv2 runs it in what is BMv2's own: packets that become something else are left out."""
        self._bmv2 = Bmv2Side(device_config) if bmv2 else None
        self._whole_prefixes = {table.name for table in self._names.tables() if bmv2 and _is_odd(self._names, table)}
        self.tally = Tally()
        if self._whole_prefixes:
            self.tally.left_out.append(
                f"prefixes in {', '.join(sorted(self._whole_prefixes))}: BMv2 compares other bits of an lpm key whose "
                "width is no multiple of 8"
            )
        if changed and changed[1] is not None:
            self.tally.left_out.append("packets with a base of hash() above 64 bits: BMv2 takes its low 64 bits")
        if changed and changed[2] is not None:
            self.tally.left_out.append("packets for which const entries of these keys matter")
        if changed and changed[3] is not None:
            self.tally.left_out.append(
                "packets for which a case of a parser matters that matches everything before others"
            )
        if changed and changed[0] is not None:
            self.tally.left_out.append("packets that show where BMv2 puts popped header unions")

    def case(self, seed: int) -> tuple[Step, ...]:
        """Return the case of a seed."""
        random = Random(seed)
        packets, entries = Packets(self._program, random), Entries(self._program, self._names, random)
        steps: list[Step] = [
            Group(group=group, replicas=tuple((port, random.randrange(4)) for port in random.sample(range(PORTS), 2)))
            for group in range(1, 4)
        ]
        steps += [Session(session=session, port=random.randrange(PORTS)) for session in range(1, 4)]
        frames = [Packet(port=packets.port(), frame=packets.frame()) for _ in range(PACKETS)]
        for table in self._names.tables():
            if random.random() < 1 / 4 and (default := entries.default(table.name)):
                steps.append(default)
        for _ in range(ROUNDS):
            steps += self._entries(steps, random.sample(frames, min(LEARN_FROM, len(frames))), entries)
        return self._defined([*steps, *frames])

    def _defined(self, steps: Sequence[Step], chances: Sequence[Chance] = UNDEFINED) -> tuple[Step, ...]:
        """Leave out the packets with which BMv2 does what nobody can count on.

        They read fields that they do not have, where BMv2 has what earlier packets had; or they use an index beyond the
        end of a register, counter or meter, at which BMv2 ends itself; or they pop a header union (`with_pushes`).
        """
        for _ in range(len(steps) if self._bmv2 is not None else 0):
            seen = self.reference.run(steps, states=True)
            wrong = set(seen.beyond)
            for chance in chances:
                self._check_time()
                wrong.update(_undefined(seen, self._other.run(steps, chance, states=True)))
            for changed in self._changed:
                self._check_time()
                wrong.update(_undefined(seen, changed.run(steps, states=True)))
            if not wrong:
                break
            numbers = iter(range(len(seen.packets)))
            steps = [step for step in steps if not isinstance(step, Packet) or next(numbers) not in wrong]
        return tuple(steps)

    def _entries(self, steps: Sequence[Step], frames: Sequence[Packet], entries: Entries) -> list[Step]:
        """Return entries for what packets look up in the tables as they are after `steps`."""
        self.reference.run(steps)
        pipeline, made = self.reference.switch.pipeline, list[Step]()
        counts = {name: len(table) for name, table in pipeline.tables.items()}
        for packet in frames:
            self._check_time()
            _, trace = pipeline.trace(packet.port, packet.frame)
            for lookup in trace.find("lookup"):
                name = lookup.detail["table"]
                if counts[name] >= ENTRIES:
                    continue
                key = [*lookup.detail["key"].values()]
                whole = name not in self._whole_prefixes
                entry = entries.for_key(name, key, whole) if name in self._table_names else self._member(name, key)
                if entry is not None and _fits(self.reference, entry):
                    made.append(entry)
                    counts[name] += 1
        return made

    def _member(self, table: str, key: Sequence[int]) -> SetMember | None:
        """Return the member of a value set for which the parser has looked; None for another table."""
        for name, found in self.reference.switch.pipeline.value_sets.items():
            for one in found.tables:
                if one.spec.name == table:
                    value = 0
                    for field, part in zip(one.spec.keys, key, strict=True):
                        value = value << field.width | part
                    return SetMember(value_set=name, value=value)
        return None

    def compare(self, steps: Sequence[Step]) -> tuple[tuple[str, str], str, dict[str, Seen]]:
        """Run a case on all sides; return which two differ and how ("" if none do), and what each did."""
        self._check_time()
        seen = {"interpreter": self.reference.run(steps), "native": self._native.run(steps)}
        if what := difference(seen["interpreter"], seen["native"]):
            return ("interpreter", "native"), what, seen
        if self._bmv2 is not None:
            seen["bmv2"] = self._bmv2.run(steps, seen["interpreter"].counts, self._check_time)
            if not seen["bmv2"].ended:
                return ("interpreter", "bmv2"), self._beside_bmv2(steps, seen["interpreter"], seen["bmv2"]), seen
        return ("", ""), "", seen

    def _beside_bmv2(self, steps: Sequence[Step], ours: Seen, its: Seen) -> str:
        """Return how BMv2 differs in what no chance decides; many chances are tried only where two find something."""
        what = difference(ours, its, [self._other.run(steps, chance) for chance in TIMES])
        if not what:
            return ""
        return difference(ours, its, [self._other.run(steps, chance) for chance in (*TIMES, *FURTHER_TIMES)])

    def try_seed(self, seed: int) -> Finding | None:
        """Run the case of a seed; return what the sides do not agree about, shrunk as far as time allows, or None."""
        try:
            return self._try(seed)
        except _OutOfTime:
            return None
        finally:
            self._until_s = self._last_s

    def _check_time(self) -> None:
        """End the case if its time is over."""
        if time.monotonic() >= self._until_s:
            raise _OutOfTime

    def _try(self, seed: int) -> Finding | None:
        steps, tally, ends = self.case(seed), self.tally, list[tuple[Step, ...]]()
        sides, what, seen = self.compare(steps)
        # A packet at which BMv2 ends itself is left out, so that the others are compared.
        while (its := seen.get("bmv2")) is not None and its.ended and any(isinstance(one, Packet) for one in steps):
            ends.append(steps[: its.ended_at + 1])
            steps = self._defined((*steps[: its.ended_at], *steps[its.ended_at + 1 :]))
            sides, what, seen = self.compare(steps)
        tally.cases += 1
        tally.packets += sum(isinstance(step, Packet) for step in steps)
        tally.entries += sum(isinstance(step, (Insert, SetMember)) for step in steps)
        tally.frames += sum(seen["interpreter"].counts)
        if ends and not tally.ended:  # each try needs a new BMv2, so the case is compared before
            small = shrink(ends.pop(0), self._while_time(self._ends_bmv2), TRIES // 8)
            tally.ended.append(stf_text(small, self._names))
        tally.ended += [""] * len(ends)
        if what and "bmv2" in sides:
            steps = self._defined(steps, FURTHER_UNDEFINED)
            what = self.compare(steps)[1]
        if not what or self.compare(steps)[1] != what:
            return None  # nothing, or nothing that happens twice
        # From here on the time may end: the case is then as small as it has become, and is run once more.
        small = shrink(steps, self._while_time(self._still(sides)), TRIES if "bmv2" not in sides else TRIES // 2)
        self._until_s = math.inf
        sides, what, seen = self.compare(small)
        if not what:
            return None  # what happened a few times does not happen again
        return Finding(seed=seed, sides=sides, what=what, steps=small, stf=stf_text(small, self._names), seen=seen)

    def traces(self, finding: Finding) -> list[Trace]:
        """Return what the interpreter does to each packet of a finding."""
        self.reference.run([step for step in finding.steps if not isinstance(step, Packet)])
        pipeline, made = self.reference.switch.pipeline, list[Trace]()
        for number, step in enumerate(step for step in finding.steps if isinstance(step, Packet)):
            made.append(pipeline.trace(step.port, step.frame, (number + 1) * STEP_US)[1])
        return made

    def bmv2_log(self, finding: Finding) -> list[str]:
        """Return what BMv2 writes to its log when it runs a finding; raises LocalError if it cannot be started."""
        assert self._bmv2 is not None
        return self._bmv2.log(finding.steps)

    def _while_time(self, holds: Callable[[Sequence[Step]], bool]) -> Callable[[Sequence[Step]], bool]:
        """Return a condition that no case fulfils any more when the time is over."""

        def within(steps: Sequence[Step]) -> bool:
            try:
                self._check_time()
                return holds(steps)
            except _OutOfTime:
                return False

        return within

    def _still(self, sides: tuple[str, str]) -> Callable[[Sequence[Step]], bool]:
        def still(steps: Sequence[Step]) -> bool:
            if self._defined(steps) != tuple(steps):
                return False
            who, what, _ = self.compare(steps)
            if not what or who != sides:
                return False
            return "bmv2" not in sides or self._defined(steps, FURTHER_UNDEFINED) == tuple(steps)

        return still

    def _ends_bmv2(self, steps: Sequence[Step]) -> bool:
        assert self._bmv2 is not None
        return bool(self._bmv2.run(steps, self.reference.run(steps).counts).ended)


def with_pushes(device_config: bytes) -> bytes | None:
    """Return a program that pushes where it pops header unions; None: it pops none.

    BMv2 puts unions that are popped to the end of their stack (docs/results/conformance.md).  So a packet
    is left out if this changed program makes something else of it.
    """
    document = json.loads(device_config)
    primitives = [one for action in document.get("actions", ()) for one in action["primitives"]]
    pops = [one for one in primitives if one["op"] == "pop" and one["parameters"][0]["type"] == "header_union_stack"]
    for one in pops:
        one["op"] = "push"
    return json.dumps(document).encode() if pops else None


def with_narrow_bases(device_config: bytes) -> bytes | None:
    """Return a program whose hashes take the low 64 bits of their base; None: no base may be wider."""
    document = json.loads(device_config)
    wide = {
        (header["name"], name): width
        for kind in document.get("header_types", ())
        for header in document.get("headers", ())
        if header["header_type"] == kind["name"]
        for name, width, *_ in kind["fields"]
        if width == "*" or width > HASH_BITS
    }
    changed = False
    for action in document.get("actions", ()):
        for step in action["primitives"]:
            if step["op"] != "modify_field_with_hash_based_offset":
                continue
            base = step["parameters"][1]
            is_number = base["type"] == "hexstr"
            if is_number and int(base["value"], 16) >> HASH_BITS == 0:
                continue
            if base["type"] == "field" and tuple(base["value"]) not in wide:
                continue
            narrow = {"op": "&", "left": base, "right": {"type": "hexstr", "value": hex((1 << HASH_BITS) - 1)}}
            step["parameters"][1] = {"type": "expression", "value": narrow}
            changed = True
    return json.dumps(document).encode() if changed else None


def with_padded_prefixes(device_config: bytes) -> bytes | None:
    """Return a program whose const entries have the prefixes that BMv2 compares; None: it has none that change.

    BMv2 fills an lpm key to whole bytes in front, and counts the prefix from there.
    """
    document = json.loads(device_config)
    widths = {
        (header["name"], name): width
        for kind in document.get("header_types", ())
        for header in document.get("headers", ())
        if header["header_type"] == kind["name"]
        for name, width, *_ in kind["fields"]
    }
    changed = False
    for table in (one for pipeline in document.get("pipelines", ()) for one in pipeline["tables"]):
        seen, kept = set[str](), []
        for entry in table.get("entries", ()):
            for key, part in zip(table["key"], entry["match_key"], strict=True):
                width = widths.get(tuple(key["target"]), 8) if isinstance(key["target"], list) else 8
                if part["match_type"] != "lpm" or width == "*" or not width % 8:
                    continue
                length = max(0, part["prefix_length"] - -width % 8)
                value = int(part["key"], 16) >> (width - length) << (width - length)
                part["prefix_length"], part["key"], changed = length, hex(value), True
            if (text := json.dumps(entry["match_key"])) not in seen:  # two prefixes may have become one
                kept.append(entry)
            seen.add(text)
        if "entries" in table:
            table["entries"] = kept
    return json.dumps(document).encode() if changed else None


def with_last_defaults(device_config: bytes) -> bytes | None:
    """Return a program whose parser looks at `default` after all other cases; None: it does so in any case.

    p4c writes a case that matches everything, such as `1 &&& 0`, as a default.  Of several BMv2 takes the last one.
    """
    document = json.loads(device_config)
    changed = False
    for state in (one for parser in document.get("parsers", ()) for one in parser["parse_states"]):
        cases = state["transitions"]
        defaults = [one for one in cases if one.get("type") == "default"]
        state["transitions"] = [*(one for one in cases if one.get("type") != "default"), *defaults[-1:]]
        changed = changed or state["transitions"] != cases
    return json.dumps(document).encode() if changed else None


def _is_odd(names: Names, table: model.Table) -> bool:
    """Return whether a table has an lpm key whose width is no multiple of 8."""
    return any(key.kind == "lpm" and names.width(key) % 8 for key in table.keys)


def _fits(side: EmbeddedSide, entry: Insert | SetMember) -> bool:
    """Add an entry to a switch; return whether it took it."""
    try:
        apply(entry, side.switch, 0)
    except StateError:
        return False
    return True


def _undefined(one: Seen, other: Seen) -> list[int]:
    """Return the packets that become something else with another chance.

    If such a packet also leaves something else in registers or counters, it alone: later ones may differ because of it.
    """
    both = zip(zip(one.packets, one.states, strict=True), zip(other.packets, other.states, strict=True), strict=True)
    differing = [number for number, (mine, its) in enumerate(both) if mine != its]
    return differing if one.states == other.states else differing[:1]
