"""The congestion window: how many contributions a worker has in flight over each tree of its job.

A queue on the way that grows marks frames (ECN).  A mark of a contribution comes back to all ranks in the round's
result (`Flag.MARK`), one of the result itself to this rank alone.  So the window follows the fullest queue of the tree:

* It starts with a few (`EngineConfig.first_window`), and doubles in each round trip until the first mark, or until
  frames wait in a queue (slow start; RFC 9406 ends it so).  First rounds have no lanes, so that more of them may go.
* The first mark of a round trip takes a part of what is in flight away: a third to a half (see `note_round`).
* Without marks the window grows by one contribution in each round trip, up to the slots that the job has on the tree.
  Where nothing marks and frames wait in a queue, it grows by an eighth of that, and not at all if they wait long.
  After some round trips without any queue it grows by a quarter: the link may have become faster.
* A loss takes a part away (`loss_cut`) while a queue stands, for then it is our own.  It never takes what fills the
  link.  With a queue that has just begun, or with none, a loss says little: networks lose frames that no queue dropped.
  Where frames wait in a deep queue (`is_deep`), a single loss will do.

A queue of a few frames is too short to be seen in the time of rounds.  So where a window is nearly all lost, round trip
after round trip, it becomes as small as what comes of it (`_note_overflow`), and for a while grows by one in each.

A queue stands if even the shortest round of each of the last round trips was longer than the shortest of all.  A late
rank makes no queue grow: some rounds wait for it, and others do not.

A contribution that finds the window full is withheld, with its slot in phase `BLOCKED`.  It is sent when results have
made room, in an order that is the same on all ranks (`_turn_of`), whatever each of them has lost: ranks whose windows
hold other slots would wait for one another.  Should they do so, each second time-out sends one more (`recovery.probe`).
The way over the fallback has a small window of its own.  If it is full, owners also wait there for their last results.

Others may fill a queue and not obey its marks, as most TCP does.  Then results are marked, however small the window is.
So no mark takes it below a *minimum window*, 1 at first.  While most round trips have all results marked at it (see
`in_vain`):

* After `PATIENCE` round trips the minimum grows to 2, then by one in every `_STEP`.  Above `_FEW` it grows in each, and
  a loss halves it, as TCP's own window.  After `_STEP` round trips without marks it is 1 again.
* A loss sets a smaller minimum to 1, and the next try is after twice as many round trips: many jobs fill the queue
  then.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_protocol.frame import NO_BLOCK
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.memory import Scalar

from .state import MOST_TREES, OPERATIONS, CongestionState, Core, Count, Phase, Slot, State

FIRST_EMPTY: Final = 128
"""Most contributions without lanes in flight over a tree before any result: as many bytes as a few whole frames."""
LEAST: Final = 1.0
"""Least contributions that may always be in flight over a tree."""
_MOST_PASSED: Final = 4
"""Most contributions in flight that the fallback adds; docs/results/shared-slots.md has times with more and fewer."""
PATIENCE: Final = 16
_STEP: Final = 8
"""Round trips after which a loss of the last step is known: with 1, 32 jobs that all try lose a tenth of all frames."""
_FEW: Final = 4.0
_BLOCK_BITS: Final = 33
_GAIN: Final = 1 / 8
"""Part by which what rounds are thought to take follows those that say little (the gain of RFC 6298)."""
_QUEUED: Final = 2.0
"""With a round trip of so many times the shortest one, half of what is in flight lies in queues."""
_STANDING: Final = 1e-3
"""Seconds that frames must have waited for a queue to stand: processors that are shared make rounds longer, too."""
_LONG: Final = 50e-3
"""A queue that is so long lets the window grow no more."""
_LOSSY: Final = 1e-4
"""With a queue that is so long a loss is its own."""
_DEEP: Final = 8.0
_DEEP_S: Final = 10e-3
"""A queue in which frames wait for so many shortest rounds, and that long, is our own: no repeat takes as long."""
_FAR: Final = 4.0
"""On far paths one in which they wait for so many shortest rounds and `_LONG` is."""
_PERSISTENT: Final = 6
"""Round trips in a row with a queue, after which it is one: where most frames are lost, a single one may look so."""
_SLOW: Final = 1 / 8
"""Growth in a round trip in which a queue stands: others may share it and take what we leave."""
_FIRST_TIMED: Final = 4
"""The shortest of so many rounds of a round trip tells whether a queue stands (HyStart, RFC 9406)."""
_MANY_MEMBERS: Final = 64
"""With more members than that most rounds lose a frame somewhere where 1 % is lost, and answers count for longer."""
_ANSWERED: Final = 2.0
"""A round takes at most so many times what an answer takes."""
_FEW_ON_THEIR_WAY: Final = 8
"""With no more than that the last results of a sum come in any order."""
_STALE: Final = 8.0
"""After so many of them the shortest round is no longer known."""
_QUIET: Final = 4
"""After so many round trips without a queue the window grows by `_PROBED` in each: the link may have become faster."""
_PROBED: Final = 1 / 4
_TRIPS: Final = 4
"""Round trips in which repeats and results are counted: what is lost at once, as in an outage, is not lost again."""
_OVERFLOW: Final = 6
"""With so many repeats for a result the window is far larger than link and queue; where 30 % is lost they are fewer."""
_CAREFUL: Final = 256
"""For so many round trips after that the window grows by one in each."""
_MANY_DROPPED: Final = 64
"""Fewer repeats than that in these round trips are no flood."""
_FEWEST: Final = 2.0
"""No loss makes the window smaller than this."""
_LEAST_CUT: Final = 0.35
"""Least part of the window that is taken away: with it, TCP beside us, whose frames are larger, has as much as we."""


def share_out(state: State, trees: npt.NDArray[np.integer[Any]]) -> None:
    """Give each slot its tree.  A tree that gets other slots begins anew, and what was withheld is sent."""
    core, slots, here = state.core[0], state.slots, state.congestion
    counts = np.bincount(trees, minlength=MOST_TREES)
    for tree in np.flatnonzero(counts != here["slots"]):
        here["limit"][tree] = min(counts[tree], FIRST_EMPTY)
        here["is_open"][tree] = 0
    slots["tree"] = trees
    core["progress"]["blocked"] += np.count_nonzero(slots["withheld"])
    slots["withheld"] = here["withheld"] = 0
    here["slots"], here["most"], here["base"] = counts, counts, np.cumsum(counts) - counts
    here["in_flight"] = np.bincount(trees[slots["phase"] != Phase.IDLE], minlength=MOST_TREES)
    if (shared := int(core["member"]["shared_tree"])) >= 0:  # behind it is the window of the way over the fallback
        here["slots"][shared + 1] = here["base"][shared + 1] = len(slots)
        here["limit"][shared + 1] = here["most"][shared + 1] = _MOST_PASSED


@inner
def _allowed(here: CongestionState, slot: Slot) -> Scalar:
    """Return how many contributions may be in flight: few that have lanes, before the first result that has."""
    is_first = here.is_open == 0 and slot.block != NO_BLOCK
    return min(here.limit, float(here.first)) if is_first else here.limit


@inner
def is_full(state: State, slot: Slot) -> bool:
    """Tell whether a slot's contribution must be withheld: the window is full, or others were there first."""
    here = state.congestion[slot.tree + slot.passes]
    others = here.in_flight - (slot.phase != Phase.IDLE)
    return bool(here.withheld > 0 or others + 1 > _allowed(here, slot))


@inner
def append(state: State, index: int) -> None:
    """Withhold a slot's contribution: it joins the heap of those that are withheld already."""
    slot = state.slots[index]
    here = state.congestion[slot.tree + slot.passes]
    place = here.withheld
    while place > 0:
        above = (place - 1) // 2
        other = state.withheld[here.base + above]
        if _turn_of(state, other) <= _turn_of(state, index):
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
    here = state.congestion[tree]
    first = state.withheld[here.base]
    here.withheld -= 1
    last = state.withheld[here.base + here.withheld]
    place = np.int64(0)
    while 2 * place + 1 < here.withheld:
        below = 2 * place + 1
        if below + 1 < here.withheld and _turn_of(state, state.withheld[here.base + below + 1]) < _turn_of(
            state, state.withheld[here.base + below]
        ):
            below += 1
        if _turn_of(state, last) <= _turn_of(state, state.withheld[here.base + below]):
            break
        state.withheld[here.base + place] = state.withheld[here.base + below]
        place = below
    state.withheld[here.base + place] = last
    state.slots[first].withheld = 0
    return first


@inner
def _turn_of(state: State, index: int) -> Scalar:
    """Return a slot's turn among contributions that are withheld, the same on all ranks, whatever was lost where.

    Operations go one after the other, in each of them the first rounds, and then blocks in the order of the array.
    """
    slot = state.slots[index]
    columns = state.operations[slot.operation % OPERATIONS].columns
    place = np.int64(slot.column) if slot.block == NO_BLOCK else np.int64(slot.block) + columns
    return (slot.operation << _BLOCK_BITS) + place


@inner
def may_send(state: State, tree: int) -> bool:
    """Tell whether the contribution that was withheld first may be sent."""
    here = state.congestion[tree]
    if here.withheld == 0:
        return False
    return bool(here.in_flight + 1 <= _allowed(here, state.slots[state.withheld[here.base]]))


@inner
def note_round(state: State, slot: Slot, sequence: int, is_marked: bool, carries: bool, now: float) -> None:
    """Learn from a result whether congestion was met; `sequence` is that of its contribution.

    As DCTCP (RFC 8257): the more results of a round trip are marked, the more is taken away, up to half.  `share` is
    twice that part, averaged; with a `gain` of 0 it stays 1, and half is taken away each time, as in ATP and RFC 3168.
    Rounds that `carries` no lanes say little: they are short.
    """
    core, here = state.core[0], state.congestion[slot.tree + (slot.way if is_marked else slot.passes)]
    if slot.repeats == 0 and slot.operation <= core.recovery.common:
        _note_in_order(core, here, sequence, max(slot.sent_at, core.recovery.common_at), carries, now)
    if not (carries or is_marked):
        if here.is_open == 0:
            here.limit = min(here.limit + _growth(here), float(here.most))
            here.came += 1
            if sequence > here.ends:
                here.came = here.lost = 0
                here.ends = core.sending.sequence
        return
    if here.is_open == 0:
        here.is_open = 1
        here.has_started = here.came = 0
        here.limit = min(here.limit, float(here.first))
    here.came += 1
    here.marked += is_marked
    if slot.repeats == 0:
        elapsed = now - slot.sent_at
        here.least_s = min(here.least_s, elapsed)
        here.shortest_s = min(here.shortest_s, elapsed)
        here.timed += 1
        here.settled += slot.operation <= core.recovery.common and slot.sent_at >= core.recovery.common_at
    if sequence > here.ends:
        _end_round_trip(core, here, now)
    if is_marked:
        here.is_marked = 1
        core.progress.counts[Count.MARKED] += 1
        _cut(core, here, sequence, max(here.share / 2, _LEAST_CUT), here.min_window)
    elif here.limit < here.most:
        if here.timed >= _FIRST_TIMED and _waited(here, here.shortest_s, _STANDING):
            here.has_started = 1  # what the window has grown to fills the link
        here.limit = min(here.limit + _growth(here), float(here.most))


@inner
def _note_in_order(core: Core, here: CongestionState, sequence: int, since: float, carries: bool, now: float) -> None:
    """Notice within a round trip that all rounds have become long, as when a token bucket is empty or a rate falls.

    A round that waited for somebody's repeat comes behind later ones.  So where a few in a row come in order, and more
    are on their way, even the shortest of them was as long as the path is now.  `since` is the operation's first
    result at the earliest, for until then ranks may have waited for a late one.
    """
    if sequence <= here.newest:
        return
    here.newest = sequence
    if here.in_flight <= _FEW_ON_THEIR_WAY:
        return
    here.lately_s = min(here.lately_s, now - since)
    here.in_order += 1
    if here.in_order >= _FIRST_TIMED:
        _forget_answer(core, here)
        here.usual_s = max(here.usual_s, here.lately_s)
        if carries:
            here.in_order_s = here.lately_s
        here.in_order = 0
        here.lately_s = np.inf


@inner
def time_answer(core: Core, here: CongestionState, elapsed: float, now: float) -> None:
    """Note how long the answer to a repeat took, which waits for nobody.

    Where that is longer than rounds are thought to be, they are so long now, unless a shorter one has just come.  Where
    it is shorter, rounds wait for repeats; but not in a tree, where answers come from a switch that is nearer.
    """
    here.answer_s = elapsed
    here.answered_at = now
    if here.recent_s < elapsed:
        here.recent_s = min(here.shortest_s, elapsed)
    if core.member.in_tree == 0:
        here.usual_s = min(here.usual_s, (here.usual_s + elapsed) / 2)
        here.in_order_s = min(here.in_order_s, (here.in_order_s + elapsed) / 2)


@inner
def _growth(here: CongestionState) -> float:
    """Return by how much a result without a mark makes the window larger."""
    if here.has_started == 0:
        return 1.0
    if here.quiet > _QUIET and here.is_marked == here.careful == 0 and here.in_flight + here.withheld >= here.limit:
        return _PROBED
    if here.is_marked or not is_queued(here, _STANDING):
        return 1.0 / here.limit
    return 0.0 if is_queued(here, _LONG) else _SLOW / here.limit


@inner
def _cut(core: Core, here: CongestionState, sequence: int, part: float, least: float) -> None:
    """Take a part of what is in flight away, unless frame number `sequence` was sent before the last cut."""
    if sequence > here.cut_at:
        here.cut_at = core.sending.sequence
        here.quiet = 0
        used = min(here.limit, float(here.in_flight))
        here.limit = max(used * (1.0 - part), least)
        here.has_started = 1


@inner
def _fills(here: CongestionState) -> float:
    """Return how much of what is in flight fills the link: all if no queue stands (Little's law); 0: not known."""
    round_s = max(here.recent_s, here.in_order_s) if is_deep(here) else here.recent_s
    return here.in_flight * here.least_s / round_s if round_s < np.inf else 0.0


@inner
def _end_round_trip(core: Core, here: CongestionState, now: float) -> None:
    """Begin a round trip; what it needs to know of the last one is how many results were marked."""
    _note_overflow(here)
    if here.cut_at >= 0:
        here.share += here.gain * (here.marked / here.came - here.share)
    here.in_vain -= here.marked == 0
    here.in_vain += here.marked == here.came and here.limit <= here.min_window
    if here.in_vain <= -_STEP:
        here.in_vain = 0
        here.min_window = LEAST
    elif here.min_window > _FEW or here.in_vain >= (here.patience if here.min_window <= LEAST else _STEP):
        here.in_vain = min(here.in_vain, 0)
        here.min_window = min(here.min_window + 1.0, float(here.slots))
        here.limit = max(here.limit, here.min_window)
    # Of few rounds, all may have waited for somebody's repeat.  So may all that were sent before the first result of
    # their operation: a rank that waited for its repeat begins late.  If its time-out became the others' shortest round
    # at once, time-outs would follow one another.  Yet such rounds are right where the path has become slow.
    if here.timed >= _FIRST_TIMED or (here.timed > 0 and now > here.timed_from + _STALE * here.recent_s):
        is_known = here.settled >= _FIRST_TIMED
        here.recent_s = here.shortest_s if is_known else min(here.shortest_s, (1.0 + _GAIN) * here.recent_s)
        here.usual_s = max(here.recent_s, here.usual_s + _GAIN * (here.recent_s - here.usual_s))
        if here.in_flight <= _FEW_ON_THEIR_WAY:  # then results in order no longer tell whether a queue is deep
            here.in_order_s = min(here.in_order_s, here.recent_s)
        if is_known and here.answered_at < here.timed_from:
            _forget_answer(core, here)
        here.timed_from = now
        here.shortest_s = np.inf
        here.timed = here.settled = 0
    if here.marked > 0 or is_queued(here, _LOSSY):
        here.quiet = min(here.quiet, 0) - 1
    else:
        here.quiet = max(here.quiet, 0) + 1
    here.came = here.marked = here.dropped = 0
    here.ends = core.sending.sequence


@inner
def _note_overflow(here: CongestionState) -> None:
    """Make the window as small as what comes of it, if nearly all of it was lost in the last few round trips."""
    here.came_lately += here.came
    here.dropped_lately += here.dropped
    here.trips += 1
    here.careful -= here.careful > 0
    if here.trips < _TRIPS:
        return
    if here.loss_cut > 0 and here.dropped_lately > max(_MANY_DROPPED, _OVERFLOW * here.came_lately):
        here.careful = _CAREFUL
        here.limit = max(min(here.limit, here.came_lately / _TRIPS), _FEWEST)
        here.has_started = 1
        here.quiet = 0
    here.trips = here.came_lately = here.dropped_lately = 0


@inner
def shortest_s(here: CongestionState) -> Scalar:
    """Return the shortest round with lanes of the last round trip and the present one; infinity: none was timed."""
    return min(here.recent_s, here.shortest_s)


@inner
def longest_trip_s(state: State) -> Scalar:
    """Return how long a round without a repeat may take, over any tree in use; infinity: none was timed.

    Of round trips lately the longest counts: a token bucket makes some of them a thousand times as short as others.
    """
    longest: Scalar = 0.0
    for tree in range(MOST_TREES):
        here = state.congestion[tree]
        answered: Scalar = answered_s(state.core[0], here)
        if min(here.least_s, answered) < np.inf:
            longest = max(longest, min(max(here.usual_s, shortest_s(here)), answered))
    return longest if longest > 0.0 else np.inf


@inner
def answered_s(core: Core, here: CongestionState) -> Scalar:
    """Return how long a round takes that waits for nobody, as far as answers tell; infinity: they do not count.

    In a tree with few members they do not: they come from a switch that is nearer.
    """
    return _ANSWERED * here.answer_s if has_many(core) or core.member.in_tree == 0 else np.inf


@inner
def _forget_answer(core: Core, here: CongestionState) -> None:
    """Forget what an answer took: newer rounds tell how long one takes, and the answer may be older than a queue."""
    if not has_many(core):
        here.answer_s = np.inf


@inner
def has_many(core: Core) -> bool:
    """Tell whether so many members add that nearly each round loses a frame somewhere.

    Then even the shortest rounds have waited for repeats, and these for such rounds: only answers know the path.
    """
    return bool(core.member.workers > _MANY_MEMBERS)


@inner
def is_busy(here: CongestionState) -> bool:
    """Tell whether queues on the way never emptied in the last round trip, so that repeats make them longer.

    Other round trips may be long because somebody's frame was lost; the shortest one was not.
    """
    return bool(_QUEUED * here.least_s < here.recent_s < np.inf)


@inner
def is_queued(here: CongestionState, most_s: float) -> bool:
    """Tell whether frames waited for half a shortest round, and for `most_s`, in all of the last round trip."""
    return _waited(here, here.recent_s, most_s)


@inner
def _waited(here: CongestionState, elapsed: float, most_s: float) -> bool:
    """Tell whether a round's time means that frames waited for half a shortest round, and for `most_s`."""
    return bool(1.5 * here.least_s + most_s < elapsed < np.inf)


@inner
def note_loss(state: State, tree: int, sequence: int) -> None:
    """Learn that a contribution that was sent as frame number `sequence`, or its result, was lost.

    What a queue of our own has dropped makes the window smaller, but no smaller than what fills the link: by Little's
    law that is what is in flight, times the shortest round, by the present one.
    """
    core, here = state.core[0], state.congestion[tree]
    if here.min_window > LEAST and sequence > here.lost_at:
        here.lost_at = core.sending.sequence
        here.in_vain = 0
        is_small = here.min_window <= _FEW
        here.patience = min(2 * here.patience, 4 * PATIENCE) if is_small else PATIENCE
        here.min_window = LEAST if is_small else here.min_window / 2
        here.limit = min(here.limit, here.min_window)
    here.lost += 1
    here.dropped += 1
    if here.is_open == 0 and here.lost > 2 * _FEW + here.came / 4:
        here.has_started = 1
        _cut(core, here, sequence, 0.5, float(here.first))
    if here.loss_cut > 0 and (is_deep(here) or (here.quiet <= -_PERSISTENT and is_queued(here, _LOSSY))):
        _cut(core, here, sequence, here.loss_cut, max(1.0 + _fills(here), _FEWEST))


@inner
def is_deep(here: CongestionState) -> bool:
    """Tell whether the last results that came in order waited in a queue that holds far more than fills the link."""
    return bool(here.in_order_s > min(_DEEP * here.least_s + _DEEP_S, _FAR * here.least_s + _LONG))
