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
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"--slots must be a number or {AUTO}, not {text}")
    return int(text)
