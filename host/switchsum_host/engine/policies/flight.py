"""Flights: whether all that was in flight on a path is lost, when a time-out has ended.

A time-out has two contributions repeated.  Where only some of a flight is lost, results of the others pass them
(`losses.py`).  Where all of it is, as in a queue of a few frames or while a link is down, nothing passes, and each
time-out would bring two of them back.  But a time-out may also mean that the path has become slow.  So, as in F-RTO
(RFC 5682), the flight is only *suspect* at first:

* The answer to a repeat comes.  If the flight is on its way, results of others follow it at once.
* If none follows for as long as that answer took, the *newest* contribution is repeated, too: a tail loss probe
  (RFC 8985, section 7).  It was sent last, so that its result comes behind those of all others, if they come at all.
* If its answer comes, and still nothing else, the flight is lost.  Each answer from then on has two more repeated, as
  slow start does.

The result of anything that was sent before the time-out, and not since, ends the suspicion.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.records import Float64, Int64, Record

REPEATED: Final = 2
"""Contributions that an answer has repeated."""
_FEW: Final = 8
"""Of no more than that in flight time-outs repeat enough: to find out what is lost would take as long."""


class Step(IntEnum):
    """What a result has repeated."""

    NOTHING = 0
    NEWEST = 1
    """The newest contribution of the flight."""
    MORE = 2
    """`REPEATED` contributions of the flight."""


class Flight(Record):
    """What is known of a path's flight; 0: nothing is suspected."""

    suspect: Int64
    """What was sent up to this sequence waited in vain for a time-out, and may all be lost."""
    newest_at: Float64
    """When the newest contribution is repeated if nothing else has come; 0: no answer to a repeat has come."""
    newest: Int64
    """Sequence of that repeat; 0: it was not sent."""
    is_lost: Int64
    """1: its answer has come, and nothing else."""


@inner
def note_timeout(flight: Flight, sequence: int, in_flight: int) -> None:
    """Suspect what is in flight, up to a sequence, for nothing of it has come within a time-out; 0: nothing."""
    flight.suspect = sequence if in_flight > _FEW else 0
    flight.newest_at = 0.0
    flight.newest = flight.is_lost = 0


@inner
def note_newest(flight: Flight, sequence: int) -> None:
    """Note that the newest contribution was repeated as frame number `sequence`; 0: there is none left."""
    flight.newest = sequence
    if sequence == 0:
        flight.suspect = 0


@inner
def note_result(flight: Flight, sequence: int, is_answer: bool, answered_s: float, now: float) -> Step:
    """Note the result of a contribution whose last transmission was frame number `sequence`; say what is repeated.

    `is_answer`: it was repeated, and the switch has not said that it had it; an answer takes `answered_s`.
    """
    if sequence <= flight.suspect:
        flight.suspect = 0
    if flight.suspect == 0 or not is_answer:
        return Step.NOTHING
    if flight.newest_at == 0.0:
        flight.newest_at = now + answered_s
        return Step.NOTHING
    if flight.newest == 0:
        return Step.NEWEST if now >= flight.newest_at else Step.NOTHING
    if sequence == flight.newest:
        flight.is_lost = 1
    return Step.MORE if flight.is_lost == 1 else Step.NOTHING


@inner
def awaits_newest(flight: Flight) -> bool:
    """Tell whether the newest contribution is to be repeated at `newest_at`."""
    return bool(flight.suspect > 0 and flight.newest == 0 and flight.newest_at > 0.0)
