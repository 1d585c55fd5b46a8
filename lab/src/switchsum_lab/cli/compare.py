"""`switchsum compare`: a protocol's switch in Python beside its P4 program."""

from __future__ import annotations

from typing import Annotated

import typer

from switchsum.cli.output import JsonOption, print_json
from switchsum_switch.notices import waiting_for


def compare(
    protocol: Annotated[str, typer.Argument(help="Folder of the protocol, or the name of one of ours.")],
    frames: Annotated[int, typer.Option(min=1, help="Give both at least this many frames.")] = 10_000,
    workers: Annotated[int, typer.Option(min=2, help="Workers that make the frames.")] = 3,
    lanes: Annotated[int | None, typer.Option(min=1, help="Values in a frame. Default: as the protocol says.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first run; the same seed gives the same frames.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Hold a protocol's switch.py and its P4 program to each other, packet by packet (exit code 1 if they differ).

    The protocol's hosts make the frames, on links that lose, repeat and overtake; frames changed at random come
    between. The first difference is cut down to the fewest and shortest frames that show it.
    """
    from switchsum_lab.protocols.compare import compare as compare_switches

    with waiting_for(f"the frames of {protocol}"):
        found = compare_switches(protocol, frames=frames, workers=workers, lanes=lanes, seed=seed)
    difference = found.difference
    if as_json:
        counts = {"frames": found.frames, "answered": found.answered, "runs": found.runs}
        print_json({**counts, "difference": None if difference is None else difference.as_json()})
    else:
        text = f"{found.frames:,} frames, of which both answered {found.answered:,}, in {found.runs:,} runs"
        typer.echo(f"no difference: {text}" if difference is None else f"{difference}\n{text}")
    if difference is not None:
        raise typer.Exit(1)
