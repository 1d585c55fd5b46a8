"""The congestion window: marks make it smaller, other results larger; what is withheld is sent in order, all of it."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.network import Impairment, LinkConditions
from switchsum_host.engine.engine import Engine
from switchsum_host.engine.policies.round_trips import is_deep
from switchsum_host.engine.state import Count, Phase
from switchsum_protocol.frame import AT, Flag
from switchsum_protocol.slot_rules import ReferenceSwitch
from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES, internet_checksum

from .alone import Alone, read
from .known import Known

SLOTS = 8
CONFIG = ClusterConfig(workers=1, window_slots=SLOTS)


def marked(frame: bytes) -> bytes:
    """Return a frame as a queue leaves it that has grown: "congestion experienced", and IPv4's checksum after it."""
    ip = bytearray(frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES])
    ip[1] |= 3
    ip[10:12] = bytes(2)
    ip[10:12] = internet_checksum(bytes(ip)).to_bytes(2)
    return frame[:ETHERNET_BYTES] + ip + frame[ETHERNET_BYTES + IPV4_BYTES :]


def paths(engine: Engine) -> Any:
    return np.asarray(engine.state.paths)


def limits(alone: Alone) -> Any:
    """Return the windows of all paths."""
    return paths(alone.engine)["window"]["limit"]


def answer(alone: Alone, frames: list[bytes], *, flags: int = 0) -> list[bytes]:
    """Let an engine have the results of contributions; return what it sends then."""
    for frame in frames:
        header = read(frame).header
        [result] = alone.answers(frame)
        changed = bytearray(result)
        changed[AT.flags] |= flags
        assert header.kind
        alone.feed(bytes(changed))
    return alone.frames()


def test_a_mark_halves_what_is_in_flight_and_the_rest_is_sent_in_order() -> None:
    alone = Alone(CONFIG)
    alone.submit(np.ones(6 * SLOTS * CONFIG.lanes_per_frame, np.int32))
    first = alone.frames()
    assert [read(frame).header.block for frame in first] == list(range(SLOTS))
    assert limits(alone)[0] == SLOTS
    # Of a round trip with one mark: no frame until half of those in flight have their results.
    sent = answer(alone, first[:1], flags=Flag.MARK)
    assert (sent, limits(alone)[0]) == ([], SLOTS / 2)
    assert alone.engine.counts[Count.MARKED] == 1
    blocks = []
    for frame in first[1:]:
        blocks += [read(one).header.block for one in answer(alone, [frame], flags=Flag.MARK)]
    assert limits(alone)[0] == SLOTS / 2, "these marks are of contributions from before the cut"
    assert blocks == list(range(SLOTS, SLOTS + SLOTS // 2)), "first come, first served"
    assert alone.engine.counts[Count.WITHHELD] == SLOTS
    assert paths(alone.engine)["in_flight"][0] == SLOTS // 2
    phases = np.asarray(alone.engine.state.slots)["phase"]
    assert np.count_nonzero(phases == Phase.WAITING) == SLOTS // 2
    assert alone.core["progress"]["blocked"] == 0, "a loop need not look again and again for a row"


def test_results_without_marks_let_it_grow_by_one_in_a_round_trip_up_to_the_slots() -> None:
    alone = Alone(CONFIG)
    alone.submit(np.ones(40 * SLOTS * CONFIG.lanes_per_frame, np.int32))
    waiting = alone.frames()
    waiting = waiting[1:] + answer(alone, waiting[:1], flags=Flag.MARK)
    sizes = []
    for _ in range(30 * SLOTS):
        waiting = waiting[1:] + answer(alone, waiting[:1])
        sizes.append(len(waiting))
        assert len(waiting) <= max(limits(alone)[0], SLOTS - 1)
    least = min(sizes)
    assert SLOTS // 2 <= least <= SLOTS // 2 + 1
    assert sizes[-1] == SLOTS == limits(alone)[0]
    after = sizes[sizes.index(least) :]
    assert {then - size for size, then in itertools.pairwise(after)} == {0, 1}, "one more, again and again"
    growth = [at for at, (size, then) in enumerate(itertools.pairwise(after)) if then > size]
    assert all(SLOTS // 2 <= then - at <= SLOTS + 1 for at, then in itertools.pairwise(growth))


def test_a_mark_on_the_way_down_counts_as_well() -> None:
    alone = Alone(CONFIG)
    alone.submit(np.ones(6 * SLOTS * CONFIG.lanes_per_frame, np.int32))
    first = alone.frames()
    [result] = alone.answers(first[0])
    assert result[ETHERNET_BYTES + 1] & 3 == 2, "the switch says that it may be marked"
    alone.feed(marked(result))
    assert (limits(alone)[0], alone.engine.counts[Count.MARKED]) == (SLOTS / 2, 1)


def test_contributions_say_that_they_may_be_marked() -> None:
    alone = Alone(CONFIG)
    alone.submit(np.ones(CONFIG.lanes_per_frame, np.int32))
    [frame] = alone.frames()
    assert frame[ETHERNET_BYTES + 1] & 3 == 2
    assert internet_checksum(frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES]) == 0


def test_a_tree_that_is_congested_leaves_the_others_their_windows() -> None:
    alone = Alone(CONFIG, trees=(4, 4))
    alone.submit(np.ones(4 * SLOTS * CONFIG.lanes_per_frame, np.int32))
    np.testing.assert_array_equal(limits(alone)[:3], [4, 4, 0])
    first = alone.frames()
    assert [read(frame).header.tree for frame in first] == [0] * 4 + [1] * 4
    for frame in first[4:]:
        alone.feed(alone.result(frame, flags=Flag.PAYLOAD | Flag.MARK))
    np.testing.assert_array_equal(limits(alone)[:3], [4, 2, 0])
    assert len(alone.frames()) == 2
    np.testing.assert_array_equal(paths(alone.engine)["in_flight"][:3], [4, 2, 0])


class MarkingSwitch(ReferenceSwitch):
    """A switch on whose way to the members each so manieth result is marked."""

    every = 1
    results = 0

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        found = super().process(port, frame)
        self.results += len(found)
        return [(port, marked(one)) for port, one in found] if self.results % self.every == 0 else found


def sums(switch: ReferenceSwitch, config: ClusterConfig, loss: float) -> list[npt.NDArray[np.float32]]:
    bad = Impairment(loss=loss, jitter_s=1e-4)
    cluster = Cluster(config, links=LinkConditions(up=bad, down=bad), seed=5, switch=switch)
    random = np.random.default_rng(3)
    arrays = [random.standard_normal(60 * config.lanes_per_frame, dtype=np.float32) for _ in range(config.workers)]
    for array in arrays:
        array[: 20 * config.lanes_per_frame] *= random.random(20 * config.lanes_per_frame) < 0.01
    cluster.allreduce(arrays)
    cluster.allreduce(arrays)
    for worker in cluster.workers:
        core, here = np.asarray(worker.engine.state.core)[0], paths(worker.engine)
        assert here["in_flight"].sum() == here["withheld"].sum() == 0
        assert (core["progress"]["waiting"], core["progress"]["blocked"]) == (0, 0)
    return arrays


@pytest.mark.parametrize(("every", "loss", "reading_s"), [(1, 0.0, 0.0), (3, 0.0, 0.0), (1, 0.2, 0.0), (3, 0.2, 1e-3)])
def test_sums_are_bit_for_bit_what_they_are_without_marks(every: int, loss: float, reading_s: float) -> None:
    """Also where losses change the order in which ranks get results, and rows are free late."""
    config = ClusterConfig(workers=3, window_slots=SLOTS, reading_s=reading_s)
    plain = sums(ReferenceSwitch(lanes_per_frame=config.lanes_per_frame), config, 0.0)
    switch = MarkingSwitch(lanes_per_frame=config.lanes_per_frame)
    switch.every = every
    for found, expected in zip(sums(switch, config, loss), plain, strict=True):
        assert found.tobytes() == expected.tobytes() == plain[0].tobytes()


def test_a_late_rank_is_no_congestion() -> None:
    cluster = Cluster(ClusterConfig(workers=2, window_slots=SLOTS))
    values = np.ones(40 * cluster.config.lanes_per_frame, np.int32)
    cluster.submit(0, values.copy())
    with pytest.raises(TimeoutError):
        cluster.run(lambda: False, limit_s=1.0)
    cluster.submit(1, values.copy())
    cluster.run(lambda: not any(worker.engine.under_way for worker in cluster.workers))
    for worker in cluster.workers:
        assert paths(worker.engine)["window"]["limit"][0] == SLOTS
        assert worker.engine.counts[Count.MARKED] == worker.engine.counts[Count.WITHHELD] == 0
    assert cluster.workers[0].engine.counts[Count.HELD] > 0


def test_congestion_is_no_late_rank() -> None:
    """Ranks with other windows than the rest, as where only the way to one of them is marked, hold nobody up."""
    cluster = Cluster(ClusterConfig(workers=2, window_slots=SLOTS))
    paths(cluster.workers[0].engine)["window"]["limit"][0] = 1.0
    values = [np.ones(40 * cluster.config.lanes_per_frame, np.int32) for _ in range(2)]
    cluster.allreduce(values)
    assert all((array == 2).all() for array in values)
    assert sum(int(worker.engine.counts[Count.PROBES]) for worker in cluster.workers) == 0


def test_slots_that_get_another_link_take_their_windows_along() -> None:
    """A link that has died gives its slots to the other one; nothing that was withheld is forgotten."""
    alone = Alone(CONFIG)
    half = SLOTS // 2
    alone.engine.share_out(np.repeat([0, 1], half))
    here = paths(alone.engine)
    assert (list(here["window"]["limit"][:2]), list(here["slots"][:2])) == ([half, half], [half, half])
    alone.submit(np.ones(2 * SLOTS * CONFIG.lanes_per_frame, np.int32))
    first = alone.frames()
    assert (len(first), list(here["in_flight"][:2])) == (SLOTS, [half, half])
    for frame in first[half:]:
        alone.feed(alone.result(frame, flags=Flag.PAYLOAD | Flag.MARK))
    sent = alone.frames()
    assert here["withheld"][1] == half - len(sent) > 0
    alone.engine.share_out(np.zeros(SLOTS, np.int64))
    assert (list(here["window"]["limit"][:2]), list(here["in_flight"][:2])) == ([SLOTS, 0], [SLOTS, 0])
    alone.engine.poll(0.0)
    late = alone.frames()
    assert [read(frame).header.block for frame in sent + late] == list(range(SLOTS + half, 2 * SLOTS))


def test_the_shortest_time_of_a_round_trip_says_whether_queues_stand() -> None:
    """Others are long where somebody's frame was lost."""
    alone = Alone(CONFIG)
    alone.submit(np.ones(6 * SLOTS * CONFIG.lanes_per_frame, np.int32))
    frames, sent_at, recent_s = alone.frames(), [0.0] * SLOTS, []
    for took_s in ([1.0, 3.0] + [5.0] * 6, [7.0] * 3 + [1.5] * 5, [9.0] * SLOTS):
        following = []
        for place, frame in enumerate(frames):
            sent_at[place] += took_s[place]
            [result] = alone.answers(frame)
            alone.feed(result, sent_at[place])
            following += alone.frames()
            recent_s.append(float(Known(alone.engine)["recent_s"]))
        frames = following
    # The first result of a round trip ends the one before, if enough of its rounds were timed.
    assert recent_s == [math.inf] * SLOTS + [1.0] * SLOTS + [1.5] * SLOTS
    assert float(Known(alone.engine)["least_s"]) == 1.0


@pytest.mark.parametrize(
    ("dropped", "came", "loss_cut", "limit"),
    [
        (200, 8, 0.3, 2.25),  # with this result nine have come in four round trips
        (200, 40, 0.3, SLOTS),  # five repeats for a result: as many as where 30 % is lost
        (200, 8, 0.0, SLOTS),  # the application has chosen a window of its own
    ],
)
def test_a_window_that_is_nearly_all_lost_becomes_as_small_as_what_comes_of_it(
    dropped: int, came: int, loss_cut: float, limit: float
) -> None:
    """A queue of a few frames does not show in the time of rounds."""
    alone = Alone(CONFIG)
    alone.submit(np.ones(6 * SLOTS * CONFIG.lanes_per_frame, np.int32))
    frames = alone.frames()
    answer(alone, frames[:1])
    here = paths(alone.engine)["window"]
    here["trips"], here["dropped_lately"], here["came_lately"], here["loss_cut"] = 3, dropped, came, loss_cut
    here["ends"], here["has_started"] = 0, 0
    assert answer(alone, frames[1:2]) == [] or limit == SLOTS
    assert here["limit"][0] == pytest.approx(limit, abs=1.0)
    assert here["has_started"][0] == (limit < SLOTS)
    assert here["dropped_lately"][0] == here["came_lately"][0] == here["trips"][0] == 0


@pytest.mark.parametrize(
    ("least_s", "waits_s", "is_own"),
    [
        (0.0, 0.0101, True),
        (0.0, 0.0099, False),
        (0.001, 0.0179, False),  # a repeat takes a few rounds
        (0.001, 0.0181, True),
        (0.1, 0.449, False),
        (0.1, 0.451, True),  # on a far path 50 ms beside a few rounds are a queue
    ],
)
def test_a_queue_is_deep_if_no_repeat_takes_as_long(least_s: float, waits_s: float, is_own: bool) -> None:
    here: Any = SimpleNamespace(least_s=least_s, in_order_s=waits_s)
    assert is_deep.py_func(here) == is_own  # type: ignore[attr-defined]
