"""Replays a step of a recording in virtual time, with any number of workers, rate, loss and protocol.

The calls of a step are added one after the other, each as soon as it was begun in the recording and the one before has
ended.  Worker r of a larger job replays recorded rank r modulo the recorded ranks, r // ranks steps later, so that no
two workers have the same blocks unless the recording has fewer steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from switchsum_lab.sweeps import recording, supports
from switchsum_lab.sweeps.axes import Cell, Impossible
from switchsum_lab.sweeps.outcome import Outcome
from switchsum_lab.sweeps.recording import Call, Recording, RecordingError

load = lru_cache(maxsize=4)(recording.load)
Draw = Callable[[int], supports.Array]
"""Returns the array of a rank."""


def check(cell: Cell) -> None:
    """Raise Impossible if a cell cannot replay its recording."""
    assert cell.recording is not None
    try:
        [first, *_] = load(cell.recording)
    except RecordingError as error:
        raise Impossible("recording", str(error)) from error
    if not first.calls:
        raise Impossible("recording", f"{cell.recording} is empty: nothing was added while it was recorded")
    if cell.step not in first.steps():
        raise Impossible("step", f"{cell.recording} has steps 0 to {len(first.steps()) - 1}, not {cell.step}")
    for name in ("bytes", "block", "overlap", "jobs"):
        if getattr(cell, name) != getattr(Cell(), name):
            raise Impossible(name, "a recording says it: leave it out")


def calls(cell: Cell) -> Sequence[Call]:
    """Return the calls of the step that a cell replays, of rank 0."""
    assert cell.recording is not None
    return load(cell.recording)[0].steps()[cell.step]


def block(cell: Cell) -> int:
    """Return how many values a block of the bitmaps has."""
    assert cell.recording is not None
    return 1 if cell.collective == "topk" else load(cell.recording)[0].block


def drawing(cell: Cell, number: int, seed: int) -> Draw:
    """Return what makes the array of each rank for the call with this number of the step."""
    assert cell.recording is not None
    ranks = load(cell.recording)

    def draw(rank: int) -> supports.Array:
        call = _call_of(ranks, cell.step, number, rank)
        if cell.collective == "topk":
            mask = np.zeros(call.values, np.bool_)
            mask[call.top] = True
        else:
            mask = call.blocks.copy()
        if cell.density < 1:
            mask &= np.random.default_rng([seed, rank, number]).random(len(mask)) < cell.density
        return supports.spread(mask, rank, values=call.values, block=block(cell))

    return draw


def _call_of(ranks: Sequence[Recording], step: int, number: int, rank: int) -> Call:
    own = ranks[rank % len(ranks)].steps()
    return own[(step + rank // len(ranks)) % len(own)][number]


def run(cell: Cell, seed: int, one: Callable[[Cell, int, Draw], Outcome]) -> Outcome:
    """Replay a step; `one` simulates a single collective of given arrays."""
    found: list[Outcome] = []
    ended_s, began_s = 0.0, calls(cell)[0].at_s
    for number, call in enumerate(calls(cell)):
        found.append(one(replace(cell, bytes=4 * call.values), seed, drawing(cell, number, seed)))
        ended_s = max(ended_s, call.at_s - began_s) + found[-1].ms / 1e3

    def total(name: str) -> Any:
        values = [getattr(outcome, name) for outcome in found]
        return None if None in values else sum(values)

    return Outcome.of(
        ended_s,
        sum(4 * call.values for call in calls(cell)),
        sent_mb=total("sent_mb"),
        frames=total("frames"),
        repeats=total("repeats"),
        right=None if any(one.right is None for one in found) else all(one.right for one in found),
    )
