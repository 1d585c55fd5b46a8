"""Draw the slot machine of the switch and of the worker, each from its table.

Run as `python -m tools.draw_machines`; it writes docs/images/slot-switch.svg and slot-worker.svg.  A test compares what
it makes with what is committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from switchsum_host.engine.rules import RULES, Action
from switchsum_protocol import slot_rules
from tools.svg import LINE, Drawing

IMAGES: Final = Path(__file__).resolve().parent.parent / "docs" / "images"
BOX, GAP = 330, 22
"""Units: width of a box, height between boxes."""


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
    """Read the table in the docstring of protocol/switchsum_protocol/slot_rules.py."""
    states = ("unused", "open", "complete")
    machine = Machine(title="A cell of the switch (rows of slot_rules.py)", states=states)
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
    machine = Machine(title="A slot of a worker (RULES of engine/rules.py)", states=("idle", "waiting", "blocked"))
    for rule in RULES:
        for state in machine.states:
            action: Action = getattr(rule, state)
            goal = state if rule.then is None else rule.then.name.lower()
            if action is Action.NEVER or (action is Action.NOTHING and goal == state):
                continue
            does = "" if action is Action.NOTHING else f": {action.name}"
            machine.add(state, goal, f"{rule.event.name}{does}")
    return machine


def draw(machine: Machine) -> str:
    """Return a drawing: a box for each state, one below the other, and an arrow from each line that leads elsewhere."""
    drawing = Drawing(machine.title)
    drawing.text(10, 22, machine.title, "title")
    tops: dict[str, float] = {}
    leaving: list[tuple[float, str]] = []
    y = 36.0
    for state in machine.states:
        tops[state], lines = y, list(machine.inside.get(state, []))
        for (start, goal), labels in machine.arrows.items():
            if start == state:
                leaving += ((y + 36 + LINE * (len(lines) + number), goal) for number in range(len(labels)))
                lines += (f"{label} -> {goal}" for label in labels)
        y = drawing.box(10, y, BOX, state, lines, kind="") + GAP
    for lane, (begin, goal) in enumerate(leaving):
        x, end = 10 + BOX + 14 * (lane + 1), tops[goal] + 12 + 5 * sum(of == goal for _, of in leaving[:lane])
        drawing.arrow((10 + BOX, begin), (x, begin), (x, end), (14 + BOX, end))
    return drawing.svg(y - GAP + 12)


def drawings() -> dict[str, str]:
    """Return all drawings, by file name."""
    return {"slot-switch.svg": draw(switch_machine()), "slot-worker.svg": draw(worker_machine())}


if __name__ == "__main__":
    for name, made in drawings().items():
        (IMAGES / name).write_text(made)
