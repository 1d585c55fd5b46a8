"""Which contributions wait for the congestion window, in what order they go, and what each result tells the window.

How large the window is, `policies/window.py` says; when a contribution may leave, `policies/pacing.py`.  They decide
by how long rounds take, and how fast results come: `policies/round_trips.py`, `policies/delivery.py`.

A contribution that finds the window full is withheld, with its slot in phase `BLOCKED`.  It is sent when results have
made room, in an order that is the same on all ranks (`turn_of`), whatever each of them has lost: ranks whose windows
hold other slots would wait for one another.  Should they do so, each second time-out sends one more (`recovery.probe`).
The way over the fallback has a small window of its own.  If it is full, owners also wait there for their last results.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_protocol.frame import NO_BLOCK
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.memory import Scalar

from .policies import delivery, pacing, round_trips, window
from .policies.window import allowed
from .state import MOST_TREES, OPERATIONS, Count, PathState, Phase, Slot, State

FIRST_EMPTY: Final = 128
"""Most contributions without lanes in flight over a tree before any result: as many bytes as a few whole frames."""
_FIRST_PASSED: Final = 4
"""Contributions in flight that the fallback adds, until its path is known to hold more (`window.bound`);
docs/results/shared-slots.md has times with more and fewer."""
_BLOCK_BITS: Final = 33


def share_out(state: State, trees: npt.NDArray[np.integer[Any]]) -> None:
    """Give each slot its tree.  A tree that gets other slots begins anew, and what was withheld is sent."""
    core, slots, paths = state.core[0], state.slots, state.paths
    counts = np.bincount(trees, minlength=MOST_TREES)
    for tree in np.flatnonzero(counts != paths["slots"]):
        paths["window"]["limit"][tree] = min(counts[tree], FIRST_EMPTY)
        paths["window"]["is_open"][tree] = 0
    slots["tree"] = trees
    core["progress"]["blocked"] += np.count_nonzero(slots["withheld"])
    slots["withheld"] = paths["withheld"] = 0
    paths["slots"], paths["window"]["most"], paths["base"] = counts, counts, np.cumsum(counts) - counts
    paths["in_flight"] = np.bincount(trees[slots["phase"] != Phase.IDLE], minlength=MOST_TREES)
    core["recovery"]["look_at"] = 0.0 if np.count_nonzero(counts) > 1 else np.inf
    if (shared := int(core["member"]["shared_tree"])) >= 0:  # behind it is the window of the way over the fallback
        paths["slots"][shared + 1] = paths["base"][shared + 1] = len(slots)
        paths["window"]["limit"][shared + 1] = paths["window"]["most"][shared + 1] = _FIRST_PASSED


@inner
def is_full(state: State, slot: Slot, now: float) -> bool:
    """Tell whether a slot's contribution must be withheld: the window is full, or others were there first."""
    here = state.paths[slot.tree + slot.passes]
    others = here.in_flight - (slot.phase != Phase.IDLE)
    if here.withheld > 0 or others + 1 > allowed(here.window, slot.block != NO_BLOCK):
        return True
    return not is_time(state, here, slot, now)


@inner
def is_time(state: State, here: PathState, slot: Slot, now: float) -> bool:
    """Tell whether a contribution may leave as far as time goes; if not, `paced_at` says when to look again."""
    if slot.block == NO_BLOCK or pacing.is_time(here.pace, now):
        return True
    recovery = state.core[0].recovery
    recovery.paced_at = min(recovery.paced_at, here.pace.next_at)
    return False


@inner
def append(state: State, index: int) -> None:
    """Withhold a slot's contribution: it joins the heap of those that are withheld already."""
    slot = state.slots[index]
    here = state.paths[slot.tree + slot.passes]
    place = here.withheld
    while place > 0:
        above = (place - 1) // 2
        other = state.withheld[here.base + above]
        if turn_of(state, other) <= turn_of(state, index):
            break
        state.withheld[here.base + place] = other
        place = above
    state.withheld[here.base + place] = index
    here.withheld += 1
    slot.withheld = 1
    state.core[0].progress.counts[Count.WITHHELD] += 1


@inner
def take_first(state: State, tree: int) -> Scalar:
    """Return the slot whose turn it is among those that are withheld; its contribution is sent now."""
    here = state.paths[tree]
    first = state.withheld[here.base]
    here.withheld -= 1
    last = state.withheld[here.base + here.withheld]
    place = np.int64(0)
    while 2 * place + 1 < here.withheld:
        below = 2 * place + 1
        if below + 1 < here.withheld and turn_of(state, state.withheld[here.base + below + 1]) < turn_of(
            state, state.withheld[here.base + below]
        ):
            below += 1
        if turn_of(state, last) <= turn_of(state, state.withheld[here.base + below]):
            break
        state.withheld[here.base + place] = state.withheld[here.base + below]
        place = below
    state.withheld[here.base + place] = last
    state.slots[first].withheld = 0
    return first


@inner
def turn_of(state: State, index: int) -> Scalar:
    """Return a slot's turn among contributions that are withheld, the same on all ranks, whatever was lost where.

    Operations go one after the other, in each of them the first rounds, and then blocks in the order of the array.
    """
    slot = state.slots[index]
    columns = state.operations[slot.operation % OPERATIONS].columns
    place = np.int64(slot.column) if slot.block == NO_BLOCK else np.int64(slot.block) + columns
    return (slot.operation << _BLOCK_BITS) + place


@inner
def may_send(state: State, tree: int, now: float) -> bool:
    """Tell whether the contribution that was withheld first may be sent."""
    here = state.paths[tree]
    if here.withheld == 0:
        return False
    slot = state.slots[state.withheld[here.base]]
    return bool(here.in_flight + 1 <= allowed(here.window, slot.block != NO_BLOCK)) and is_time(state, here, slot, now)


@inner
def note_round(state: State, slot: Slot, sequence: int, is_marked: bool, carries: bool, now: float) -> None:
    """Learn from a result whether congestion was met; `sequence` is that of its contribution.

    Rounds that `carries` no lanes say little: they are short.
    """
    core, here = state.core[0], state.paths[slot.tree + (slot.way if is_marked else slot.passes)]
    members, common = core.member.workers, core.recovery.common
    here.trips.came_at = now
    if slot.repeats == 0 and slot.operation <= common:
        elapsed = now - max(slot.sent_at, core.recovery.common_at)
        round_trips.note_in_order(here.trips, sequence, here.in_flight, elapsed, carries, members)
    used = here.in_flight + here.withheld
    if not (carries or is_marked):
        window.note_empty(here.window, here.trips, used, sequence, core.sending.sequence)
        return
    window.note_result(here.window, is_marked)
    delivery.note_delivered(here.delivery, now)
    if slot.repeats == 0:
        is_settled = slot.operation <= common and slot.sent_at >= core.recovery.common_at
        round_trips.note_round(here.trips, now - slot.sent_at, is_settled)
    if sequence > here.window.ends:
        round_trips.end_round_trip(here.trips, here.in_flight, members, now)
        _note_burst(here, here.window.marked, members)
        pacing.end_round_trip(here.pace)
        lost = delivery.end_round_trip(here.delivery, members, now)
        if lost > 0.0:
            window.fit(here.window, here.delivery.rate * here.trips.least_s, lost)
        if slot.passes == 1 and here.trips.least_s < np.inf:
            window.bound(here.window, here.delivery.rate * here.trips.least_s, _FIRST_PASSED, here.slots)
        window.end_round_trip(here.window, here.trips, here.slots, core.sending.sequence)
    if is_marked:
        core.progress.counts[Count.MARKED] += 1
        window.note_mark(here.window, here.in_flight, sequence, core.sending.sequence)
    else:
        window.grow(here.window, here.trips, used)


@inner
def note_loss(state: State, path: int, sequence: int) -> None:
    """Learn that a contribution that was sent as frame number `sequence`, or its result, was lost."""
    here = state.paths[path]
    here.delivery.lost += 1
    _note_burst(here, here.delivery.lost, state.core[0].member.workers)
    window.note_loss(here.window, here.trips, here.in_flight, sequence, state.core[0].sending.sequence)


@inner
def _note_burst(here: PathState, bad: int, members: int) -> None:
    """Note how many of a window were lost or marked: without a queue that stands, they left in a burst."""
    if not round_trips.is_queued(here.trips, round_trips.LOSSY_S):
        pacing.note_burst(here.pace, bad, here.window.limit, members)


@inner
def longest_trip_s(state: State) -> Scalar:
    """Return how long a round without a repeat may take, over any path in use; infinity: none was timed."""
    core, longest = state.core[0], 0.0
    for path in range(MOST_TREES):
        longest = max(longest, round_trips.longest_s(state.paths[path].trips, core.member.workers, core.member.in_tree))
    return longest if longest > 0.0 else np.inf
