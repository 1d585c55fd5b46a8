"""Loss recovery: what is repeated to a switch that was restarted, and how long a round is expected to take."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.network import Impairment, LinkConditions
from switchsum_host.engine.state import Count, Outstanding
from switchsum_protocol.frame import AT, Flag, Kind
from switchsum_protocol.wire import parse_frame
from switchsum_switch.wires.headers import LOWER_BYTES, udp_checksum

from .alone import Alone, read
from .known import Known

SLOTS = 5


@pytest.mark.parametrize("blocks", range(SLOTS + 1))
@pytest.mark.parametrize("operations", [1, 2])
def test_each_slot_that_has_contributed_repeats_its_last_round_and_no_other(blocks: int, operations: int) -> None:
    config = ClusterConfig(workers=2, window_slots=SLOTS)
    cluster = Cluster(config)
    for _ in range(operations):
        cluster.allreduce([np.ones(blocks * config.lanes_per_frame, np.float32) for _ in range(2)])
    engine = cluster.workers[0].engine
    sequences = np.asarray(engine.state.rows)["sequence"].reshape(SLOTS, 2)
    contributed = sequences.max(axis=1) > 0
    assert np.count_nonzero(contributed) >= min(blocks, SLOTS)
    engine.restarted(cluster.clock.now_s)
    engine.poll(cluster.clock.now_s)
    outstanding = np.asarray(engine.state.slots)["outstanding"]
    np.testing.assert_array_equal(outstanding, np.where(contributed, Outstanding.UNANSWERED, Outstanding.NOTHING))
    repeated = engine.outgoing()[0]
    last = 2 * np.arange(SLOTS) + sequences.argmax(axis=1)
    # A row that was repeated has the newest sequence of its slot, as before.
    assert sorted(np.asarray(repeated).tolist()) == last[contributed].tolist()
    assert engine.counts[Count.RECALLED] == np.count_nonzero(contributed)


def test_the_estimate_follows_the_time_that_a_round_takes() -> None:
    cluster = Cluster(ClusterConfig(workers=2, window_slots=1))
    known = Known(cluster.workers[0].engine)
    for delay_s in (0.004, 0.001):
        for worker in cluster.workers:
            way = Impairment(delay_s=delay_s)
            cluster.network.connect(worker.port, LinkConditions(up=way, down=way), worker.take)
        cluster.allreduce([np.ones(100 * cluster.config.lanes_per_frame, np.float32) for _ in range(2)])
        smoothed_s, variation_s = known["smoothed_s"], known["variation_s"]
        assert smoothed_s == pytest.approx(2 * delay_s, rel=0.05)
        assert 0 <= variation_s < 0.1 * delay_s
        assert known["timeout_s"] == pytest.approx(smoothed_s + 4 * variation_s)


def test_what_waits_for_a_late_rank_is_not_taken_for_slow_rounds() -> None:
    cluster = Cluster(ClusterConfig(workers=2, window_slots=1))
    known = Known(cluster.workers[0].engine)
    values = np.ones(20 * cluster.config.lanes_per_frame, np.float32)
    cluster.allreduce([values.copy(), values.copy()])
    expected = float(known["smoothed_s"])
    cluster.submit(0, values[:1])
    with pytest.raises(TimeoutError):
        cluster.run(lambda: False, limit_s=1.0)
    cluster.submit(1, values[1:2])
    cluster.run(lambda: not any(worker.engine.under_way for worker in cluster.workers))
    assert known["smoothed_s"] == pytest.approx(expected, rel=0.1)


def test_what_is_sent_is_counted_in_frames_and_bytes() -> None:
    bad = Impairment(loss=0.1)
    cluster = Cluster(ClusterConfig(workers=2, window_slots=2), links=LinkConditions(up=bad, down=bad), seed=3)
    first = cluster.workers[0]
    sent: list[int] = []
    send = cluster.network.send

    def note(port: int, frame: bytes) -> None:
        if port == first.port:
            sent.append(len(frame))
        send(port, frame)

    cluster.network.send = note  # type: ignore[method-assign]
    cluster.allreduce([np.ones(40 * cluster.config.lanes_per_frame, np.float32) for _ in range(2)])
    counts = first.engine.counts
    assert (counts[Count.FRAMES_SENT], counts[Count.BYTES_SENT]) == (len(sent), sum(sent))
    assert counts[Count.PROBES] + counts[Count.OVERTAKEN] > 0
    assert len(set(sent)) > 1  # some frames have lanes, and others none


def test_a_repeat_is_what_was_packed_but_for_flags_and_checksum() -> None:
    bad = Impairment(loss=0.3)
    config = ClusterConfig(workers=2, window_slots=2, checksum=True)
    cluster = Cluster(config, links=LinkConditions(up=bad, down=bad), seed=3)
    sent: list[bytes] = []
    send = cluster.network.send

    def note(port: int, frame: bytes) -> None:
        if port == cluster.workers[0].port:
            sent.append(frame)
        send(port, frame)

    cluster.network.send = note  # type: ignore[method-assign]
    cluster.allreduce([np.ones(40 * config.lanes_per_frame, np.float32) for _ in range(2)])
    packed: dict[tuple[int, int], bytes] = {}
    repeats = []
    for frame in sent:
        packet = parse_frame(frame)
        assert packet is not None
        slot, number, flags = packet.header.slot, packet.header.number, packet.header.flags
        assert frame[LOWER_BYTES - 2 : LOWER_BYTES] == udp_checksum(frame).to_bytes(2), "the switch drops it as broken"
        first = packed.setdefault((slot, number), frame)
        if first is frame:
            assert not flags & (Flag.REPEAT | Flag.RECALL)
            continue
        is_over = (slot, number + 1) in packed
        assert flags & (Flag.REPEAT | Flag.RECALL) == (Flag.REPEAT | Flag.RECALL if is_over else Flag.REPEAT)
        repeats.append(is_over)
        plain = bytearray(frame)
        plain[LOWER_BYTES - 2 : LOWER_BYTES] = first[LOWER_BYTES - 2 : LOWER_BYTES]
        plain[AT.flags] = first[AT.flags]
        assert plain == first
    assert set(repeats) == {True, False}


def test_two_frames_are_repeated_after_a_time_out_however_long_the_silence() -> None:
    """The one that has waited longest is among them, so that each has its turn."""
    slots = 16
    cluster = Cluster(ClusterConfig(workers=2, window_slots=slots, first_window=slots))
    engine = cluster.workers[0].engine
    cluster.submit(0, np.ones(slots * cluster.config.lanes_per_frame, np.int32))

    def hand_over() -> list[int]:
        rows = engine.outgoing()[0].tolist()
        engine.sent(len(rows))
        return [row // 2 for row in rows]

    def probe() -> list[int]:
        engine.consumed(int(engine.counts[Count.FRAMES_SENT]))
        engine.poll(engine.wake_at)
        return hand_over()

    assert hand_over() == list(range(slots))
    assert probe() == [0], "one as long as no round was timed"
    assert [probe() for _ in range(4)] == [[slot, 0] for slot in range(1, 5)]
    found = [probe() for _ in range(4)]
    assert [frames[0] for frames in found] == [5, 6, 7, 8]
    assert max(len(frames) for frames in found) <= 16, "pauses are long now, and all that waits has its turn in two"
    assert engine.counts[Count.PROBES] == 1 + 4 * 2 + sum(map(len, found))
    engine.poll(engine.wake_at)
    assert not {*hand_over()} & {*found[-1]}, "a row is written, or sent once more, while the transport still has it"


def test_after_a_time_out_what_is_first_in_its_turn_is_repeated_with_the_oldest() -> None:
    """The first slot has gone on to a later block; ranks whose windows hold other blocks all have the one in front."""
    alone = Alone(ClusterConfig(workers=1, window_slots=4, first_window=4))
    alone.submit(np.ones(8 * alone.config.lanes_per_frame, np.int32))

    def blocks() -> list[int]:
        return [read(frame).header.block for frame in sent]

    sent = alone.frames()
    assert blocks() == [0, 1, 2, 3]
    for answer in alone.answers(sent[0]):
        alone.feed(answer, 1e-3)
    sent = alone.frames()
    assert blocks() == [4]
    for repeated in ([1, 2], [3, 1], [4, 1]):
        alone.engine.poll(alone.engine.wake_at)
        sent = alone.frames()
        assert blocks() == repeated


def test_results_of_a_worker_that_is_behind_are_no_evidence_of_losses() -> None:
    """In a round that it repeated, and in the next one, its results pass those of frames that wait for it."""
    cluster = Cluster(ClusterConfig(workers=2, window_slots=1))
    known, slot = Known(cluster.workers[0].engine), np.asarray(cluster.workers[0].engine.state.slots)[0]
    rounds: dict[int, tuple[bool, int]] = {}
    send = cluster.network.send

    def note(port: int, frame: bytes) -> None:
        is_first = port == cluster.workers[0].port and int(slot["number"]) not in rounds
        if is_first:
            rounds[int(slot["number"])] = bool(slot["late"]), int(known["overtaken"])
        if not (is_first and int(slot["number"]) == 5):
            send(port, frame)

    cluster.network.send = note  # type: ignore[method-assign]
    cluster.allreduce([np.ones(10 * cluster.config.lanes_per_frame, np.float32) for _ in range(2)])
    assert [number for number, (late, _) in rounds.items() if late] == [6]
    evidence = {number: overtaken for number, (_, overtaken) in rounds.items()}
    assert evidence[4] < evidence[5] == evidence[6] == evidence[7] < evidence[8] < evidence[9]


def test_a_result_ends_the_silence_of_slots_that_go_on_waiting() -> None:
    cluster = Cluster(ClusterConfig(workers=2, window_slots=2))
    worker = cluster.workers[0]
    for rank, blocks in ((0, 2), (1, 2)):
        cluster.submit(rank, np.ones(blocks * cluster.config.lanes_per_frame, np.int32))
    send = cluster.network.send
    first_slot = cluster.config.first_slot

    def lose_the_second_slot(port: int, frame: bytes) -> None:
        if frame[AT.slot : AT.slot + 4] == first_slot.to_bytes(4):
            send(port, frame)

    cluster.network.send = lose_the_second_slot  # type: ignore[method-assign]
    cluster.run(lambda: worker.engine.counts[Count.ROUNDS] == 1)
    core = np.asarray(worker.engine.state.core)[0]
    assert core["progress"]["waiting"] == 1
    assert worker.engine.wake_at == pytest.approx(cluster.clock.now_s + Known(worker.engine)["timeout_s"])


WAY = LinkConditions(up=Impairment(delay_s=0.05), down=Impairment(delay_s=0.05))
"""As slow as on a busy machine: pauses between probes become as long as they may."""


def busy_cluster(slots: int) -> tuple[Cluster, bytes]:
    """Return two workers that have had one operation, and how frames name the slot of the next one's first block."""
    cluster = Cluster(ClusterConfig(workers=2, window_slots=slots, first_window=slots), links=WAY)
    cluster.allreduce([np.ones(slots // 2 * cluster.config.lanes_per_frame, np.int32) for _ in range(2)])
    return cluster, (cluster.config.first_slot + slots // 2).to_bytes(4)


def submit(cluster: Cluster, rank: int, blocks: int) -> None:
    cluster.submit(rank, np.ones(blocks * cluster.config.lanes_per_frame, np.int32))


def test_a_contribution_that_is_lost_again_does_not_wait_for_slots_that_a_late_rank_holds_up() -> None:
    """Rank 0 is in the next operation already, which rank 1 begins after this one: all slots but one wait for it."""
    slots, copies_lost = 64, 3
    cluster, slot = busy_cluster(slots)
    send = cluster.network.send
    lost: list[bytes] = []

    def lose_some(port: int, frame: bytes) -> None:
        if port == cluster.workers[0].port and frame[AT.slot : AT.slot + 4] == slot and len(lost) < copies_lost:
            lost.append(frame)
        else:
            send(port, frame)

    cluster.network.send = lose_some  # type: ignore[method-assign]
    began = cluster.clock.now_s
    for rank, blocks in ((0, 1), (0, slots - 1), (1, 1)):
        submit(cluster, rank, blocks)
    cluster.run(lambda: cluster.workers[1].engine.under_way == 0, limit_s=100.0)
    assert len(lost) == copies_lost
    assert cluster.clock.now_s - began < 2.0


def test_a_result_that_is_lost_comes_again_among_many_slots_that_a_late_rank_holds_up() -> None:
    slots, copies_lost = 64, 2
    cluster, slot = busy_cluster(slots)
    first = cluster.workers[0]
    lost: list[bytes] = []

    def lose_some(frame: bytes) -> None:
        is_result = frame[AT.kind] == Kind.RESULT and frame[AT.slot : AT.slot + 4] == slot
        if is_result and len(lost) < copies_lost:
            lost.append(frame)
        else:
            first.take(frame)

    cluster.network.connect(first.port, WAY, lose_some)
    submit(cluster, 0, 1)
    submit(cluster, 0, slots - 1)
    with pytest.raises(TimeoutError):
        cluster.run(lambda: False, limit_s=4.0)
    assert np.asarray(first.engine.state.slots)["held"].all()
    began = cluster.clock.now_s
    submit(cluster, 1, 1)
    cluster.run(lambda: first.engine.under_way == 1, limit_s=100.0)
    assert len(lost) == copies_lost
    assert cluster.clock.now_s - began < 6.0


def test_what_passes_an_operation_that_a_late_rank_has_not_begun_is_no_evidence_of_losses() -> None:
    """Results of the operation before it, which goes on meanwhile, pass its frames."""
    near = Impairment(delay_s=0.0005)
    cluster = Cluster(ClusterConfig(workers=2, window_slots=64), links=LinkConditions(up=near, down=near))
    for blocks in (300, 20, 20, 20):
        submit(cluster, 0, blocks)
    for blocks in (300, 20, 20, 20):
        submit(cluster, 1, blocks)
        with pytest.raises(TimeoutError):
            cluster.run(lambda: False, limit_s=0.003)
    cluster.run(lambda: not any(worker.engine.under_way for worker in cluster.workers))
    assert [worker.engine.counts[Count.OVERTAKEN] for worker in cluster.workers] == [0, 0]


def overtaken(
    slots: int,
    now: float,
    *,
    consumed: int | None = None,
    held: int = 0,
    repeats: int = 0,
    asks_later: int = 0,
    in_tree: int = 0,
    recent_s: float = math.inf,
    **core: float,
) -> tuple[list[int], int]:
    """Return which slots are repeated at `now` by an engine of which all wait, sent at 0 in the order of slots.

    `core` has what the engine knows; the frame of slot `i` was the one of sequence `i + 1`.
    """
    cluster = Cluster(ClusterConfig(workers=2, window_slots=slots, first_window=slots))
    engine = cluster.workers[0].engine
    cluster.submit(0, np.ones(slots * cluster.config.lanes_per_frame, np.int32))
    engine.sent(slots)
    engine.consumed(slots if consumed is None else consumed)
    of_slots, of_engine = np.asarray(engine.state.slots), np.asarray(engine.state.core)
    of_slots["held"], of_slots["repeats"], of_slots["sent_at"] = held, repeats, 0.0
    of_engine["member"]["asks_later"], of_engine["member"]["in_tree"] = asks_later, in_tree
    known = Known(engine)
    facts = {"passed": 8, "overtaken": 8, "arrived": 8, "searched": 0, "common": 0, "smoothed_s": 0.25, "timeout_s": 8}
    # A driver that looks late at its clock does not pace what it repeats.
    known.learn(least_s=0.125, recent_s=recent_s, granularity_s=1.0, **(facts | core | {"moved_at": now}))
    engine.poll(now)
    repeated = [row // 2 for row in engine.outgoing()[0].tolist()]
    assert engine.counts[Count.OVERTAKEN] == len(repeated)
    assert engine.counts[Count.PROBES] == known["credit"] == 0
    return repeated, int(known["searched"])


@pytest.mark.parametrize(
    ("facts", "repeated"),
    [
        ({}, 5),  # results of three later frames have come
        ({"passed": 7, "overtaken": 7}, 4),
        ({"consumed": 3}, 3),  # the transport still reads the others
        ({"common": -1}, 0),  # a late rank has not begun the operation
        ({"overtaken": 0}, 0),  # only results of a worker that is out of step have passed
        ({"overtaken": 5}, 2),
        ({"overtaken": 0, "credit": 1}, 1),
        ({"overtaken": 0, "credit": 2}, 2),
        ({"overtaken": 5, "credit": 1}, 3),
        ({"overtaken": 0, "credit": 7}, 5),  # and what is left of it is forgotten
    ],
)
def test_what_results_of_later_frames_have_passed_is_repeated(facts: dict[str, Any], repeated: int) -> None:
    assert overtaken(16, 0.25, **facts)[0] == list(range(repeated))


@pytest.mark.parametrize(("in_tree", "waited_s", "repeated"), [(0, 0.75, 5), (0, 0.734375, 0), (1, 8.0, 0)])
def test_what_has_waited_for_three_rounds_at_a_single_switch_is_lost_whatever_has_passed_it(
    in_tree: int, waited_s: float, repeated: int
) -> None:
    """Where a third of all frames is lost, hardly a result is evidence.  In a tree repeats are passed on."""
    assert overtaken(16, waited_s, overtaken=0, in_tree=in_tree)[0] == list(range(repeated))


@pytest.mark.parametrize(
    ("repeats", "smoothed_s", "timeout_s", "pause_s"),
    [(0, 0.25, 8.0, 0.25), (2, 0.25, 8.0, 1.0), (6, 0.25, 8.0, 16.0), (10, 0.25, 8.0, 16.0), (1, 0.0, 0.5, 1.0)],
)
def test_what_the_switch_holds_is_asked_for_less_and_less_often(
    repeats: int, smoothed_s: float, timeout_s: float, pause_s: float
) -> None:
    facts: dict[str, Any] = {"held": 1, "repeats": repeats, "smoothed_s": smoothed_s, "timeout_s": timeout_s}
    assert overtaken(16, pause_s * 0.96875, **facts)[0] == []
    assert overtaken(16, pause_s, **facts)[0] == list(range(5))
    assert overtaken(16, pause_s * 0.96875, **facts | {"held": 0})[0] == list(range(5)), "nobody says that it waits"


@pytest.mark.parametrize(
    ("facts", "pause_s"), [({}, 0.5), ({"held": 1}, 0.75), ({"repeats": 1}, 0.0), ({"held": 1, "repeats": 1}, 0.5)]
)
def test_where_frames_queue_one_member_of_a_switch_that_passes_repeats_on_asks_before_the_others(
    facts: dict[str, Any], pause_s: float
) -> None:
    facts |= {"asks_later": 1, "recent_s": 0.3}
    if pause_s > 0:
        assert overtaken(16, pause_s * 0.96875, **facts)[0] == []
    assert overtaken(16, max(pause_s, 0.001), **facts)[0] == list(range(5))


@pytest.mark.parametrize("recent_s", [0.0, 0.125, 0.25, math.inf])
def test_where_no_queue_stands_all_members_of_a_switch_ask_at_once(recent_s: float) -> None:
    assert overtaken(16, 0.001, asks_later=1, recent_s=recent_s)[0] == list(range(5))


def test_which_member_of_a_switch_asks_first() -> None:
    def asks_later(rank: int, workers: int, at_leaf: int) -> int:
        cluster = Cluster(ClusterConfig(workers=workers, at_leaf=at_leaf))
        return int(np.asarray(cluster.workers[rank].engine.state.core)[0]["member"]["asks_later"])

    assert [asks_later(rank, 4, 2) for rank in range(4)] == [0, 1, 0, 1]
    assert [asks_later(rank, 2, 0) for rank in range(2)] == [0, 0]  # one switch: nothing is passed on


@pytest.mark.parametrize(
    ("slots", "searched", "is_searched"), [(40, 104, False), (40, 103, True), (32, 108, True), (1, 108, True)]
)
def test_many_slots_are_searched_once_an_eighth_of_their_results_has_come(
    slots: int, searched: int, is_searched: bool
) -> None:
    repeated, last = overtaken(slots, 1.0, passed=108, overtaken=108, arrived=108, searched=searched)
    assert (repeated, last) == ((list(range(slots)), 108) if is_searched else ([], searched))


NOW = 10.0


def two_slots(**core: Any) -> tuple[Alone, list[bytes]]:
    """Return a worker of two whose two slots wait for their first round, and their contributions."""
    job = Alone(ClusterConfig(workers=2, window_slots=2))
    job.submit(np.ones(4 * job.config.lanes_per_frame, np.int32))
    if "waiting" in core:
        job.core["progress"]["waiting"] = core.pop("waiting")
    Known(job.engine).learn(**core)
    return job, job.frames()


def test_the_first_result_of_an_operation_forgets_what_results_have_passed() -> None:
    job, frames = two_slots(passed=50, overtaken=50, common=-1)
    Known(job.engine, path=1).learn(passed=50, overtaken=50)
    job.feed(job.result(frames[0]))
    known, other = Known(job.engine), Known(job.engine, path=1)
    assert known["passed"] == known["overtaken"] == 1
    assert other["passed"] == other["overtaken"] == 0
    assert known["common"] == 0
    known.learn(passed=50, overtaken=50)
    job.feed(job.result(frames[1]))
    assert known["passed"] == known["overtaken"] == 50


@pytest.mark.parametrize(
    ("repeats", "late", "waiting", "evident_at", "credit"),
    [
        (0, 0, 9, 0.0, 0),  # this one is evidence itself
        (1, 0, 9, 0.0, 2),  # there has been none for longer than a round
        (0, 1, 9, 0.0, 2),
        (1, 0, 9, NOW - 1.5, 2),
        (1, 0, 9, NOW - 1.0, 0),
        (1, 0, 9, NOW - 0.5, 0),
        (1, 0, 8, NOW - 0.5, 2),  # few wait
    ],
)
def test_results_of_repeats_are_evidence_where_there_is_no_better(
    repeats: int, late: int, waiting: int, evident_at: float, credit: int
) -> None:
    job, frames = two_slots(waiting=waiting, evident_at=evident_at, smoothed_s=1.0, first_passed=9)
    job.slot["repeats"], job.slot["late"] = repeats, late
    job.feed(job.result(frames[0]), NOW)
    assert Known(job.engine)["credit"] == credit
    assert Known(job.engine)["evident_at"] == (evident_at if repeats or late else NOW)


@pytest.mark.parametrize(
    ("first_passed", "elapsed_s", "credit", "passed"),
    [
        (0, 0.004, 0, 0),  # in the order of first transmissions: the path may be slow, and the repeat was needless
        (9, 0.004, 2, 1),  # what was sent later has brought a result: this one was lost
        (0, 0.011, 2, 1),  # it comes just when the answer to the repeat is due
        (0, 0.016, 0, 0),
    ],
)
def test_the_result_of_a_repeat_that_comes_in_order_is_no_evidence_of_losses(
    first_passed: int, elapsed_s: float, credit: int, passed: int
) -> None:
    """Otherwise each result on a path that has become slow makes two others be repeated, and so on for ever."""
    job, frames = two_slots(first_passed=first_passed, passed=0, common=0)
    Known(job.engine).learn(least_s=0.01, recent_s=0.001)
    job.slot["repeats"], job.slot["sent_at"] = 1, NOW - elapsed_s
    job.feed(job.result(frames[0]), NOW)
    assert Known(job.engine)["credit"] == credit
    assert Known(job.engine)["passed"] == passed


def test_one_result_of_a_batch_is_timed() -> None:
    job, frames = two_slots()
    slots = np.asarray(job.engine.state.slots)
    slots["named"], slots["sent_at"] = 1, [NOW - 0.01, NOW - 0.02]
    for frame in frames:
        job.feed(job.result(frame), NOW)
        assert Known(job.engine)["smoothed_s"] == pytest.approx(0.01)


def test_the_time_out_is_that_of_rfc_6298() -> None:
    job = Alone(ClusterConfig(workers=1, window_slots=1))
    job.submit(np.ones(5 * job.config.lanes_per_frame, np.int32))
    smoothed = variation = 0.0
    now, rounds = 0.0, [0.01, 0.03, 0.002, 0.02]
    job.feed(job.result(job.frames()[0]), now)  # the first round of a column is not timed
    for number, elapsed in enumerate(rounds):
        [frame] = job.frames()
        now += elapsed
        job.feed(job.result(frame), now)
        if number == 0:
            smoothed, variation = elapsed, elapsed / 2
        else:
            variation += (abs(smoothed - elapsed) - variation) / 4
            smoothed += (elapsed - smoothed) / 8
        assert Known(job.engine)["timeout_s"] == pytest.approx(smoothed + 4 * variation)


def answer(job: Alone, frame: bytes, after_s: float, *, held: int = 0, repeats: int = 1) -> None:
    """Let the switch say `held` to a contribution to the first slot, some time after its last repeat."""
    job.slot["repeats"], job.slot["held"], job.slot["sent_at"] = repeats, held, NOW - after_s
    assert job.feed(job.result(frame, kind=Kind.HELD, flags=Flag(0), bitmap=1), NOW) == Count.HELD


def test_time_outs_do_not_follow_rounds_that_wait_for_others_time_outs() -> None:
    """Rounds of ten seconds wait for somebody's repeat: the shortest of a round trip takes a hundredth of one."""
    job, frames = two_slots(smoothed_s=10.0, variation_s=5.0, timeout_s=0.25, timeout_max_s=100.0, granularity_s=0.0)
    Known(job.engine).learn(least_s=0.01, recent_s=0.01, usual_s=0.02)
    np.asarray(job.engine.state.slots)["sent_at"] = NOW - 10.0
    job.feed(job.result(frames[0]), NOW)
    assert Known(job.engine)["timeout_s"] == pytest.approx(3 * 0.02), "of round trips lately the longest counts"


@pytest.mark.parametrize(
    ("held", "repeats", "usual_s"),
    [(0, 1, (0.08 + 0.002) / 2), (1, 1, 0.08), (0, 2, 0.08), (2, 1, 0.08)],
)
def test_an_answer_says_how_long_rounds_take_if_it_is_that_to_the_only_repeat(
    held: int, repeats: int, usual_s: float
) -> None:
    job, [frame, _] = two_slots()
    Known(job.engine).learn(least_s=0.001, recent_s=0.001, usual_s=0.08)
    answer(job, frame, 0.002, held=held, repeats=repeats)
    assert Known(job.engine)["usual_s"] == pytest.approx(usual_s)


def test_in_a_tree_an_answer_does_not_make_time_outs_shorter() -> None:
    job, [frame, _] = two_slots()
    job.core["member"]["in_tree"] = 1
    Known(job.engine).learn(least_s=0.001, recent_s=0.001, usual_s=0.08)
    answer(job, frame, 0.002)
    assert Known(job.engine)["usual_s"] == pytest.approx(0.08)


@pytest.mark.parametrize(("in_tree", "backoffs"), [(0, 0), (1, 3)])
def test_a_doubled_time_out_stays_in_a_tree_until_a_contribution_that_was_sent_once_has_its_result(
    in_tree: int, backoffs: int
) -> None:
    job, frames = two_slots(backoffs=3)
    job.core["member"]["in_tree"] = in_tree
    Known(job.engine).learn(least_s=0.001, recent_s=0.001)
    slots = np.asarray(job.engine.state.slots)
    slots["repeats"][0], slots["sent_at"] = 1, NOW - 0.5
    job.feed(job.result(frames[0]), NOW)
    assert Known(job.engine)["backoffs"] == backoffs
    job.feed(job.result(frames[1]), NOW)
    assert Known(job.engine)["backoffs"] == 0


@pytest.mark.parametrize(("after_s", "spurious"), [(0.004, 1), (0.006, 0)])
def test_a_result_that_comes_sooner_than_an_answer_shows_that_a_repeat_was_needless(
    after_s: float, spurious: int
) -> None:
    job, frames = two_slots(backoffs=3)
    job.core["member"]["in_tree"] = 1
    Known(job.engine).learn(least_s=0.01, recent_s=0.01)
    job.slot["repeats"], job.slot["sent_at"] = 1, NOW - after_s
    job.feed(job.result(frames[0]), NOW)
    assert Known(job.engine)["spurious"] == spurious
    assert Known(job.engine)["backoffs"] == 0, "in either case the next time-out is long enough"
    assert Known(job.engine)["reorder_s"] == pytest.approx(spurious * 0.01 / 4)


@pytest.mark.parametrize("slots", [8, 64])
def test_the_reordering_window_ends_by_itself_where_no_later_result_comes(slots: int) -> None:
    """The contributions of a small sum leave together: else each that is lost would wait for a time-out."""
    job = Alone(ClusterConfig(workers=2, window_slots=slots, first_window=slots))
    job.submit(np.ones(slots * job.config.lanes_per_frame, np.int32))
    frames = job.frames()
    Known(job.engine).learn(reorder_s=0.01)
    for frame in frames[4:]:
        job.feed(job.result(frame), 0.015)
    job.engine.poll(0.015)
    assert job.frames() == []
    assert job.engine.wake_at == pytest.approx(0.015 + 0.01)
    job.engine.poll(job.engine.wake_at)
    assert [read(frame).header.block for frame in job.frames()] == [0, 1, 2, 3]
    assert job.engine.counts[Count.OVERTAKEN] == 4
    assert job.engine.wake_at > 0.015 + 0.01, "each waits for its repeat now"


@pytest.mark.parametrize("in_tree", [0, 1])
@pytest.mark.parametrize(("settled", "recent_s"), [(0, 0.01 * 9 / 8), (4, 10.0)])
def test_rounds_that_may_have_waited_for_a_late_rank_make_the_estimate_longer_bit_by_bit(
    in_tree: int, settled: int, recent_s: float
) -> None:
    job, frames = two_slots(smoothed_s=0.01)
    job.core["member"]["in_tree"] = in_tree
    Known(job.engine).learn(least_s=0.01, recent_s=0.01, shortest_s=10.0, timed=4, settled=settled, ends=0)
    np.asarray(job.engine.state.slots)["sent_at"] = NOW - 10.0
    job.feed(job.result(frames[0]), NOW)
    assert Known(job.engine)["recent_s"] == pytest.approx(recent_s)


@pytest.mark.parametrize(("shortest_s", "recent_s"), [(math.inf, 0.03), (0.02, 0.02)])
def test_an_answer_that_takes_longer_than_rounds_says_how_long_they_are_now(shortest_s: float, recent_s: float) -> None:
    job, [frame, _] = two_slots()
    Known(job.engine).learn(least_s=0.01, recent_s=0.01, shortest_s=shortest_s)
    answer(job, frame, 0.03)
    assert Known(job.engine)["recent_s"] == pytest.approx(recent_s)


def test_rounds_that_wait_for_others_do_not_put_repeats_off() -> None:
    """What the switch holds is asked for again after the shortest round's time, doubled."""
    facts: dict[str, Any] = {"held": 1, "repeats": 1, "smoothed_s": 0.25, "recent_s": 0.03125}
    pause_s = 2 * 0.03125
    assert overtaken(16, pause_s * 0.96875, **facts)[0] == []
    assert overtaken(16, pause_s, **facts)[0] == list(range(5))
    assert overtaken(16, 0.4375, **facts | {"recent_s": 1.0})[0] == [], "rounds are shorter than that"
    assert overtaken(16, 0.5, **facts | {"recent_s": 1.0})[0] == list(range(5))


@pytest.mark.parametrize(("ago_s", "credit"), [(0.5, 2), (0.25, 0)])
def test_evidence_is_old_after_a_rounds_time(ago_s: float, credit: int) -> None:
    job, frames = two_slots(waiting=9, evident_at=NOW - ago_s, smoothed_s=1.0, first_passed=9)
    Known(job.engine).learn(least_s=0.375, recent_s=0.375)
    job.slot["repeats"], job.slot["sent_at"] = 1, NOW - 1.0
    job.feed(job.result(frames[0]), NOW)
    assert Known(job.engine)["credit"] == credit


def test_each_repeat_on_weak_evidence_waits_twice_as_long_after_a_few() -> None:
    """Needless repeats would otherwise go on for ever, for the result of each is such evidence for the next."""
    facts: dict[str, Any] = {"overtaken": 0, "credit": 1, "smoothed_s": 0.25}
    assert overtaken(16, 0.001, **facts, doubts=4)[0] == [0]
    assert overtaken(16, 0.734375, **facts, doubts=6, in_tree=1)[0] == []
    assert overtaken(16, 0.75, **facts, doubts=6, in_tree=1)[0] == [0]


def test_a_restarted_switch_is_told_twice_as_late_each_time() -> None:
    job = Alone(ClusterConfig(workers=1, window_slots=2))
    for _ in range(2):
        job.add(np.ones(8, np.int32))
    slots = np.asarray(job.engine.state.slots)
    job.engine.restarted(NOW)
    slots["outstanding"][0], Known(job.engine)["answered"], Known(job.engine)["unanswered"] = (
        Outstanding.ANSWERED,
        1,
        1,
    )
    pause_s, now = float(Known(job.engine)["timeout_s"]), NOW
    for _ in range(3):
        for _ in range(3):  # the first of these alone finds something to do
            job.engine.poll(now)
        assert len(job.frames()) == 2, "an answer may be older than the restart"
        assert job.engine.wake_at == pytest.approx(now + pause_s)
        now, pause_s = now + pause_s, 2 * pause_s


def test_a_slot_that_waits_has_repeated_both_rounds_when_it_is_told_of_a_restart() -> None:
    job, frames = two_slots()
    job.feed(job.result(frames[0]))
    job.frames()
    job.engine.restarted(NOW)
    assert np.asarray(job.engine.state.slots)["repeats"].tolist() == [2, 2]
    assert len(job.frames()) == 3, "one slot has contributed to two rounds, the other to one"


def probed(held: set[int], **core: Any) -> list[int]:
    """Return which of six slots, all of which wait, a worker repeats when a time-out is over."""
    job = Alone(ClusterConfig(workers=2, window_slots=6))
    job.submit(np.ones(6 * job.config.lanes_per_frame, np.int32))
    job.frames()
    np.asarray(job.engine.state.slots)["held"] = [slot in held for slot in range(6)]
    Known(job.engine).learn(**{"moved_at": NOW, "timeout_s": 0.02, "smoothed_s": 0.001, **core})
    job.engine.poll(job.engine.wake_at)
    return [read(frame).header.slot - job.config.first_slot for frame in job.frames()]


@pytest.mark.parametrize(
    ("held", "core", "repeated"),
    [
        (set(), {}, [0, 1]),
        ({0}, {}, [1, 2]),  # the switch may lack these
        ({0, 1, 2, 3, 4}, {}, [5, 0]),
        (set(range(6)), {}, [0, 1]),
        (set(range(6)), {"silent": 6}, [0, 1]),
        (set(range(6)), {"timeout_s": 1.0, "timeout_max_s": 1.0}, [0, 1, 2]),  # all have had their turn in two seconds
        (set(), {"smoothed_s": 0.0}, [0]),  # no round was timed
    ],
)
def test_probes_are_few_and_what_the_switch_holds_comes_last(
    held: set[int], core: dict[str, float], repeated: list[int]
) -> None:
    assert probed(held, **core) == repeated


@pytest.mark.parametrize(
    ("options", "own_s", "timeout_s", "tries"),
    [
        ({"timeout_s": 10.0}, None, 1.0, 7),
        ({"timeout_s": 10.0}, None, 8.0, 4),  # the path may be that slow, and four are still several
        ({"timeout_s": 1800.0, "switch_timeout_s": 20.0}, None, 1.0, 7),
        ({"timeout_s": 1800.0, "switch_timeout_s": 20.0}, 4.0, 0.5, 7),
        ({"timeout_s": 1800.0, "switch_timeout_s": 20.0}, math.inf, 1.0, 7),
    ],
)
def test_a_call_has_several_tries_before_its_time_out(
    options: dict[str, float], own_s: float | None, timeout_s: float, tries: int
) -> None:
    job = Alone(ClusterConfig(workers=2, window_slots=2, **options))  # type: ignore[arg-type]
    job.submit(np.ones(2 * job.config.lanes_per_frame, np.int32))
    job.frames()
    if own_s is not None:
        job.engine.limit(0, own_s)
    Known(job.engine).learn(backoffs=3, timeout_s=timeout_s, timeout_max_s=8.0, moved_at=NOW, smoothed_s=timeout_s)
    call_s = min(own_s or math.inf, options["timeout_s"], options.get("switch_timeout_s", math.inf))
    found = 0
    while job.engine.wake_at <= NOW + call_s:
        job.engine.poll(job.engine.wake_at)
        found += bool(job.frames())
    assert found >= tries


def test_pauses_are_as_before_once_a_call_with_a_short_time_out_is_over() -> None:
    job = Alone(ClusterConfig(workers=1, window_slots=1))
    for _ in range(2):
        before = float(Known(job.engine)["pause_max_s"])
        job.submit(np.ones(1, np.int32))
        job.engine.limit(job.engine.submitted - 1, 0.5)
        assert Known(job.engine)["pause_max_s"] == 0.5 / 8
        for frame in job.frames():
            for answer_to in job.answers(frame):
                job.feed(answer_to)
        job.engine.note(0.0)
        job.engine.events().clear()
        assert Known(job.engine)["pause_max_s"] == before


@pytest.mark.parametrize("recalls", [False, True])
def test_the_answer_to_a_round_that_is_recalled_says_nothing_of_a_repeat_long_before(recalls: bool) -> None:
    """Else what a call has waited for somebody counts as a round trip, and time-outs grow to that."""
    job = Alone(ClusterConfig(workers=2, window_slots=1))
    job.submit(np.ones(2 * job.config.lanes_per_frame, np.int32))
    [first] = job.frames()
    job.engine.poll(job.engine.wake_at)  # nobody knows yet that this repeat is needless
    assert len(job.frames()) == 1
    job.feed(job.result(first), 0.5)
    job.frames()
    if recalls:
        for _ in range(2):
            job.engine.poll(job.engine.wake_at)
            job.frames()
        assert job.engine.counts[Count.RECALLED] == 1
    assert job.feed(job.result(first), 3.0) == Count.DUPLICATE
    assert np.isinf(Known(job.engine)["answer_s"]) == recalls
