"""The congestion window: how many contributions may be in flight on a path.

A queue on the way that grows marks frames (ECN).  A mark of a contribution comes back to all ranks in the round's
result (`Flag.MARK`), one of the result itself to this rank alone.  So the window follows the fullest queue of the tree:

* It starts with a few (`EngineConfig.first_window`), and doubles in each round trip until the first mark, or until
  frames wait in a queue (slow start; RFC 9406 ends it so).  First rounds have no lanes, so that more of them may go.
* The first mark of a round trip takes a part of what is in flight away: a third to a half (DCTCP, RFC 8257).
* Without marks the window grows by one contribution in each round trip, up to the slots that the job has on the tree.
  Where nothing marks and frames wait in a queue, it grows by an eighth of that, and not at all if they wait long.
  After some round trips without any queue or mark it grows by a quarter: the link may have become faster, or a burst
  was marked on a link that has room.
* A loss takes a part away (`loss_cut`) while a queue stands, for then it is our own.  It never takes what fills the
  link.  With a queue that has just begun, or with none, a loss says little: networks lose frames that no queue dropped.
  Where frames wait in a deep queue (`round_trips.is_deep`), a single loss will do.

A queue of a few frames is too short to be seen in the time of rounds.  So where a path overflows (`delivery.py`) the
window becomes what fills it, and what waits for repeats (`fit`).  Where a window is nearly all lost, round trip after
round trip, it becomes as small as what comes of it (`_note_overflow`).

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

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.records import Float64, Int64, Record

from .round_trips import FEW_TIMED, LONG_S, LOSSY_S, STANDING_S, RoundTrips, filling, is_deep, is_queued, waited

LEAST: Final = 1.0
"""Least contributions that may always be in flight over a tree."""
PATIENCE: Final = 16
_STEP: Final = 8
"""Round trips after which a loss of the last step is known: with 1, 32 jobs that all try lose a tenth of all frames."""
_FEW: Final = 4.0
_PERSISTENT: Final = 6
"""Round trips in a row with a queue, after which it is one: where most frames are lost, a single one may look so."""
_SLOW: Final = 1 / 8
"""Growth in a round trip in which a queue stands: others may share it and take what we leave."""
_QUIET: Final = 4
"""After so many round trips without a queue the window grows by `_PROBED` in each: the link may have become faster."""
_PROBED: Final = 1 / 4
_TRIPS: Final = 4
"""Round trips in which repeats and results are counted: what is lost at once, as in an outage, is not lost again."""
_OVERFLOW: Final = 6
"""With so many repeats for a result the window is far larger than link and queue; where 30 % is lost they are fewer."""
_PART_OF_FALLBACK: Final = 1 / 2
"""Part of what fills the path over the fallback that one job may have in flight there."""
_LEAST_CUT: Final = 0.35
"""Least part that a mark takes away: with it, TCP beside us, whose frames are larger, has as much as we."""


class Window(Record):
    """The window of a path, in contributions; numbers of the past are of the present round trip, if nothing is said."""

    limit: Float64
    """So many contributions may be in flight; the fraction is what it has grown towards one more."""
    most: Int64
    """The largest window."""
    first: Int64
    """The window before any result with lanes."""
    has_started: Int64
    """1: slow start is over."""
    is_open: Int64
    """1: a result with lanes has come."""
    is_marked: Int64
    """1: a result has ever been marked, so that the network says itself when queues grow."""
    came: Int64
    """Results."""
    marked: Int64
    """Results that were marked."""
    empty_lost: Int64
    """Contributions without lanes that were lost before any result that has lanes."""
    dropped: Int64
    """Repeats of contributions that were taken for lost."""
    ends: Int64
    """With the result of a contribution after this sequence the next round trip begins."""
    cut_at: Int64
    """The last sequence when the window was made smaller: marks of what was sent before say nothing new."""
    share: Float64
    """Twice the part that a mark takes away, averaged: a half where all results are marked."""
    gain: Float64
    """Weight in this average of the newest round trip."""
    quiet: Int64
    """Round trips in a row that found no queue; below 0: that found one."""
    loss_cut: Float64
    """The part that a loss takes away where a queue stands."""
    trips: Int64
    """Round trips in which `dropped_lately` and `came_lately` were counted."""
    dropped_lately: Int64
    """Repeats in these round trips of contributions that were taken for lost."""
    came_lately: Int64
    """Results in these round trips."""
    min_window: Float64
    """No mark makes the window smaller than this."""
    in_vain: Int64
    """Round trips with all results marked although the window was at its minimum, less those with none marked."""
    patience: Int64
    """After so many such round trips the minimum grows beyond 1."""
    lost_at: Int64
    """The last sequence when the minimum was made smaller for a loss."""


def initial(gain: float, loss_cut: float) -> dict[str, Any]:
    """Return what is not 0 in a path's window before anything is sent, by the names of its fields."""
    return {
        **{"gain": gain, "share": 1.0, "ends": -1, "cut_at": -1, "min_window": LEAST},
        **{"patience": PATIENCE, "lost_at": -1, "loss_cut": loss_cut},
    }


@inner
def allowed(window: Window, has_lanes: bool) -> float:
    """Return how many contributions may be in flight: few that have lanes, before the first result that has."""
    return min(window.limit, float(window.first)) if window.is_open == 0 and has_lanes else window.limit


@inner
def note_empty(window: Window, trips: RoundTrips, used: int, sequence: int, last_sent: int) -> None:
    """Note a result without lanes: before any that has lanes such results make the window larger."""
    if window.is_open == 0:
        window.limit = min(window.limit + _growth(window, trips, used), float(window.most))
        window.came += 1
        if sequence > window.ends:
            window.came = window.empty_lost = 0
            window.ends = last_sent


@inner
def note_result(window: Window, is_marked: bool) -> None:
    """Note a result that has lanes, or a mark."""
    if window.is_open == 0:
        window.is_open = 1
        window.has_started = window.came = 0
        window.limit = min(window.limit, float(window.first))
    window.came += 1
    window.marked += is_marked


@inner
def note_mark(window: Window, in_flight: int, sequence: int, last_sent: int) -> None:
    """Make the window smaller for a mark.

    As DCTCP (RFC 8257): the more results of a round trip are marked, the more is taken away, up to half.  With a `gain`
    of 0 half is taken away each time, as in ATP and RFC 3168.
    """
    window.is_marked = 1
    _cut(window, in_flight, sequence, last_sent, max(window.share / 2, _LEAST_CUT), window.min_window)


@inner
def grow(window: Window, trips: RoundTrips, used: int) -> None:
    """Make the window larger for a result without a mark; `used` is what is in flight or withheld."""
    if window.limit < window.most:
        if trips.timed >= FEW_TIMED and waited(trips, trips.shortest_s, STANDING_S):
            window.has_started = 1  # what the window has grown to fills the link
        window.limit = min(window.limit + _growth(window, trips, used), float(window.most))


@inner
def _growth(window: Window, trips: RoundTrips, used: int) -> float:
    """Return by how much a result without a mark makes the window larger."""
    if window.has_started == 0:
        return 1.0
    if window.quiet > _QUIET and used >= window.limit:
        return _PROBED
    if window.is_marked or not is_queued(trips, STANDING_S):
        return 1.0 / window.limit
    return 0.0 if is_queued(trips, LONG_S) else _SLOW / window.limit


@inner
def _cut(window: Window, in_flight: int, sequence: int, last_sent: int, part: float, least: float) -> None:
    """Take a part of what is in flight away, unless frame number `sequence` was sent before the last cut."""
    if sequence > window.cut_at:
        window.cut_at = last_sent
        window.quiet = 0
        used = min(window.limit, float(in_flight))
        window.limit = max(used * (1.0 - part), least)
        window.has_started = 1


@inner
def end_round_trip(window: Window, trips: RoundTrips, slots: int, last_sent: int) -> None:
    """Begin a round trip: the window needs to know of the last one how many results were marked, and of a queue."""
    _note_overflow(window)
    if window.cut_at >= 0:
        window.share += window.gain * (window.marked / window.came - window.share)
    _raise_minimum(window, slots)
    if window.marked > 0 or is_queued(trips, LOSSY_S):
        window.quiet = min(window.quiet, 0) - 1
    else:
        window.quiet = max(window.quiet, 0) + 1
    window.came = window.marked = window.dropped = 0
    window.ends = last_sent


@inner
def bound(window: Window, filling: float, least: int, slots: int) -> None:
    """Let as many be in flight over the fallback as fill half of its link, for other jobs meet there; `least` anyway.

    A job on a far path would otherwise take slots that others give back a few at a time, each in a round trip.
    """
    window.most = min(max(int(_PART_OF_FALLBACK * filling), least), slots)
    window.limit = min(window.limit, float(window.most))


@inner
def fit(window: Window, filling: float, lost: float) -> None:
    """Fit a window to a path that overflows: what fills it, and what waits for repeats, `lost` for each result.

    After slow start it takes no more away than a loss does, for chance may look so in a single round trip.
    """
    fitting = 1.0 + filling * (1.0 + lost)
    if window.loss_cut > 0 and fitting < window.limit:
        least = (1.0 - window.loss_cut) * window.limit if window.has_started == 1 else 0.0
        window.limit = max(fitting, least, window.min_window)
        window.has_started = 1
        window.quiet = 0


@inner
def _raise_minimum(window: Window, slots: int) -> None:
    """Make the minimum window larger while others fill the queue and do not obey its marks."""
    window.in_vain -= window.marked == 0
    window.in_vain += window.marked == window.came and window.limit <= window.min_window
    if window.in_vain <= -_STEP:
        window.in_vain = 0
        window.min_window = LEAST
    elif window.min_window > _FEW or window.in_vain >= (window.patience if window.min_window <= LEAST else _STEP):
        window.in_vain = min(window.in_vain, 0)
        window.min_window = min(window.min_window + 1.0, float(slots))
        window.limit = max(window.limit, window.min_window)


@inner
def _note_overflow(window: Window) -> None:
    """Make the window as small as what comes of it, if nearly all of it was lost in the last few round trips."""
    window.came_lately += window.came
    window.dropped_lately += window.dropped
    window.trips += 1
    if window.trips < _TRIPS:
        return
    if window.loss_cut > 0 and window.dropped_lately > _OVERFLOW * window.came_lately:
        window.limit = max(min(window.limit, window.came_lately / _TRIPS), LEAST)
        window.has_started = 1
        window.quiet = 0
    window.trips = window.came_lately = window.dropped_lately = 0


@inner
def note_loss(window: Window, trips: RoundTrips, in_flight: int, sequence: int, last_sent: int) -> None:
    """Learn that a contribution that was sent as frame number `sequence`, or its result, was lost.

    What a queue of our own has dropped makes the window smaller, but no smaller than what fills the link: by Little's
    law that is what is in flight, times the shortest round, by the present one.
    """
    if window.min_window > LEAST and sequence > window.lost_at:
        window.lost_at = last_sent
        window.in_vain = 0
        is_small = window.min_window <= _FEW
        window.patience = min(2 * window.patience, 4 * PATIENCE) if is_small else PATIENCE
        window.min_window = LEAST if is_small else window.min_window / 2
        window.limit = min(window.limit, window.min_window)
    window.empty_lost += window.is_open == 0
    window.dropped += 1
    if window.is_open == 0 and window.empty_lost > 2 * _FEW + window.came / 4:
        window.has_started = 1
        _cut(window, in_flight, sequence, last_sent, 0.5, float(window.first))
    if window.loss_cut > 0 and (is_deep(trips) or (window.quiet <= -_PERSISTENT and is_queued(trips, LOSSY_S))):
        _cut(window, in_flight, sequence, last_sent, window.loss_cut, 1.0 + filling(trips, in_flight))
