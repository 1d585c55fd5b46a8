"""The timer: after what silence a worker repeats something, and how the pause grows while nothing comes (RFC 6298).

A time-out is what rounds took on average, and four times their variation.  But a round lasts as long as the slowest
worker's recovery: if time-outs followed rounds alone, they would follow one another, and grow without end where most
rounds lose a frame somewhere.  So they are also bounded by the shortest rounds of round trips lately
(`round_trips.longest_s`): these lost nothing, and waited in the queues that there are now.

A doubled time-out stays until the result of a contribution that was sent once (RFC 6298, 5.7).  If there never was one,
as where each round loses something, it stays until repeats are soon answered (`note_promptness`).
"""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.memory import Scalar
from switchsum_switch.kernels.records import Float64, Int64, Record

from ..call_times import Floats

WAYS: Final = 2
"""Ways of a round: over its slot alone, or over the job's fallback, which is further away (see `Slot.way`)."""
_PROBES_AT_ONCE: Final = 2
_ALL_PROBED_S: Final = 2.0
"""Within that time, or in two pauses if these are longer, probes repeat all that waits."""
_MOST_TRIPS: Final = 3.0
"""Most that a time-out is, in shortest rounds of the last round trip."""
_LATENESSES: Final = 1.0
"""How often the loop's own lateness is added to this bound: workers that share cores are late one after another."""
_SOON: Final = 8.0
"""An answer that comes within such a part of the pause after a repeat is taken for that repeat's ..."""
_FEW_PROMPT: Final = 3
"""... if so many in a row did: by chance one in 512 times."""
_UNTIMED_S: Final = 2.0
"""Longest pause while no round was timed."""
_MOST_DOUBLINGS: Final = 6
_MOST_TIMES: Final = 1 << _MOST_DOUBLINGS
_MOST_TIMES_HELD: Final = 8
"""A pause grows to so many time-outs, or so many times the minimum time-out if that is more.

A switch that is away, or a late worker, does not come earlier because rounds are short.
"""
_WAITED: Final = 1 / 16
"""A pause also grows to that part of what a slot has waited for a late worker, for it is small beside that."""
_ENDLESS: Final = 20
"""Most doublings of a pause that count: more make no difference."""
_FORGOTTEN_S: Final = 1.0
"""Seconds after which the loop's lateness is forgotten, about."""


class Timer(Record):
    """What the timer knows, in seconds."""

    timeout_s: Float64
    initial_s: Float64
    """The time-out before any round with lanes was timed."""
    timeout_max_s: Float64
    timeout_min_s: Float64
    """Upper bound of the least time-out."""
    pause_max_s: Float64
    """Longest pause that doubling makes: a part of the shortest time-out of a call, or of the switch."""
    smoothed_s: Annotated[Floats, "f8", WAYS]
    """What rounds took on average, by way; 0: none was timed."""
    variation_s: Annotated[Floats, "f8", WAYS]
    """Variation of these times: a round also lasts as long as others take to repeat what was lost."""
    backoffs: Int64
    """How often the time-out was doubled."""
    silent: Int64
    """Time-outs in a row without any answer."""
    prompt: Int64
    """Answers in a row that came soon after repeats, in a tree, while no round was timed."""
    granularity_s: Float64
    """How late the driver has looked at its clock recently."""
    looked_at: Float64
    """When the driver last looked at its clock."""


@inner
def is_untimed(timer: Timer) -> bool:
    """Tell whether no round was ever timed: none had a result without a repeat."""
    return bool(timer.smoothed_s[0] + timer.smoothed_s[1] == 0.0)


@inner
def smooth(timer: Timer, way: int, elapsed: float) -> None:
    """Learn how long a round took (RFC 6298, section 2)."""
    if timer.smoothed_s[way] == 0.0:
        timer.smoothed_s[way], timer.variation_s[way] = elapsed, elapsed / 2
    else:
        timer.variation_s[way] += (abs(timer.smoothed_s[way] - elapsed) - timer.variation_s[way]) / 4
        timer.smoothed_s[way] += (elapsed - timer.smoothed_s[way]) / 8


@inner
def set_timeout(timer: Timer, trip_s: float) -> None:
    """Set the time-out to that of the longer way: while only claims are waited for, none comes by the shorter one.

    It is bounded by `trip_s`, how long a round may take over any path: infinity if no round was timed.
    """
    longest_s = 0.0
    for way in range(WAYS):
        if timer.smoothed_s[way] > 0.0:
            longest_s = max(longest_s, timer.smoothed_s[way] + 4 * timer.variation_s[way])
    most_s = _MOST_TRIPS * trip_s + _LATENESSES * timer.granularity_s
    if longest_s > 0.0:
        least_s = min(2 * trip_s + timer.granularity_s, timer.timeout_min_s)
        timer.timeout_s = min(max(min(longest_s, most_s), least_s), timer.timeout_max_s)
    else:
        timer.timeout_s = min(timer.timeout_s, most_s)


@inner
def guess(timer: Timer, elapsed: float) -> None:
    """Make the time-out shorter by what an answer took, as long as no round was timed."""
    if is_untimed(timer):
        guess_s = max(_MOST_TRIPS * elapsed + timer.granularity_s, timer.timeout_min_s)
        timer.timeout_s = min(timer.timeout_s, guess_s)


@inner
def note_size(timer: Timer, times: float) -> None:
    """Stretch what short frames took, for those with lanes, which are so many times as long."""
    if is_untimed(timer):
        timer.timeout_s = min(timer.timeout_s * times, timer.initial_s)


@inner
def note_lateness(timer: Timer, due_at: float, now: float) -> None:
    """Learn how late the driver looks at its clock: it wanted to at `due_at`, and does so only now.

    That is the granularity of its timer.  It counts while it is recent: whoever loses the core for a moment does so
    again, and so do the switch and the other workers, who share cores with it or have such cores.
    """
    remembered = max(1.0 - (now - timer.looked_at) / _FORGOTTEN_S, 0.0)
    timer.looked_at = now
    timer.granularity_s = max(timer.granularity_s * remembered, now - due_at)


@inner
def doubled_s(timer: Timer, times: int) -> float:
    """Return the time-out, doubled so many times."""
    return timer.timeout_s * np.float64(1 << min(times, _ENDLESS))


@inner
def backed_off_s(timer: Timer) -> Scalar:
    """Return the time-out, doubled for each one that nothing has come in (RFC 6298, 5.5)."""
    most_s = min(_UNTIMED_S, timer.timeout_max_s) if is_untimed(timer) else timer.timeout_max_s
    longest = min(_MOST_TIMES * max(timer.timeout_s, timer.timeout_min_s), most_s)
    return min(doubled_s(timer, timer.backoffs), longest)


@inner
def longest_pause_s(timer: Timer) -> Scalar:
    """Return how long a pause may last at most: `pause_max_s`, which is a part of what a call may take.

    A time-out that has become longer without being doubled may last twice as long, for the path may be that slow.
    """
    return min(max(timer.timeout_s, timer.pause_max_s), 2 * timer.pause_max_s)


@inner
def pause_s(timer: Timer) -> Scalar:
    """Return after what silence the next probe is due: a call with a time-out has several tries before it is over."""
    return min(backed_off_s(timer), longest_pause_s(timer))


@inner
def silence_s(timer: Timer, times: int) -> Scalar:
    """Return after what silence one path's first frames are repeated, `times` they were; results come over others."""
    return min(doubled_s(timer, times + 1), longest_pause_s(timer))


@inner
def answered_s(timer: Timer, elapsed: float) -> Scalar:
    """Return how long an answer to a repeat takes if one came after `elapsed`: a sooner one may be the original's."""
    return max(elapsed, timer.timeout_s / _SOON)


@inner
def note_promptness(timer: Timer, elapsed: float) -> bool:
    """Tell whether answers come soon after repeats, in a tree where each round has lost something so far.

    Answers to earlier transmissions would come at any time within the pause.  A few in a row that come at its beginning
    are answers to the repeats: the pause need not be longer than some of these times.
    """
    is_soon = _SOON * elapsed <= doubled_s(timer, timer.backoffs)
    timer.prompt = timer.prompt + 1 if is_soon else 0
    return bool(timer.prompt >= _FEW_PROMPT)


@inner
def shorten_untimed(timer: Timer, elapsed: float) -> None:
    """Take doublings back whose pause is longer than some times what prompt answers take."""
    guess(timer, elapsed)
    while timer.backoffs > 0 and doubled_s(timer, timer.backoffs - 1) > _SOON * elapsed:
        timer.backoffs -= 1


@inner
def shorten_held(timer: Timer, waited_s: float) -> None:
    """Take doublings back while a switch says that it waits for others, who have been late for `waited_s`."""
    longest = max(_MOST_TIMES_HELD * max(timer.timeout_s, timer.timeout_min_s), _WAITED * waited_s)
    while timer.backoffs > 0 and doubled_s(timer, timer.backoffs) > longest:
        timer.backoffs -= 1


@inner
def probes(timer: Timer, waiting: int) -> Scalar:
    """Return how many frames a probe repeats: more where many wait, so that each has its turn in time."""
    count: Scalar = np.int64(1 if is_untimed(timer) and timer.backoffs == 0 else _PROBES_AT_ONCE)
    paused_s, doubled = pause_s(timer), backed_off_s(timer)
    all_probed_s = max(_ALL_PROBED_S, min(doubled, 2 * paused_s))
    return max(count, np.int64(waiting * paused_s / all_probed_s))
