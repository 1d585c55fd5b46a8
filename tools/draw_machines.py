"""Draw the slot machine of the switch and of the worker, each from its table.

Run as `python tools/draw_machines.py`; it writes docs/images/slot-switch.svg and slot-worker.svg.  A test compares what
it makes with what is committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Final

from switchsum.host.engine.rules import RULES, Action
from switchsum.protocol import slot_rules

IMAGES: Final = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDTH, GAP, LINE, TOP = 250, 190, 17, 90
"""Pixels: of a box, between boxes, of a line of text, above the boxes."""


@dataclass(kw_only=True)
class Machine:
    """What a drawing shows."""

    title: str
    states: tuple[str, str, str]
    inside: dict[str, list[str]] = field(default_factory=dict)
    """What happens in a state and leaves it as it is."""
    arrows: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """What leads from one state to another."""

    def add(self, start: str, goal: str, text: str) -> None:
        """Note something that happens."""
        lines = self.inside.setdefault(start, []) if start == goal else self.arrows.setdefault((start, goal), [])
        if text not in lines:
            lines.append(text)


def switch_machine() -> Machine:
    """Read the table in the docstring of protocol/slot_rules.py."""
    states = ("unused", "open", "complete")
    machine = Machine(title="A cell of the switch (rows of protocol/slot_rules.py)", states=states)
    table = [[part.strip() for part in line.split("|")] for line in (slot_rules.__doc__ or "").splitlines()]
    for number, cell, *_, happens, counted in (row for row in table if len(row) > 4 and row[0].isdecimal()):
        named = [state for state in states if state in cell.split()]
        starts = states[1:] if "not unused" in cell else tuple(named)
        text = f"row {number}" + (f": {counted}" if counted else "")
        if "opens a round" in happens:
            for start in starts:
                machine.add(start, "open", f"{text}: a new round" if start == "open" else text)
        elif "complete now" in cell:
            machine.add("open", "complete", text)
        else:
            for start in starts:
                machine.add(start, start, text)
    return machine


def worker_machine() -> Machine:
    """Read RULES."""
    machine = Machine(title="A slot of a worker (RULES of host/engine/rules.py)", states=("idle", "waiting", "blocked"))
    for rule in RULES:
        for state in machine.states:
            action: Action = getattr(rule, state)
            goal = state if rule.then is None else rule.then.name.lower()
            if action is Action.NEVER or (action is Action.NOTHING and goal == state):
                continue
            does = "" if action is Action.NOTHING else f": {action.name}"
            machine.add(state, goal, f"{rule.event.name}{does}")
    return machine


def text_at(x: float, y: float, text: str, kind: str = "") -> str:
    """Return a line of text; `kind` is a class of the style."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(text)}</text>'


def draw(machine: Machine) -> str:
    """Return a drawing: three boxes in a row, arrows to the right above those to the left."""
    left = {state: 20 + index * (WIDTH + GAP) for index, state in enumerate(machine.states)}
    tall = max(60, 40 + LINE * max(len(lines) for lines in machine.inside.values()))
    parts = [text_at(20, 30, machine.title, "title")]
    for state, x in left.items():
        parts.append(f'<rect x="{x}" y="{TOP}" width="{WIDTH}" height="{tall}" rx="8" class="box"/>')
        parts.append(text_at(x + 12, TOP + 22, state, "title"))
        lines = machine.inside.get(state, [])
        parts += [text_at(x + 12, TOP + 44 + LINE * number, line) for number, line in enumerate(lines)]
    around = 0
    for (start, goal), labels in machine.arrows.items():
        here, there = machine.states.index(start), machine.states.index(goal)
        if abs(here - there) == 1:
            right = there > here
            y = TOP + (30 if right else 110)
            begin, end = (left[start] + WIDTH, left[goal] - 4) if right else (left[start], left[goal] + WIDTH + 4)
            parts.append(f'<path d="M{begin} {y}H{end}" class="arrow" marker-end="url(#head)"/>')
            x = min(begin, end) + 8
            for number, label in enumerate(wrapped(labels)):
                parts.append(text_at(x, y + (LINE * number or -6), label))
        else:
            y = TOP + tall + 30 + 40 * around
            around += 1
            begin, end = left[start] + WIDTH // 2 - 40, left[goal] + WIDTH // 2 + 40
            foot = TOP + tall
            parts.append(f'<path d="M{begin} {foot}V{y}H{end}V{foot + 4}" class="arrow" marker-end="url(#head)"/>')
            parts.append(text_at(min(begin, end) + 60, y - 6, "; ".join(labels)))
    size = f"{40 + 3 * WIDTH + 2 * GAP} {TOP + tall + 40 + 40 * around}"
    head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img" '
        f'aria-label="{escape(machine.title)}">',
        "<style>text{font:12px monospace;fill:#222}.title{font:bold 14px sans-serif}"
        ".box{fill:#eef3fa;stroke:#345}.arrow{fill:none;stroke:#345;stroke-width:1.5}</style>",
        f'<defs>{head}<path d="M0 0L8 4L0 8z" fill="#345"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#fff"/>',
        *parts,
        "</svg>\n",
    ))  # fmt: skip


def wrapped(labels: list[str]) -> list[str]:
    """Return labels of an arrow in lines that are short enough for the gap between two boxes."""
    return [line for label in labels for line in label.replace(": ", ":\n").replace(", ", ",\n").split("\n")]


def drawings() -> dict[str, str]:
    """Return all drawings, by file name."""
    return {"slot-switch.svg": draw(switch_machine()), "slot-worker.svg": draw(worker_machine())}


if __name__ == "__main__":
    for name, made in drawings().items():
        (IMAGES / name).write_text(made)
