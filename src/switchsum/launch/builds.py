"""Options that say how large frames are and how many are in flight, or leave it to what the links carry."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from switchsum.protocol.errors import UsageError
from switchsum.protocol.frame import LANE_BUILDS

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
        "those that all such jobs share."
    ),
]


def read_lanes(text: str) -> int | None:
    """Return which build of the P4 program was asked for, None for auto; raises UsageError."""
    if text == AUTO:
        return None
    if text not in map(str, LANE_BUILDS):
        raise UsageError(f"--lanes must be {', '.join(map(str, LANE_BUILDS))} or {AUTO}, not {text}")
    return int(text)


def read_slots(text: str) -> int | None:
    """Return how many slots were asked for, None for auto; raises UsageError."""
    if text == AUTO:
        return None
    if text.partition(":")[0] == SHARED:
        raise UsageError(
            f"--slots {text}: a job that is started here with its switch has all slots to itself; jobs that share "
            "slots are made by switchsum job create"
        )
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"--slots must be a number or {AUTO}, not {text}")
    return int(text)


def read_shared(text: str) -> tuple[bool, int | None]:
    """Return whether slots are shared, and how many were asked for, None for auto and for all; raises UsageError."""
    word, _, most = text.partition(":")
    count = most if word == SHARED and text != SHARED else text
    if text not in (AUTO, SHARED) and not (count.isascii() and count.isdigit()):
        raise UsageError(f"--slots must be a number, {AUTO}, {SHARED} or {SHARED}:N, not {text}")
    return word == SHARED, int(count) if count.isdigit() else None
