"""Loss recovery: which contributions are sent again, and when (RFC 9002 in small).

A worker cannot know whether its contribution, somebody else's or the result was lost; it repeats its contribution and
the switch answers with the result, or with `held` if others are missing.  Two rules say when:

* *overtaken*: results of frames that were sent `threshold` or more later have passed.  Where a worker is out of step
  with the others, in a round that it repeated and in the next one, a result proves less, and counts only when nothing
  better has come for a round's time: each such result lets two frames be taken for lost (`_give_credit`), not all that
  it has passed.  It lets none if it comes in the order of first transmissions: then the path may be slow, and nothing
  lost.  At a single switch a frame that has been passed and has waited for three rounds is lost, whatever passed it:
  where many frames are lost, hardly any round goes without a repeat.  A slot whose
  contribution the switch holds waits for somebody else's repeat, which takes as long as one's own: it gets twice a
  round's time, and each time twice as much.  In a tree with queues a switch's first member repeats at once, and the
  others a round later.  A round's time is here what `round_s` says.  Once a repeat has proved needless, frames may come
  later than others by a reordering window, which ends by a timer if no further result comes (RFC 8985).
* *probe*: no result has come, and no contribution was sent, for a time-out (see `_set_timeout`).  Two frames are
  repeated, and only one while nothing is known of the path but what short frames took; if others are missing too,
  results of those will pass them.  Without any answer it is twice the time.  After a few such times it is also twice as
  many at a single switch.  In a tree the longer time stays until the result of a contribution that was sent once (RFC
  6298, 5.7), or, if there never was one, until repeats are soon answered (`_is_prompt`).  Who waits for a late one
  (`held`) goes on with two, and stops doubling early: the longer pause is small beside what it has waited already.
  First come contributions that the switch may not have: where a late worker waits for one of them, it is among many
  that the switch holds, and those wait for the late one.  Yet each has its turn every `_ALL_PROBED_S`, for its result
  may be lost.

Repeats are the row as it was packed, lanes and all (docs/design-decisions.md says why).

A repeat proves needless in two ways.  The result comes sooner than any answer to the repeat could (`_is_spurious`), or
a second result comes, which is that answer (`note_answer`).  Both tell how long a round really takes.

A round lasts as long as the slowest worker's recovery.  If time-outs followed rounds alone, they would follow one
another, and grow without end where most rounds lose a frame somewhere.  So they are also bounded by the shortest rounds
of round trips lately (`longest_trip_s`): these lost nothing, and waited in the queues that there are now.  Rounds that
may have waited for a late rank count bit by bit.  Answers to repeats bound time-outs, too (`answered_s`), for they wait
for nobody: with many members each round loses something.  Where jobs share slots, what goes over their fallback takes
longer: it has an order and times of its own (`Slot.way`), or claims would be repeated whenever rounds pass them.

What is lost, and what happens:

* a contribution: the slot waits, the others' repeats get HELD; its repeat is the first copy that the switch sees.
* a result, or HELD: the slot waits; its repeat gets the stored result, or another HELD.
* the switch's memory (a restart): slots that wait repeat their contribution and the one before, others the last one,
  for it is outstanding (see `rules.py`); often until there is an answer, and then less and less often.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum_protocol.frame import AT, Flag
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.memory import Scalar, bytes_at

from .congestion import answered_s, has_many, is_busy, longest_trip_s, note_loss, shortest_s, time_answer
from .header import fill_checksum
from .rules import ACTIONS, Action, Event
from .sending import acknowledge, contribute_blocked, queue_contribution, queue_frame, send_withheld
from .state import MOST_TREES, NEVER, WAYS, Core, Count, Held, Outstanding, RecoveryState, Slot, State

_REPEAT: Final = int(Flag.REPEAT)
_RECALL: Final = int(Flag.REPEAT | Flag.RECALL)
_PROBES_AT_ONCE: Final = 2
_FEW_SILENCES: Final = 4
"""After so many time-outs without any answer each repeats twice as many as the one before.  Earlier, the path may have
become slow: where a token bucket is empty, the next answer may come only after a thousand round trips."""
_ALL_PROBED_S: Final = 2.0
"""Within that time, or in two pauses if these are longer, probes repeat all that waits."""
_CREDIT: Final = 2
"""Frames that are taken for lost when the result of a repeat has passed them, and nothing better has come lately."""
_FEW_DOUBTS: Final = 4
"""So many may go without a better reason and without a pause."""
_LATER_ROUNDS: Final = 2.0
"""Rounds in which a later member repeats nothing that it sent: an answer takes one, the first member's repeat one."""
_MOST_TRIPS: Final = 3.0
"""Most that a time-out is, in shortest rounds of the last round trip."""
_LATENESSES: Final = 1.0
"""How often the loop's own lateness is added to this bound: workers that share cores are late one after another."""
_SOONEST: Final = 0.5
"""Part of the shortest round in which no answer to a repeat can come."""
_ON_TIME: Final = 1.5
"""Most shortest rounds after a repeat at which its result comes on time."""
_SOON: Final = 8.0
"""An answer that comes within such a part of the pause after a repeat is taken for that repeat's ..."""
_FEW_PROMPT: Final = 3
"""... if so many in a row did: by chance one in 512 times."""
_UNTIMED_S: Final = 2.0
"""Longest pause while no round was timed."""
_REORDERED: Final = 1 / 4
"""Reordering window once a repeat was needless, in shortest rounds (RFC 8985, section 6.2, step 4)."""
_FEW: Final = 8
"""Number of waiting slots with which an operation comes to its end. Then a frame too many is cheaper than a time-out.
"""
_MANY: Final = 32
"""Number of waiting slots from which on they are not searched for each batch of results."""
_MOST_DOUBLINGS: Final = 6
_MOST_TIMES: Final = 1 << _MOST_DOUBLINGS
_MOST_TIMES_HELD: Final = 8
"""A pause grows to so many time-outs, or so many times the minimum time-out if that is more.

A switch that is away, or a late worker, does not come earlier because rounds are short.
"""
_WAITED: Final = 1 / 16
"""A pause also grows to that part of what a slot has waited for a late worker, for it is small beside that."""
_AGED: Final = 3.0
"""Rounds after which a frame that has been passed is lost at a single switch, whatever passed it: in a tree its repeat
would be passed on, by links that may be full."""
_ENDLESS: Final = 20
"""Most doublings of a pause that count: more make no difference."""
_FORGOTTEN_S: Final = 1.0
"""Seconds after which the loop's lateness is forgotten, about."""


@inner
def poll(state: State, now: float) -> None:
    """Do what time, and the transport's progress, allow."""
    contribute_blocked(state, now)
    repeat_overtaken(state, now)
    probe(state, now)
    resend_outstanding(state, now)


@inner
def wake_at(state: State) -> float:
    """Return when `poll` has something to do if no frame comes; infinity: never."""
    core = state.core[0]
    recovery = core.recovery
    at: Scalar = min(probe_at(core), recovery.reordered_at) if core.progress.waiting > 0 else np.inf
    return min(at, recovery.resend_at) if recovery.unanswered + recovery.answered > 0 else at  # type: ignore[no-any-return]


@inner
def probe_at(core: Core) -> Scalar:
    """Return the time of the next probe: a call that has a time-out has several tries before it is over."""
    return core.recovery.moved_at + min(_backed_off_s(core), _longest_pause_s(core.recovery))


@inner
def _longest_pause_s(recovery: RecoveryState) -> Scalar:
    """Return how long a pause may last at most: `pause_max_s`, which is a part of what a call may take.

    A time-out that has become longer without being doubled may last twice as long, for the path may be that slow.
    """
    return min(max(recovery.timeout_s, recovery.pause_max_s), 2 * recovery.pause_max_s)


@inner
def _backed_off_s(core: Core) -> Scalar:
    """Return the time-out, doubled for each one that nothing has come in (RFC 6298, 5.5)."""
    recovery = core.recovery
    most_s = min(_UNTIMED_S, recovery.timeout_max_s) if _is_untimed(recovery) else recovery.timeout_max_s
    longest = min(_MOST_TIMES * max(recovery.timeout_s, recovery.timeout_min_s), most_s)
    return min(_doubled(core, recovery.timeouts), longest)


@inner
def _doubled(core: Core, times: int) -> float:
    """Return the time-out, doubled so many times."""
    return core.recovery.timeout_s * np.float64(1 << min(times, _ENDLESS))


@inner
def _repeat(state: State, index: int, now: float) -> None:
    """Send a slot's contribution again, exactly as packed but for the flag that says so."""
    slot = state.slots[index]
    row = 2 * index + (slot.number & 1)
    _mark(state, row, _REPEAT)
    slot.repeats += 1
    state.rows[row].repeated_at = now if slot.repeats == 1 else 0.0
    if slot.repeats > 1 and ACTIONS[slot.phase, Event.REPEATED] == Action.REPEAT_FORMER:
        recall(state, index)
    queue_contribution(state, index, row, now)


@inner
def _mark(state: State, row: int, flags: int) -> None:
    """Set flags in the frame in a row."""
    sending = state.core[0].sending
    frame = bytes_at(sending.store + row * sending.stride + sending.lead, state.rows[row].length)
    if frame[AT.flags] & flags != flags:
        frame[AT.flags] |= flags
        if sending.checksum:
            fill_checksum(frame)


@inner
def recall(state: State, index: int) -> None:
    """Send the contribution before a slot's next one again, if there was one and the transport has let go of it.

    This worker holds that round's result.  It says so: in a tree of switches its leaf may hold the only copy of what
    switches above have forgotten (row 14 of `switchsum_protocol.tree_rules`).
    """
    row = 2 * index + (~state.slots[index].number & 1)
    if 0 < state.rows[row].sequence <= state.core[0].sending.consumed:
        _mark(state, row, _RECALL)
        state.rows[row].repeated_at = 0.0  # what comes now may be the answer to this
        queue_frame(state, row)
        state.core[0].progress.counts[Count.RECALLED] += 1


@inner
def repeat_asked(state: State, index: int, now: float) -> None:
    """Repeat the contribution that another member's HELD misses, unless it may be on its way."""
    core, slot = state.core[0], state.slots[index]
    slot.held = Held.UNKNOWN
    if state.last_sent[index] <= core.sending.consumed and now >= slot.sent_at + core.recovery.smoothed_s[slot.way]:
        _repeat(state, index, now)
        core.progress.counts[Count.PROBES] += 1


@inner
def restore(state: State, now: float) -> None:
    """Begin to tell a restarted switch what it needs: all slots at once, for it has lost them all."""
    core = state.core[0]
    recovery = core.recovery
    for index in range(state.slots.size):
        slot = state.slots[index]
        slot.held = 0
        action = ACTIONS[slot.phase, Event.RESTARTED]
        if action in (Action.NOTE_OUTSTANDING, Action.NOTE_AND_REPEAT):
            acknowledge(core, slot)
            recovery.unanswered += 1
            slot.outstanding = Outstanding.UNANSWERED
        if action == Action.NOTE_AND_REPEAT and state.last_sent[index] <= core.sending.consumed:
            # One more than it sends, for from the second repeat on `_repeat` recalls the round before, too: the switch
            # has also lost that round's result, and others may still wait for it.
            slot.repeats += 1
            _repeat(state, index, now)
            core.progress.counts[Count.PROBES] += 1
    recovery.resend_at = now
    recovery.resend_pause_s = max(recovery.timeout_s, recovery.timeout_min_s)


@inner
def note_answer(state: State, index: int, is_second_result: bool, now: float) -> None:
    """Note that an answer about a slot's last round has come, which may be older than the restart.

    A second result with lanes, of a round that was repeated once, is the answer to that repeat.  So nothing had been
    lost, and the answer took as long as a round that waits for nobody.
    """
    core, slot = state.core[0], state.slots[index]
    row = state.rows[2 * index + (~slot.number & 1)]
    if is_second_result and row.repeated_at > 0.0:
        elapsed = now - row.repeated_at
        row.repeated_at = 0.0
        core.recovery.spurious += 1
        time_answer(core, state.congestion[slot.tree], elapsed, now)
        if elapsed > core.recovery.timeout_s:
            _learn(state, 0, elapsed)
    if slot.outstanding == Outstanding.UNANSWERED:
        slot.outstanding = Outstanding.ANSWERED
        core.recovery.unanswered -= 1
        core.recovery.answered += 1


@inner
def resend_outstanding(state: State, now: float) -> None:
    """Repeat what is outstanding since the switch was restarted; a slot that waits repeats it anyway."""
    core = state.core[0]
    recovery = core.recovery
    if recovery.unanswered + recovery.answered == 0 or now < recovery.resend_at:
        return
    for index in range(state.slots.size):
        slot = state.slots[index]
        action = ACTIONS[slot.phase, Event.RESEND_DUE]
        if slot.outstanding and action == Action.REPEAT_FORMER:
            if state.rows[2 * index + (~slot.number & 1)].sequence == 0:
                acknowledge(core, slot)  # it has never contributed
            else:
                recall(state, index)
    recovery.resend_at = now + recovery.resend_pause_s
    recovery.resend_pause_s *= 2
    if recovery.unanswered > 0:
        recovery.resend_pause_s = min(recovery.resend_pause_s, recovery.timeout_max_s, _longest_pause_s(recovery))


@inner
def note_result(state: State, index: int, carries: bool, now: float) -> None:
    """Learn from a result: how long a round takes, and what it has overtaken."""
    core = state.core[0]
    recovery = core.recovery
    slot = state.slots[index]
    sequence = state.last_sent[index]
    state.last_sent[index] = NEVER
    path = slot.tree + slot.way
    if slot.operation > recovery.common:
        # Late workers have only now begun it: results of what went on meanwhile have passed frames that were not lost.
        recovery.common = slot.operation
        recovery.common_at = now
        recovery.passed[:] = 0
        recovery.overtaken[:] = 0
    first = state.rows[2 * index + (slot.number & 1)].first
    is_in_order = first > recovery.first_passed[path]  # nothing that was sent after it has brought a result
    recovery.first_passed[path] = max(recovery.first_passed[path], first)
    if slot.repeats == 0:
        _note_passed(recovery, path, sequence)
        if slot.late != 0:
            _give_credit(state, slot, now)
        else:
            recovery.evident_at = now
            if sequence > recovery.overtaken[path]:
                recovery.overtaken[path] = sequence
                recovery.delivered_s[path] = now - slot.sent_at
        # One result of each batch will do.
        if (slot.named or carries) and recovery.timed_at != now:
            recovery.timed_at = now
            _learn(state, slot.way, now - slot.sent_at)
        else:
            _guess(recovery, now - slot.sent_at)
        recovery.timeouts = recovery.doubts = 0
    elif _is_spurious(state, index, now):
        _note_spurious(state, index, now)
    else:
        _note_repeated(state, index, sequence, is_in_order, now)
    slot.late = slot.repeats > 0
    recovery.silent = 0
    recovery.moved_at = now


@inner
def _note_repeated(state: State, index: int, sequence: int, is_in_order: bool, now: float) -> None:
    """Learn from the result of a contribution that was repeated, the last time as frame number `sequence`.

    In the round after a repeat this worker is the last one, and its result passes those of frames that wait for others.
    Which transmission brought the result cannot be told (Karn's algorithm), unless it comes just when the answer to the
    last one is due.  At a single switch a needless repeat has an answer that tells later.  A result that comes in the
    order of first transmissions may be the answer to the first one, on a path that has become slow.
    """
    core, slot = state.core[0], state.slots[index]
    recovery, path = core.recovery, slot.tree + slot.way
    here, elapsed = state.congestion[path], now - slot.sent_at
    is_on_time = elapsed < _ON_TIME * shortest_s(here) < np.inf
    if is_on_time or core.member.in_tree == 0 or has_many(core):
        recovery.timeouts = 0
    elif _is_untimed(recovery) and _is_prompt(core, elapsed):
        _guess(recovery, elapsed)
        while recovery.timeouts > 0 and _doubled(core, recovery.timeouts - 1) > _SOON * elapsed:
            recovery.timeouts -= 1
    _guess(recovery, now - state.rows[2 * index + (slot.number & 1)].first_at)  # at most so long is a round trip
    if not is_in_order or _SOONEST * here.least_s <= elapsed < _ON_TIME * here.least_s:
        _note_passed(recovery, path, sequence)
        _give_credit(state, slot, now)


@inner
def _is_untimed(recovery: RecoveryState) -> bool:
    """Tell whether no round was ever timed: none had a result without a repeat."""
    return bool(recovery.smoothed_s[0] + recovery.smoothed_s[1] == 0.0)


@inner
def _is_prompt(core: Core, elapsed: float) -> bool:
    """Tell whether answers come soon after repeats, in a tree where each round has lost something so far.

    Answers to earlier transmissions would come at any time within the pause.  A few in a row that come at its beginning
    are answers to the repeats: the pause need not be longer than some of these times.
    """
    recovery = core.recovery
    is_soon = _SOON * elapsed <= _doubled(core, recovery.timeouts)
    recovery.prompt = recovery.prompt + 1 if is_soon else 0
    return bool(recovery.prompt >= _FEW_PROMPT)


@inner
def _give_credit(state: State, slot: Slot, now: float) -> None:
    """Take frames for lost that the result of a repeat has passed, where nothing better has come lately."""
    core = state.core[0]
    if core.progress.waiting <= _FEW or now > core.recovery.evident_at + round_s(state, slot):
        core.recovery.credit += _CREDIT


@inner
def _note_passed(recovery: RecoveryState, path: int, sequence: int) -> None:
    """Note that a result has passed those of frames that were sent before."""
    recovery.arrived = max(recovery.arrived, sequence)
    recovery.passed[path] = max(recovery.passed[path], sequence)


@inner
def _is_spurious(state: State, index: int, now: float) -> bool:
    """Tell whether a result came too soon to be the answer to the last repeat (RFC 8985, section 6.2, step 2)."""
    slot = state.slots[index]
    here = state.congestion[slot.tree + slot.way]
    soonest = _SOONEST * shortest_s(here)
    if state.core[0].member.in_tree == 0:  # where many frames are lost, rounds wait for repeats of others
        soonest = min(soonest, here.least_s)
    return bool(now - slot.sent_at < soonest < np.inf)


@inner
def _note_spurious(state: State, index: int, now: float) -> None:
    """Learn from a repeat that was needless: wait longer for results that are late, and take the round's time."""
    core, slot = state.core[0], state.slots[index]
    recovery, path = core.recovery, slot.tree + slot.way
    recovery.spurious += 1
    trip_s = shortest_s(state.congestion[path])
    recovery.reorder_s[path] = _REORDERED * trip_s
    if slot.repeats == 1:  # the first transmission has brought the result (RFC 4015)
        _learn(state, slot.way, now - state.rows[2 * index + (slot.number & 1)].first_at)
        recovery.timeouts = 0


@inner
def note_held(state: State, index: int, seen: int, now: float) -> None:
    """Learn that the switch has the contribution and waits for others than those in the bitmap `seen`."""
    core, slot = state.core[0], state.slots[index]
    recovery = core.recovery
    if slot.held == Held.UNKNOWN and slot.repeats == 1:
        time_answer(core, state.congestion[slot.tree], now - slot.sent_at, now)
        _set_timeout(state)
    slot.held = Held.NOW
    slot.seen = seen
    recovery.silent = 0
    if _is_untimed(recovery) and not (core.member.in_tree == 1 and _is_prompt(core, now - slot.sent_at)):
        return  # the others may begin seconds later, and pauses go on doubling
    waited_s = now - state.rows[2 * index + (slot.number & 1)].first_at
    longest = max(_MOST_TIMES_HELD * max(recovery.timeout_s, recovery.timeout_min_s), _WAITED * waited_s)
    while recovery.timeouts > 0 and _doubled(core, recovery.timeouts) > longest:
        recovery.timeouts -= 1


@inner
def _guess(recovery: RecoveryState, elapsed: float) -> None:
    """Make the time-out shorter by what an answer took, as long as no round was timed."""
    if _is_untimed(recovery):
        guess_s = max(_MOST_TRIPS * elapsed + recovery.granularity_s, recovery.timeout_min_s)
        recovery.timeout_s = min(recovery.timeout_s, guess_s)


@inner
def _learn(state: State, way: int, elapsed: float) -> None:
    """Learn how long a round took (RFC 6298, section 2)."""
    recovery = state.core[0].recovery
    if recovery.smoothed_s[way] == 0.0:
        recovery.smoothed_s[way], recovery.variation_s[way] = elapsed, elapsed / 2
    else:
        recovery.variation_s[way] += (abs(recovery.smoothed_s[way] - elapsed) - recovery.variation_s[way]) / 4
        recovery.smoothed_s[way] += (elapsed - recovery.smoothed_s[way]) / 8
    _set_timeout(state)


@inner
def _set_timeout(state: State) -> None:
    """Set the time-out to that of the longer way: while only claims are waited for, none comes by the shorter one.

    A round also lasts as long as others take to repeat what was lost.  If time-outs followed rounds alone, they would
    follow one another, and grow without end where most rounds lose a frame somewhere.  So they are bounded by the
    shortest round of the last round trip, which lost nothing, and knows the queues as they are now, or by answers.
    """
    recovery = state.core[0].recovery
    longest_s = 0.0
    for way in range(WAYS):
        if recovery.smoothed_s[way] > 0.0:
            longest_s = max(longest_s, recovery.smoothed_s[way] + 4 * recovery.variation_s[way])
    trip_s = longest_trip_s(state)
    most_s = _MOST_TRIPS * trip_s + _LATENESSES * recovery.granularity_s
    if longest_s > 0.0:
        least_s = min(2 * trip_s + recovery.granularity_s, recovery.timeout_min_s)
        recovery.timeout_s = min(max(min(longest_s, most_s), least_s), recovery.timeout_max_s)
    else:
        recovery.timeout_s = min(recovery.timeout_s, most_s)


@inner
def round_s(state: State, slot: Slot) -> Scalar:
    """Return how long a slot's round is expected to take if nobody repeats anything."""
    recovery = state.core[0].recovery
    here = state.congestion[slot.tree + slot.way]
    trip_s = min(shortest_s(here), answered_s(state.core[0], here))
    known_s = recovery.smoothed_s[slot.way] if recovery.smoothed_s[slot.way] > 0.0 else recovery.timeout_s
    return min(known_s, trip_s)


@inner
def note_lateness(state: State, due_at: float, now: float) -> None:
    """Learn how late the driver looks at its clock: it wanted to at `due_at`, and does so only now.

    That is the granularity of its timer.  It counts while it is recent: whoever loses the core for a moment does so
    again, and so do the switch and the other workers, who share cores with it or have such cores.
    """
    recovery = state.core[0].recovery
    kept = max(1.0 - (now - recovery.looked_at) / _FORGOTTEN_S, 0.0)
    recovery.looked_at = now
    recovery.granularity_s = max(recovery.granularity_s * kept, now - due_at)
    _set_timeout(state)


@inner
def _pause_s(state: State, slot: Slot) -> Scalar:
    """Return how long after a slot's last transmission no result of later frames makes it repeat."""
    expected_s, pause_s = round_s(state, slot), 0.0
    if state.core[0].member.asks_later == 1 and slot.repeats == 0 and is_busy(state.congestion[slot.tree]):
        pause_s = _LATER_ROUNDS * expected_s
    if slot.held:
        # One worker that is kept from running makes all slots of the others wait: each asks less and less often.
        pause_s += expected_s * (1 << min(slot.repeats, _MOST_DOUBLINGS))
    return pause_s


@inner
def _takes_credit(state: State, slot: Slot, now: float) -> bool:
    """Tell whether a slot is taken for lost though only results of repeats have passed it.

    A few go on such evidence alone.  Then each waits twice as long as the one before: if all of them are needless,
    their results would otherwise make the next ones needless, too.  With many members there is hardly any other.
    """
    recovery = state.core[0].recovery
    doubts = min(max(recovery.doubts - _FEW_DOUBTS, 0), _ENDLESS)
    if has_many(state.core[0]):
        doubts = 0
    waited_s, expected_s = now - slot.sent_at, round_s(state, slot)
    if state.core[0].member.in_tree == 0 and waited_s >= _AGED * expected_s:
        return True
    if recovery.credit == 0 or waited_s < expected_s * ((1 << doubts) - 1):
        return False
    recovery.credit -= 1
    recovery.doubts += 1
    return True


@inner
def repeat_overtaken(state: State, now: float) -> None:
    """Repeat what results of later frames have passed, unless the transport still has it."""
    core = state.core[0]
    recovery = core.recovery
    progress = core.progress
    # While many wait, many more results are on their way: slots need not be looked through for each of them.
    if progress.waiting == 0 or (
        progress.waiting > _MANY
        and recovery.arrived - recovery.searched < progress.waiting // 8
        and now < recovery.reordered_at
    ):
        return
    recovery.searched = recovery.arrived
    recovery.reordered_at = np.inf
    for index in range(state.slots.size):
        if state.last_sent[index] > recovery.arrived - recovery.threshold:
            continue  # nearly always, and then the slot itself need not be looked at
        slot = state.slots[index]
        path = slot.tree + slot.way
        if state.last_sent[index] > min(recovery.passed[path] - recovery.threshold, core.sending.consumed):
            continue
        if slot.operation > recovery.common or now < slot.sent_at + _pause_s(state, slot):
            continue
        if state.last_sent[index] > recovery.overtaken[path] - recovery.threshold:
            if not _takes_credit(state, slot, now):
                continue
        elif recovery.reorder_s[path] > 0.0:
            at = slot.sent_at + recovery.delivered_s[path] + recovery.reorder_s[path]
            if now < at:
                recovery.reordered_at = min(recovery.reordered_at, at)
                continue
        if ACTIONS[slot.phase, Event.OVERTAKEN] == Action.REPEAT:
            if slot.held == 0:
                note_loss(state, slot.tree + slot.passes, state.last_sent[index])
            _repeat(state, index, now)
            progress.counts[Count.OVERTAKEN] += 1
    recovery.credit = 0


@inner
def _probe_slot(state: State, index: int, now: float) -> int:
    """Repeat a slot's contribution as a probe; return how many that makes."""
    if ACTIONS[state.slots[index].phase, Event.TIMED_OUT] != Action.REPEAT:
        return 0
    _repeat(state, index, now)
    state.core[0].progress.counts[Count.PROBES] += 1
    return 1


@inner
def _oldest(state: State, bound: int, with_held: int) -> Scalar:
    """Return the slot that has waited longest since it was sent, no later than `bound`; -1: there is none.

    Slots whose contribution the switch holds count only where `with_held` is 1.
    """
    first, oldest = bound, np.int64(-1)
    for index in range(state.slots.size):
        if state.last_sent[index] <= first and (with_held == 1 or state.slots[index].held == 0):
            first, oldest = state.last_sent[index], np.int64(index)
    return oldest


@inner
def probe(state: State, now: float) -> None:
    """Repeat some frames when nothing has come for a time-out."""
    core = state.core[0]
    recovery = core.recovery
    if core.progress.waiting == 0 or now < probe_at(core):
        return
    bound = min(core.sending.sequence, core.sending.consumed)
    left: Scalar = np.int64(1 if _is_untimed(recovery) and recovery.timeouts == 0 else _PROBES_AT_ONCE)
    if core.member.in_tree == 0:  # in a tree each would be passed on, by links that may be full
        left <<= min(max(recovery.silent - _FEW_SILENCES, 0), _MOST_DOUBLINGS)
    pause_s, backed_off_s = probe_at(core) - recovery.moved_at, _backed_off_s(core)
    all_probed_s = max(_ALL_PROBED_S, min(backed_off_s, 2 * pause_s))
    left = max(left, np.int64(core.progress.waiting * pause_s / all_probed_s))
    # The oldest, so that each has its turn; the others from the first slot on: several workers may have to repeat
    # the same one, and so all look for it in the same order.
    oldest = _oldest(state, bound, 0)
    if oldest >= 0:
        left -= _probe_slot(state, oldest, now)
    for index in range(state.slots.size):
        if left > 0 and state.last_sent[index] <= bound and index != oldest and state.slots[index].held == 0:
            left -= _probe_slot(state, index, now)
    while left > 0:
        oldest = _oldest(state, bound, 1)
        if oldest < 0 or _probe_slot(state, oldest, now) == 0:
            break
        left -= 1
    for tree in range(MOST_TREES):
        if recovery.timeouts > 0 and state.congestion[tree].withheld > 0:
            send_withheld(state, tree, now)
    recovery.timeouts += 1
    recovery.silent += 1
    recovery.moved_at = now
