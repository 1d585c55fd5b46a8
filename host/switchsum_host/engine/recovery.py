"""Loss recovery: which slots send their contribution again, and when (RFC 9002 in small).

A worker cannot know whether its contribution, somebody else's or the result was lost; it repeats its contribution and
the switch answers with the result, or with `held` if others are missing.  What it decides is in `policies`; here it
looks at each slot, asks them, and sends:

* `repeat_overtaken`: what results of later frames have passed is repeated at once (`policies/losses.py`).
* `probe`: no result has come, and no contribution was sent, for a time-out (`policies/timer.py`).  Two frames are
  repeated, and only one while nothing is known of the path but what short frames took; if others are missing too,
  results of those will pass them.  Without any answer it is twice the time.  First come contributions that the switch
  may not have: where a late worker waits for one of them, it is among many that the switch holds, and those wait for
  the late one.  A tree that has brought no lanes yet, and is silent while results come over others, has some of its
  own repeated, too (`policies/silence.py`).
* `note_result`: where all that was in flight is lost, answers to these repeats have the rest repeated
  (`policies/flight.py`).

Repeats are the row as it was packed, lanes and all (docs/design-decisions.md says why).

A repeat proves needless in two ways.  The result comes sooner than any answer to the repeat could
(`losses.is_spurious`), or a second result comes, which is that answer (`note_answer`).  Both tell how long a round
really takes.

Where jobs share slots, what goes over their fallback takes longer: it has an order and times of its own (`Slot.way`),
or claims would be repeated whenever rounds pass them.

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

from .congestion import longest_trip_s, note_loss, turn_of
from .header import fill_checksum
from .policies import flight, losses, pacing, silence, timer
from .policies.flight import Step
from .policies.round_trips import expected_s, has_many, is_busy, note_in_order
from .policies.round_trips import note_answer as time_answer
from .rules import ACTIONS, Action, Event
from .sending import acknowledge, contribute_blocked, queue_contribution, queue_frame, release_paced, send_withheld
from .state import MOST_TREES, NEVER, Core, Count, Held, Outstanding, Slot, State

_REPEAT: Final = int(Flag.REPEAT)
_RECALL: Final = int(Flag.REPEAT | Flag.RECALL)
EVERY: Final = -1
"""In place of a path's number: any of them."""
_MANY: Final = 32
"""Number of waiting slots from which on they are not searched for each batch of results."""


@inner
def poll(state: State, now: float) -> None:
    """Do what time, and the transport's progress, allow."""
    contribute_blocked(state, now)
    repeat_overtaken(state, now)
    release_paced(state, now)
    probe(state, now)
    resend_outstanding(state, now)


@inner
def wake_at(state: State) -> float:
    """Return when `poll` has something to do if no frame comes; infinity: never."""
    core = state.core[0]
    recovery = core.recovery
    at: Scalar = np.inf
    if core.progress.waiting > 0:
        at = min(probe_at(core), recovery.reordered_at, recovery.look_at)
    at = min(at, recovery.paced_at)
    return min(at, recovery.resend_at) if recovery.unanswered + recovery.answered > 0 else at  # type: ignore[no-any-return]


@inner
def probe_at(core: Core) -> Scalar:
    """Return the time of the next probe."""
    return core.recovery.moved_at + timer.pause_s(core.recovery.timer)


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
    if (
        state.last_sent[index] <= core.sending.consumed
        and now >= slot.sent_at + core.recovery.timer.smoothed_s[slot.way]
    ):
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
    recovery.resend_pause_s = max(recovery.timer.timeout_s, recovery.timer.timeout_min_s)


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
        time_answer(state.paths[slot.tree].trips, elapsed, core.member.in_tree, now)
        if elapsed > core.recovery.timer.timeout_s:
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
        recovery.resend_pause_s = min(
            recovery.resend_pause_s, recovery.timer.timeout_max_s, timer.longest_pause_s(recovery.timer)
        )


@inner
def note_result(state: State, index: int, carries: bool, now: float) -> None:
    """Learn from a result: how long a round takes, and what it has overtaken."""
    core, slot = state.core[0], state.slots[index]
    recovery, here = core.recovery, state.paths[slot.tree + slot.way]
    sequence, elapsed = state.last_sent[index], now - slot.sent_at
    state.last_sent[index] = NEVER
    if slot.operation > recovery.common:
        # Late workers have only now begun it: results of what went on meanwhile have passed frames that were not lost.
        recovery.common = slot.operation
        recovery.common_at = now
        for path in range(MOST_TREES):
            losses.forget_order(state.paths[path].order)
    is_in_order = losses.note_first(here.order, state.rows[2 * index + (slot.number & 1)].first)
    if slot.repeats == 0:
        _note_passed(state, slot, sequence)
        if slot.late != 0:
            losses.give_credit(recovery.doubt, core.progress.waiting, round_s(state, slot), now)
        else:
            losses.note_in_step(here.order, recovery.doubt, sequence, elapsed, now)
        # One result of each batch will do.
        if (slot.named or carries) and recovery.timed_at != now:
            recovery.timed_at = now
            _learn(state, slot.way, elapsed)
        else:
            timer.guess(recovery.timer, elapsed)
        recovery.timer.backoffs = recovery.doubt.doubts = 0
    elif losses.is_spurious(here.trips, elapsed, core.member.in_tree == 0 or recovery.timer.backoffs > 0):
        _note_spurious(state, index, now)
    else:
        _note_repeated(state, index, sequence, is_in_order, now)
    slot.late = slot.repeats > 0
    recovery.timer.silent = 0
    recovery.moved_at = now
    path = slot.tree + slot.passes
    there = state.paths[path]
    silence.note_heard(there.silence, now)
    answered_s = timer.answered_s(recovery.timer, elapsed)
    step = flight.note_result(there.flight, sequence, slot.repeats > 0 and slot.held == 0, answered_s, now)
    if step == Step.NEWEST:
        _repeat_newest(state, path, now)
    elif step == Step.MORE:
        _repeat_more(state, path, now)
    elif flight.awaits_newest(there.flight):
        recovery.look_at = min(recovery.look_at, there.flight.newest_at)


@inner
def _note_passed(state: State, slot: Slot, sequence: int) -> None:
    """Note that a result has passed those of frames that were sent before."""
    recovery, order = state.core[0].recovery, state.paths[slot.tree + slot.way].order
    recovery.arrived = max(recovery.arrived, sequence)
    order.passed = max(order.passed, sequence)


@inner
def _note_repeated(state: State, index: int, sequence: int, is_in_order: bool, now: float) -> None:
    """Learn from the result of a contribution that was repeated, the last time as frame number `sequence`.

    In the round after a repeat this worker is the last one, and its result passes those of frames that wait for others.
    Which transmission brought the result cannot be told (Karn's algorithm), unless it comes just when the answer to the
    last one is due.  At a single switch a needless repeat has an answer that tells later.  A result that comes in the
    order of first transmissions may be the answer to the first one, on a path that has become slow; where nothing was
    taken for lost in this round trip, it counts as one.
    """
    core, slot = state.core[0], state.slots[index]
    recovery, here = core.recovery, state.paths[slot.tree + slot.way]
    trips, row = here.trips, state.rows[2 * index + (slot.number & 1)]
    elapsed = now - slot.sent_at
    if losses.is_on_time(trips, elapsed) or core.member.in_tree == 0 or has_many(core.member.workers):
        recovery.timer.backoffs = 0
    elif timer.is_untimed(recovery.timer) and timer.note_promptness(recovery.timer, elapsed):
        timer.shorten_untimed(recovery.timer, elapsed)
    timer.guess(recovery.timer, now - row.first_at)  # a round trip at the most
    if not is_in_order or losses.is_due(trips, elapsed):
        _note_passed(state, slot, sequence)
        losses.give_credit(recovery.doubt, core.progress.waiting, round_s(state, slot), now)
    elif slot.repeats == 1 and here.delivery.lost == 0:
        took_s = now - max(row.first_at, recovery.common_at)
        note_in_order(trips, row.first, here.in_flight, took_s, False, core.member.workers)


@inner
def _note_spurious(state: State, index: int, now: float) -> None:
    """Learn from a repeat that was needless: wait longer for results that are late, and take the round's time."""
    core, slot = state.core[0], state.slots[index]
    here = state.paths[slot.tree + slot.way]
    core.recovery.spurious += 1
    losses.note_needless(here.order, here.trips)
    if slot.repeats == 1:  # the first transmission has brought the result (RFC 4015)
        _learn(state, slot.way, now - state.rows[2 * index + (slot.number & 1)].first_at)
        core.recovery.timer.backoffs = 0


@inner
def note_held(state: State, index: int, seen: int, now: float) -> None:
    """Learn that the switch has the contribution and waits for others than those in the bitmap `seen`."""
    core, slot = state.core[0], state.slots[index]
    clock, elapsed = core.recovery.timer, now - slot.sent_at
    if slot.held == Held.UNKNOWN and slot.repeats == 1:
        time_answer(state.paths[slot.tree].trips, elapsed, core.member.in_tree, now)
        timer.set_timeout(clock, longest_trip_s(state))
    slot.held = Held.NOW
    slot.seen = seen
    clock.silent = 0
    if timer.is_untimed(clock) and not (core.member.in_tree == 1 and timer.note_promptness(clock, elapsed)):
        return  # the others may begin seconds later, and pauses go on doubling
    timer.shorten_held(clock, now - state.rows[2 * index + (slot.number & 1)].first_at)


@inner
def _learn(state: State, way: int, elapsed: float) -> None:
    """Learn how long a round took."""
    timer.smooth(state.core[0].recovery.timer, way, elapsed)
    timer.set_timeout(state.core[0].recovery.timer, longest_trip_s(state))


@inner
def note_lateness(state: State, due_at: float, now: float) -> None:
    """Learn how late the driver looks at its clock: it wanted to at `due_at`, and does so only now."""
    timer.note_lateness(state.core[0].recovery.timer, due_at, now)
    timer.set_timeout(state.core[0].recovery.timer, longest_trip_s(state))


@inner
def round_s(state: State, slot: Slot) -> Scalar:
    """Return how long a slot's round is expected to take if nobody repeats anything."""
    core = state.core[0]
    clock = core.recovery.timer
    known_s = clock.smoothed_s[slot.way] if clock.smoothed_s[slot.way] > 0.0 else clock.timeout_s
    here = state.paths[slot.tree + slot.way]
    return min(known_s, expected_s(here.trips, core.member.workers, core.member.in_tree))


@inner
def _patience_s(state: State, slot: Slot) -> Scalar:
    """Return how long after a slot's last transmission no result of later frames makes it repeat."""
    asks_later = state.core[0].member.asks_later == 1 and is_busy(state.paths[slot.tree].trips)
    return losses.patience_s(round_s(state, slot), slot.repeats, slot.held != 0, asks_later)


@inner
def repeat_overtaken(state: State, now: float) -> None:
    """Repeat what results of later frames have passed, unless the transport still has it."""
    core = state.core[0]
    recovery, progress = core.recovery, core.progress
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
        order = state.paths[slot.tree + slot.way].order
        if state.last_sent[index] > min(order.passed - recovery.threshold, core.sending.consumed):
            continue
        if slot.operation > recovery.common or now < slot.sent_at + _patience_s(state, slot):
            continue
        here = state.paths[slot.tree + slot.passes]
        if not pacing.is_time(here.pace, now):
            recovery.paced_at = min(recovery.paced_at, here.pace.next_at)
            recovery.searched = recovery.arrived - progress.waiting
            return
        if state.last_sent[index] > order.overtaken - recovery.threshold:
            waited_s, expected = now - slot.sent_at, round_s(state, slot)
            if not losses.takes_credit(recovery.doubt, waited_s, expected, core.member.workers, core.member.in_tree):
                continue
        else:
            at = losses.overtaken_at(order, slot.sent_at)
            if now < at:
                recovery.reordered_at = min(recovery.reordered_at, at)
                continue
        if ACTIONS[slot.phase, Event.OVERTAKEN] == Action.REPEAT:
            if slot.held == 0:
                note_loss(state, slot.tree + slot.passes, state.last_sent[index])
            _repeat(state, index, now)
            progress.counts[Count.OVERTAKEN] += 1
    recovery.doubt.credit = 0


@inner
def _suspect_flight(state: State, path: int) -> None:
    """Note that all in flight over a path may be lost, unless the transport still has some of it."""
    sending, here = state.core[0].sending, state.paths[path]
    sequence: Scalar = sending.sequence if sending.consumed >= sending.sequence else np.int64(0)
    flight.note_timeout(here.flight, sequence, here.in_flight)


@inner
def _repeat_newest(state: State, path: int, now: float) -> None:
    """Repeat the newest contribution of a flight that may be lost."""
    suspected = state.paths[path].flight
    newest: Scalar = np.int64(-1)
    for index in range(state.slots.size):
        is_newer = newest < 0 or state.last_sent[index] > state.last_sent[newest]
        if state.last_sent[index] <= suspected.suspect and is_newer and _is_on(state.slots[index], path):
            newest = np.int64(index)
    has_newest = newest >= 0 and _probe_slot(state, newest, now) == 1
    sequence: Scalar = state.core[0].sending.sequence if has_newest else np.int64(0)
    flight.note_newest(suspected, sequence)


@inner
def _first_in_turn(state: State, bound: int, path: int) -> Scalar:
    """Return the slot whose turn is first among those sent over a path, no later than `bound`; -1: there is none.

    Slots whose contribution the switch holds do not count.  Ranks whose windows hold other slots all have this one.
    """
    first: Scalar = np.int64(-1)
    for index in range(state.slots.size):
        slot = state.slots[index]
        may_be = state.last_sent[index] <= bound and slot.held == 0 and _is_on(slot, path)
        if may_be and (first < 0 or turn_of(state, index) < turn_of(state, first)):
            first = np.int64(index)
    return first


@inner
def _repeat_more(state: State, path: int, now: float) -> None:
    """Repeat some contributions of a flight that is lost, in their turn."""
    suspected = state.paths[path].flight
    for _ in range(flight.REPEATED):
        first = _first_in_turn(state, suspected.suspect, path)
        if first < 0 or _probe_slot(state, first, now) == 0:
            suspected.suspect = 0
            break


@inner
def _probe_slot(state: State, index: int, now: float) -> int:
    """Repeat a slot's contribution as a probe; return how many that makes."""
    if ACTIONS[state.slots[index].phase, Event.TIMED_OUT] != Action.REPEAT:
        return 0
    _repeat(state, index, now)
    state.core[0].progress.counts[Count.PROBES] += 1
    return 1


@inner
def _is_on(slot: Slot, path: int) -> bool:
    """Tell whether a slot's contribution goes over a path; `EVERY`: over any."""
    return bool(path == EVERY or slot.tree + slot.passes == path)


@inner
def _oldest(state: State, bound: int, with_held: int, path: int) -> Scalar:
    """Return the slot that has waited longest since it was sent over a path, no later than `bound`; -1: there is none.

    Slots whose contribution the switch holds count only where `with_held` is 1.
    """
    first, oldest = bound, np.int64(-1)
    for index in range(state.slots.size):
        may_count = with_held == 1 or state.slots[index].held == 0
        if state.last_sent[index] <= first and may_count and _is_on(state.slots[index], path):
            first, oldest = state.last_sent[index], np.int64(index)
    return oldest


@inner
def probe(state: State, now: float) -> None:
    """Repeat some frames when nothing has come for a time-out, over any path or over one of several."""
    core = state.core[0]
    recovery = core.recovery
    if core.progress.waiting == 0:
        return
    if now < probe_at(core):
        if now >= recovery.look_at:
            _look_at_paths(state, now)
        return
    for path in range(MOST_TREES):
        _suspect_flight(state, path)
    _repeat_some(state, EVERY, timer.probes(recovery.timer, core.progress.waiting), now)
    for tree in range(MOST_TREES):
        if recovery.timer.backoffs > 0 and state.paths[tree].withheld > 0:
            send_withheld(state, tree, now)
    recovery.timer.backoffs += 1
    recovery.timer.silent += 1
    recovery.moved_at = now


@inner
def _look_at_paths(state: State, now: float) -> None:
    """Repeat what flights and silence have repeated in between time-outs, and say when to look again."""
    look_at: Scalar = np.inf
    for path in range(MOST_TREES):
        here = state.paths[path]
        if flight.awaits_newest(here.flight):
            if now >= here.flight.newest_at:
                _repeat_newest(state, path, now)
            else:
                look_at = min(look_at, here.flight.newest_at)
        if 0 < here.slots < state.slots.size and here.window.is_open == 0:
            look_at = min(look_at, _look_at_silence(state, path, now))
    state.core[0].recovery.look_at = look_at


@inner
def _look_at_silence(state: State, path: int, now: float) -> Scalar:
    """Repeat some first contributions over a tree that is silent, though results come over others.

    Return when to look again.
    """
    clock, here = state.core[0].recovery.timer, state.paths[path]
    if here.in_flight == 0:
        silence.note_heard(here.silence, now)
        return now + clock.initial_s
    if now >= here.silence.heard_at + timer.silence_s(clock, here.silence.times):
        silence.note_timeout(here.silence, now)
        _suspect_flight(state, path)
        _repeat_some(state, path, timer.probes(clock, here.in_flight), now)
    return here.silence.heard_at + timer.silence_s(clock, here.silence.times)


@inner
def _repeat_some(state: State, path: int, count: Scalar, now: float) -> None:
    """Repeat so many contributions that went over a path, or over any: first those that the switch may not have.

    The oldest, so that each is repeated in time; then those whose turn is first: several workers may have to repeat the
    same one, and so all look for it in the same order.
    """
    core = state.core[0]
    bound, left = min(core.sending.sequence, core.sending.consumed), count
    oldest = _oldest(state, bound, 0, path)
    if oldest >= 0:
        left -= _probe_slot(state, oldest, now)
    while left > 0:
        first = _first_in_turn(state, bound, path)
        if first < 0 or _probe_slot(state, first, now) == 0:
            break
        left -= 1
    while left > 0:
        oldest = _oldest(state, bound, 1, path)
        if oldest < 0 or _probe_slot(state, oldest, now) == 0:
            break
        left -= 1
