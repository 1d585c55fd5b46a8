"""Cells of other systems' protocols: those of `baselines/`, and a reader's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from switchsum_lab.protocols import seam, virtual
from switchsum_lab.simulation.scenario import Drawing, Result, Scenario
from switchsum_lab.sweeps.axes import OURS, Cell, Impossible
from switchsum_protocol.errors import SwitchsumError, UsageError

SWITCH = virtual.SWITCH
"""Name of the switch in links of other protocols."""
WRONG: Final = (
    "a sum was wrong, so this run does not count; one of a protocol of your own whose host.py says INEXACT = True does"
)
_OURS_ALONE = ("collective", "topology")
"""Axes of which other protocols have the default alone."""


def load(cell: Cell, beside: Sequence[str] = ()) -> seam.Baseline:
    """Return the protocol of a cell; raises Impossible if it is none, or lacks what the cell asks for.

    `beside` are names of protocols that are no folders, for the error.
    """
    try:
        found = seam.load(cell.protocol)
    except UsageError as error:
        also = f"; {', '.join(beside)} are known on {cell.links} links as well" if beside else ""
        raise Impossible("protocol", f"{error}{also}") from error
    for name in _OURS_ALONE:
        if getattr(cell, name) != getattr(Cell(), name):
            raise Impossible(name, f"{cell.protocol} has none of it: only {OURS} has")
    lanes = lanes_of(cell, found)
    asked: dict[str, Any] = {"workers": cell.workers, "lanes": lanes, "slots": cell.slots or 1}
    for axis, name, value in (
        ("workers" if cell.servers is None else "servers", "servers", cell.servers),
        ("jobs", "jobs", cell.jobs),
        ("fusion", "block", (cell.block or lanes) if cell.fusion else None),
    ):
        asked[name] = value
        try:
            world = found.world(**asked)
        except UsageError as error:
            raise Impossible(axis, str(error)) from error
    try:
        found.check_switch(world, is_virtual=cell.is_virtual)
    except SwitchsumError as error:
        raise Impossible("lanes", str(error)) from error
    return found


def is_inexact(cell: Cell) -> bool:
    """Whether wrong sums of a cell's protocol count, with their error."""
    try:
        return seam.load(cell.protocol).is_inexact
    except UsageError:  # gloo, say
        return False


def refuse_servers(cell: Cell) -> None:
    """Raise Impossible if a protocol without servers is to have some."""
    if cell.servers is not None:
        raise Impossible("servers", f"{cell.protocol} has none: only protocols of `baselines/` have servers")


def lanes_of(cell: Cell, protocol: seam.Baseline) -> int:
    """Return how many values a frame has; raises Impossible."""
    if not cell.lanes:
        return protocol.lanes
    if not cell.lanes.isdecimal():
        raise Impossible("lanes", f"{cell.protocol} takes a number of values, not {cell.lanes}")
    return int(cell.lanes)


def simulate(cell: Cell, wanted: Scenario, draw: Drawing) -> Result:
    """Simulate a cell; raises SwitchsumError."""
    lanes = lanes_of(cell, load(cell))
    own = replace(wanted, lanes_per_frame=lanes, lanes="int32")
    return virtual.simulate(
        own,
        cell.protocol,
        draw=draw,
        servers=cell.servers,
        block=(cell.block or lanes) if cell.fusion else None,
    )
