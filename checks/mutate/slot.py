"""Each row of the slot's rules broken on one side alone: in the P4 program, in its definition, or in the model.

Two of these are compared at a time, in all that a slot can do (`checks.verify.relation`), so each change must show.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from checks.verify.relation import QUICK, Data, Relation, Step, difference, relation
from checks.verify.replay import differences
from checks.verify.switches import LANES, Program, Rules, Switch
from switchsum import p4src
from switchsum_protocol import slot_rules
from switchsum_protocol.frame import Flag
from switchsum_switch.execution.pipeline import Pipeline

from .mutant import Mutant, edited

Json = dict[str, Any]
Edit = Callable[["Ingress"], None]
PLACE: Final = "SwitchIngress.dispatch.cells.slot"


class Ingress:
    """The P4 program as p4c wrote it, to be changed.  Nodes are found by the source they were made from."""

    def __init__(self) -> None:
        self.program: Json = json.loads(p4src.load(LANES).device_config)
        [ingress] = [each for each in self.program["pipelines"] if each["name"] == "ingress"]
        self._conditionals: list[Json] = ingress["conditionals"]

    def condition(self, source: str, which: int = 0) -> Json:
        """Return a conditional of slot.p4 by how its text begins, the `which`-th in the file (-1: the last)."""
        found = [
            each
            for each in self._conditionals
            if each.get("source_info", {}).get("filename", "").endswith("slot.p4")
            and each["source_info"]["source_fragment"].startswith(source)
        ]
        return sorted(found, key=lambda each: int(each["source_info"]["line"]))[which]

    def always(self, node: Json, outcome: bool) -> None:
        """Let a conditional go one way."""
        way = "true_next" if outcome else "false_next"
        node["true_next"] = node["false_next"] = node[way]

    def without(self, action: str, *sources: str) -> None:
        """Take an action's statements out whose texts begin so."""
        for found in self.program["actions"]:
            if found["name"] == f"{PLACE}.{action}":
                for primitive in found["primitives"]:
                    text = primitive.get("source_info", {}).get("source_fragment", "")
                    if text.startswith(sources):
                        _do_nothing(primitive)
                        break
                else:
                    raise AssertionError(f"{action} has no {sources}")

    def pipeline(self) -> Pipeline:
        """Return the changed program, interpreted."""
        return Pipeline.load(json.dumps(self.program), engine="interpreter")


def _do_nothing(primitive: Json) -> None:
    """Assign a field to itself: jumps in an action count its statements."""
    target, _ = primitive["parameters"]
    primitive["parameters"] = [target, target]


def _only(node: Json, side: str) -> None:
    """Leave one side of a conditional's `and` or `or`."""
    node["expression"] = node["expression"]["value"][side]


def _row_7(program: Ingress) -> None:
    [flags] = [
        primitive
        for action in program.program["actions"]
        for primitive in action["primitives"]
        if primitive.get("source_info", {}).get("source_fragment", "").startswith("flags = hdr.agg.flags &")
    ]
    flags["parameters"][1] = {"type": "hexstr", "value": hex(Flag.PAYLOAD)}


def _row_8(program: Ingress) -> None:
    for action in program.program["actions"]:
        if action["name"] == f"{PLACE}.lanes.add":
            for primitive in action["primitives"]:
                if primitive.get("source_info", {}).get("source_fragment", "").startswith("= flags |"):
                    _do_nothing(primitive)


COMPLETE: Final = "cell.seen == meta.everybody"
PROGRAM: Final[dict[str, Edit]] = {
    "row 1: QUERY overwrites": lambda p: p.always(p.condition("hdr.agg.kind == kind_t.SET"), outcome=True),
    "row 2: SET leaves the contributors": lambda p: p.without("overwrite", "cell.seen = "),
    "row 3: an old number opens a round": lambda p: p.always(p.condition("is_used && is_older"), outcome=False),
    "row 4: an unused cell opens no round": lambda p: _only(p.condition("!is_used ||"), "right"),
    "row 5: a newer number opens no round": lambda p: _only(p.condition("!is_used ||"), "left"),
    "row 5: flags outlive the round": lambda p: p.without("open", "0x00FFFFFFFFFF"),
    "row 6: later lanes overwrite": lambda p: p.always(p.condition("is_empty"), outcome=True),
    "row 6: first lanes are added": lambda p: p.always(p.condition("is_empty"), outcome=False),
    "row 6: the member does not count": lambda p: p.without("join", "cell.seen = "),
    "row 7: lanes that are not there count": _row_7,
    "row 8: no overflow flag": _row_8,
    "row 9: any tag will do": lambda p: p.always(p.condition("is_same_tag &&"), outcome=True),
    "row 9: no mismatch flag": lambda p: p.without("join", "cell.outcome = "),
    "row 10: a repeat counts as the last": lambda p: p.always(p.condition(COMPLETE), outcome=True),
    "rows 10 and 11: a repeat joins again": lambda p: p.always(p.condition("has_sent"), outcome=False),
    "row 11: a repeat is held": lambda p: p.always(p.condition(COMPLETE), outcome=False),
    "row 12: the last alone gets the result": lambda p: p.always(p.condition("is_repeat", -1), outcome=True),
}
"""Changes of the P4 program."""

DEFINITION: Final[dict[str, tuple[str, str]]] = {
    "row 1: QUERY overwrites": ("if request.kind == Kind.SET:", "if True:"),
    "row 2: SET leaves the contributors": ("request.number, request.bitmap, 0", "request.number, cell.seen, 0"),
    "row 3: an old number opens a round": ("return cell.seen != 0 and is_older(number, cell.number)", "return False"),
    "row 4: an unused cell opens no round": ("if cell.seen == 0 or cell.number", "if cell.number"),
    "row 5: a newer number opens no round": ("if cell.seen == 0 or cell.number != header.number", "if cell.seen == 0"),
    "row 5: flags outlive the round": ("        cell.next_exponent = 0\n        cell.flags = 0\n", ""),
    "row 6: later lanes overwrite": (
        "if not cell.flags & Flag.PAYLOAD:\n            cell",
        "if True:\n            cell",
    ),
    "row 6: the member does not count": ("        cell.seen |= member.bit\n", ""),
    "row 6: a larger next block wins": ("header.next_block < cell.next_block", "header.next_block > cell.next_block"),
    "row 6: the last exponent wins": (
        "max(cell.next_exponent, header.next_exponent)",
        "header.next_exponent",
    ),
    "row 7: who has no lanes is not counted so": (
        "if not header.flags & Flag.PAYLOAD:\n            return Reason.CONTRIBUTED",
        "if not header.flags & Flag.PAYLOAD:\n            return Reason.MISMATCH",
    ),
    "row 8: no overflow flag": ("        cell.flags |= Flag.OVERFLOW\n", ""),
    "row 9: any tag will do": ("if cell.tag != tag:", "if False:"),
    "row 9: no mismatch flag": ("            cell.flags |= Flag.MISMATCH\n", ""),
    "row 10: a repeat counts as the last": ("complete = cell.seen == member.everybody", "complete = True"),
    "rows 10 and 11: a repeat joins again": ("return bool(cell.seen & member.bit)", "return False"),
    "row 11: a repeat is held": ("complete = cell.seen == member.everybody", "complete = False"),
    "row 12: the last alone gets the result": ("if other.job == member.job]", "if other is member]"),
}
"""Changes of `protocol/switchsum_protocol/slot_rules.py`, which are texts and what they become."""

MODEL: Final[dict[str, tuple[str, str]]] = {
    "row 3: an old number opens a round": ("(seen[CELL(n)] != 0 && IS_OLD(n))", "0"),
    "row 4: an unused cell opens no round": ("(seen[CELL(n)] == 0 || AGE(n) != 0)", "(AGE(n) != 0)"),
    "row 5: a newer number opens no round": ("(seen[CELL(n)] == 0 || AGE(n) != 0)", "(seen[CELL(n)] == 0)"),
    "row 5: flags outlive the round": ("    mismatch[c] = 0;\n", ""),
    "row 5: lanes outlive the round": ("    has_payload[c] = 0;\n", ""),
    "row 6: later lanes are lost": ("added[c * MOST + w] = added[c * MOST + w] + 1", "skip"),
    "row 6: the member does not count": ("seen[CELL(n)] = seen[CELL(n)] | BIT(w)", "skip"),
    "row 6: a larger next block wins": ("named < next_block[c]", "named > next_block[c]"),
    "row 6: the first exponent wins": ("named_exponent > next_exponent[c]", "0"),
    "row 7: lanes that are not there count": (":: pays -> combine", ":: true -> combine"),
    "row 9: any tag will do": ("tag[CELL(n)] != OWN_TAG(i, w, r)", "false"),
    "row 9: no mismatch flag": ("-> mismatch[CELL(n)] = 1", "-> skip"),
    "row 10: a repeat gets an answer": ("(IS_COMPLETE(i, n) && r", "(true && r"),
    "rows 10 and 11: a repeat joins again": ("(seen[CELL(n)] & BIT(w))", "0"),
    "row 11: a repeat gets no answer": (":: IS_REPEAT(i, w, n) -> answer(CELL(n), i, w, r)", ":: IS_REPEAT(i, w, n)"),
    "row 12: one member gets no result": ("            answer(CELL(n), i, 1, r);\n", ""),
}
"""Changes of `checks/verify/slot.pml`."""
NOT_MODELLED: Final = {1, 2, 8}
"""Rows: the model's controller reads cells without a frame, and lanes there have no values that could overflow."""


def mutants() -> Iterator[Mutant]:
    """Yield each change."""
    for name, edit in PROGRAM.items():
        yield Mutant(side="P4 program", name=name, is_noticed=functools.partial(program_differs, edit))
    for name, (before, after) in DEFINITION.items():
        yield Mutant(side="definition", name=name, is_noticed=functools.partial(definition_differs, before, after))
    for name, change in MODEL.items():
        yield Mutant(side="model", name=name, is_noticed=functools.partial(model_differs, change))


@functools.cache
def expected(data: Data) -> Relation:
    """Return what the definition says a slot does."""
    return relation(Rules(), data)


def differs(switch: Switch) -> bool:
    """Tell whether a switch does anything that the definition does not say."""
    return any(difference(switch, data, expected(data)) for data in QUICK)


def expected_steps() -> list[Step]:
    """Return all that the definition says a slot does, some data after the other."""
    return [step for data in QUICK for step in expected(data).values()]


def program_differs(edit: Edit) -> bool:
    """Tell whether a changed program does anything that the definition does not say."""
    ingress = Ingress()
    edit(ingress)
    return differs(Program(ingress.pipeline()))


def definition_differs(before: str, after: str) -> bool:
    """Tell whether a changed definition says anything else than it does."""
    return differs(Rules(edited(slot_rules, before, after).ReferenceSwitch))


def model_differs(change: tuple[str, str]) -> bool:
    """Tell whether a changed model does anything that the definition does not say."""
    return bool(differences(expected_steps(), edits={"slot.pml": change}))
