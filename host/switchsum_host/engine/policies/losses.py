"""Losses: which frames later results show to be lost, and how long to doubt it.

A result *passes* a frame if its own contribution was sent later, on the same path.  Frames hardly overtake one another,
so that a frame that several results have passed is lost (RFC 9002, 6.1.1), and a timer is not needed.

Where a worker is out of step with the others, in a round that it repeated and in the next one, its result proves less:
it comes when the others' results come, however late it was sent.  Such a result counts only when nothing better has
come for a round's time, and lets two frames be taken for lost (*credit*), not all that it has passed.  It lets none if
it comes in the order of first transmissions: then the path may be slow, and nothing lost.

At a single switch a frame that has been passed and has waited for three rounds is lost, whatever passed it: where many
frames are lost, hardly any round goes without a repeat.

Once a repeat has proved needless, frames may come later than others by a reordering window (RFC 8985).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.memory import Scalar
from switchsum_switch.kernels.records import Float64, Int64, Record

from .round_trips import RoundTrips, has_many, shortest_s

_CREDIT: Final = 2
"""Frames that are taken for lost when the result of a repeat has passed them, and nothing better has come lately."""
_FEW_DOUBTS: Final = 4
"""So many may go without a better reason and without a pause."""
_MOST_DOUBLINGS: Final = 20
"""Most doublings of such a pause that count: more make no difference."""
_FEW_WAITING: Final = 8
"""Waiting slots with which an operation comes to its end.  Then a frame too many is cheaper than a time-out."""
_AGED: Final = 3.0
"""Rounds after which a frame that has been passed is lost, whatever passed it.  Not in a tree, for there its repeat is
passed on, by links that may be full."""
_LATER_ROUNDS: Final = 2.0
"""Rounds in which a later member repeats nothing that it sent: an answer takes one, the first member's repeat one."""
_MOST_HELD_DOUBLINGS: Final = 6
"""Most doublings of the pause of a slot whose contribution the switch holds."""
_SOONEST: Final = 0.5
"""Part of the shortest round in which no answer to a repeat can come."""
_ON_TIME: Final = 1.5
"""Most shortest rounds after a repeat at which its result comes on time."""
_REORDERED: Final = 1 / 4
"""Reordering window once a repeat was needless, in shortest rounds (RFC 8985, section 6.2, step 4)."""


class Order(Record):
    """In what order the results of a path come; numbers are sequences of frames."""

    passed: Int64
    """The highest one whose result has come."""
    overtaken: Int64
    """Like `passed`, of slots that are in step with the other workers' slots."""
    first_passed: Int64
    """Like `passed`, of first transmissions: what was sent after that has brought no result yet."""
    delivered_s: Float64
    """How long the newest round took that `overtaken` counts (RACK.rtt of RFC 8985)."""
    reorder_s: Float64
    """Reordering window (RFC 8985): so much longer than that round may one take whose result was overtaken."""


class Doubt(Record):
    """How much results of repeats may say."""

    credit: Int64
    """Frames that may be taken for lost because results of repeats have passed them."""
    doubts: Int64
    """How many were since the last result of a contribution that was sent once."""
    evident_at: Float64
    """When `Order.overtaken` was last heard of."""


@inner
def forget_order(order: Order) -> None:
    """Forget what results have passed: they were of an operation that a late rank had not begun."""
    order.passed = order.overtaken = 0


@inner
def note_first(order: Order, first: int) -> bool:
    """Note whose result has come, by its first transmission; tell whether it comes in the order of these."""
    is_in_order = first > order.first_passed
    order.first_passed = max(order.first_passed, first)
    return bool(is_in_order)


@inner
def note_in_step(order: Order, doubt: Doubt, sequence: int, elapsed: float, now: float) -> None:
    """Note the result of a contribution that was sent once, by a slot that is in step with the other workers'."""
    doubt.evident_at = now
    if sequence > order.overtaken:
        order.overtaken = sequence
        order.delivered_s = elapsed


@inner
def give_credit(doubt: Doubt, waiting: int, round_s: float, now: float) -> None:
    """Take frames for lost that the result of a repeat has passed, where nothing better has come lately."""
    if waiting <= _FEW_WAITING or now > doubt.evident_at + round_s:
        doubt.credit += _CREDIT


@inner
def takes_credit(doubt: Doubt, waited_s: float, round_s: float, members: int, in_tree: int) -> bool:
    """Tell whether a frame is taken for lost though only results of repeats have passed it.

    A few go on such evidence alone.  Then each waits twice as long as the one before: if all of them are needless,
    their results would otherwise make the next ones needless, too.  With many members there is hardly any other.
    """
    doubts = min(max(doubt.doubts - _FEW_DOUBTS, 0), _MOST_DOUBLINGS)
    if has_many(members):
        doubts = 0
    if in_tree == 0 and waited_s >= _AGED * round_s:
        return True
    if doubt.credit == 0 or waited_s < round_s * ((1 << doubts) - 1):
        return False
    doubt.credit -= 1
    doubt.doubts += 1
    return True


@inner
def overtaken_at(order: Order, sent_at: float) -> Scalar:
    """Return when a frame is lost that was overtaken: at once, or when the reordering window has passed (RFC 8985)."""
    return sent_at + order.delivered_s + order.reorder_s if order.reorder_s > 0.0 else -np.inf


@inner
def note_needless(order: Order, trips: RoundTrips) -> None:
    """Note that a repeat was needless: from now on wait longer for results that are late."""
    order.reorder_s = _REORDERED * shortest_s(trips)


@inner
def is_spurious(trips: RoundTrips, elapsed: float, is_empty: bool) -> bool:
    """Tell whether a result came too soon to be the answer to the last repeat (RFC 8985, section 6.2, step 2).

    Where the path may be empty, as after a time-out, an answer comes as soon as one ever has.
    """
    soonest = _SOONEST * shortest_s(trips)
    if is_empty:
        soonest = min(soonest, trips.least_s)
    return bool(elapsed < soonest < np.inf)


@inner
def is_on_time(trips: RoundTrips, elapsed: float) -> bool:
    """Tell whether a result comes no later than the answer to the last repeat should, with the queues of today."""
    return bool(elapsed < _ON_TIME * shortest_s(trips) < np.inf)


@inner
def is_due(trips: RoundTrips, elapsed: float) -> bool:
    """Tell whether a result comes just when the answer to the last repeat is due on the path without a queue."""
    return bool(_SOONEST * trips.least_s <= elapsed < _ON_TIME * trips.least_s)


@inner
def patience_s(round_s: float, repeats: int, is_held: bool, asks_later: bool) -> float:
    """Return how long after a slot's last transmission no result of later frames makes it repeat.

    A slot whose contribution the switch holds waits for somebody else's repeat.  One worker that is kept from running
    makes all slots of the others wait: each asks less and less often.  In a tree with queues a switch's first member
    repeats at once, and the others, who `asks_later`, two rounds later.
    """
    wait_s = _LATER_ROUNDS * round_s if asks_later and repeats == 0 else 0.0
    if is_held:
        wait_s += round_s * (1 << min(repeats, _MOST_HELD_DOUBLINGS))
    return wait_s
