"""Options that say how large frames are and how many are in flight, or leave it to what the links carry."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import LANE_BUILDS

AUTO: Final = "auto"

LanesOption = Annotated[
    str, typer.Option(help="32-bit lanes in a frame: 128, 256 or 2048. auto: as many as every link carries.")
]
SlotsOption = Annotated[str, typer.Option(help="Slots of the job. auto: as many as its members keep in flight.")]


SHARED: Final = "shared"
SharedSlotsOption = Annotated[
    str,
    typer.Option(
        help="Slots of the job. auto: as many as its members keep in flight. shared, or shared:N for N at most: "
        "those that all such jobs share. M+shared, or M+shared:N: these, and M that no other job uses."
    ),
]


def read_lanes(text: str, option: str = "--lanes") -> int | None:
    """Return which build of the P4 program was asked for, None for auto; raises UsageError."""
    if text == AUTO:
        return None
    if text not in map(str, LANE_BUILDS):
        raise UsageError(f"{option} must be {', '.join(map(str, LANE_BUILDS))} or {AUTO}, not {text}")
    return int(text)


def read_slots(text: str) -> int | None:
    """Return how many slots were asked for, None for auto; raises UsageError."""
    if text == AUTO:
        return None
    if text.partition("+")[2].partition(":")[0] == SHARED or text.partition(":")[0] == SHARED:
        raise UsageError(
            f"--slots {text}: a job that is started here with its switch has all slots to itself; jobs that share "
            "slots are made by switchsum job create"
        )
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"--slots must be a number or {AUTO}, not {text}")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Which slots a job is to have."""

    count: int | None = None
    """None: auto, or all that are shared."""
    is_shared: bool = False
    own: int = 0
    """Those that it reserves beside shared ones."""


def read_shared(text: str) -> Slots:
    """Return which slots were asked for; raises UsageError."""
    if text == AUTO:
        return Slots()
    if found := re.fullmatch(rf"(?:([1-9][0-9]*)\+)?{SHARED}(?::([0-9]+))?", text, re.ASCII):
        own, most = found.groups()
        return Slots(count=None if most is None else int(most), is_shared=True, own=int(own or 0))
    if not (text.isascii() and text.isdigit()):
        raise UsageError(
            f"--slots must be a number, {AUTO}, {SHARED}, {SHARED}:N, M+{SHARED} or M+{SHARED}:N, not {text}"
        )
    return Slots(count=int(text))
