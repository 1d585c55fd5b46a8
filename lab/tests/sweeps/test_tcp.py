"""TCP under a ring: windows as the RFCs have them, what finds lost segments, and sums that are right."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from switchsum_lab.protocols.seam import Array, Peer, Steps, load
from switchsum_lab.protocols.tcp import Cubic, Receiver, Reno, Sender
from switchsum_lab.protocols.virtual import VirtualRun
from switchsum_lab.simulation.conditions import CableConditions

RINGS = ("ring_reno", "ring_cubic")
ROUND_S = 1e-3


class Path:
    """A sender and a receiver, a round trip of a millisecond apart: what goes in a round comes before the next."""

    def __init__(self, sender: Sender, loses: set[int]) -> None:
        self.sender, self.receiver, self.now = sender, Receiver(), 0.0
        self.loses = loses
        """Transmissions that are lost."""
        self.came: list[bytes] = []

    def go(self, segments: list[tuple[int, int]]) -> None:
        """Let segments arrive, and their acknowledgements come back."""
        self.now += ROUND_S
        for number, transmission in segments:
            if transmission not in self.loses:
                self.came += self.receiver.take(number, str(number).encode())
                self.sender.answered(self.receiver.first, self.receiver.ranges(), transmission, self.now)

    def finish(self) -> None:
        """Send everything."""
        for _ in range(10_000):
            if segments := self.sender.sendable(self.now):
                self.go(segments)
            elif self.sender.is_done:
                return
            else:
                assert self.sender.until is not None
                self.now = max(self.now, self.sender.until)
                self.go(self.sender.tick(self.now))
        raise AssertionError("it never ends")


def sent(segments: int, loses: set[int], growth: Reno | Cubic | None = None) -> Path:
    """Return a path over which so many segments have gone."""
    path = Path(Sender(growth or Reno()), loses)
    path.sender.added = segments
    path.finish()
    assert path.came == [str(number).encode() for number in range(segments)]
    return path


def test_a_window_begins_with_ten_segments_and_doubles_in_each_round_trip() -> None:
    path = Path(Sender(Reno()), set())
    path.sender.added = 1000
    sizes = []
    for _ in range(4):
        segments = path.sender.sendable(path.now)
        sizes.append(len(segments))
        path.go(segments)
    assert sizes == [10, 20, 40, 80]


@pytest.mark.parametrize(("growth", "share"), [(Reno(), 0.5), (Cubic(), 0.7)])
def test_a_loss_is_found_by_three_later_segments_and_makes_the_window_smaller_once(
    growth: Reno | Cubic, share: float
) -> None:
    path = Path(Sender(growth), {11, 12})
    path.sender.added = 1000
    path.go(path.sender.sendable(path.now))
    path.go(path.sender.sendable(path.now))  # 20 segments, the first two of which are lost
    window = path.sender.window
    assert window == pytest.approx(share * 20)
    repeated = path.sender.sendable(path.now)
    assert [number for number, _ in repeated][:2] == [10, 11]
    assert path.sender.repeats == 2
    path.finish()
    assert path.sender.timeouts == 0


def test_reno_grows_by_a_segment_in_each_round_trip_and_cubic_back_to_where_it_was() -> None:
    assert Reno().grown(10.0, 10, 0.0, ROUND_S) == 11.0
    cubic = Cubic()
    window, now, seen = cubic.lost(100.0), 0.0, []
    assert window == 70.0
    while now < 8.0:
        window = cubic.grown(window, round(window), now, 0.1)
        seen.append(window)
        now += 0.1
    reaches_s = (30 / 0.4) ** (1 / 3)  # RFC 9438: K
    assert seen[int(10 * reaches_s)] == pytest.approx(100, rel=0.05)
    assert max(seen[int(10 * reaches_s) - 8 : int(10 * reaches_s) + 8]) < 108  # a plateau there
    assert seen[-1] > 110
    assert all(later >= sooner for sooner, later in pairwise(seen))


def test_the_last_segments_are_probed_after_two_round_trips_and_a_single_one_waits_for_its_time_out() -> None:
    several = sent(30, {28, 29, 30})  # the probe shows that the others are lost
    assert several.sender.timeouts == 0
    assert several.now < 10 * ROUND_S
    alone = sent(30, {30})
    assert alone.sender.timeouts == 1
    assert 0.2 < alone.now < 0.22


def test_a_time_out_doubles_until_a_round_trip_is_measured() -> None:
    path = sent(30, {28, 29, 30, 31, 32})  # the last three, the probe, and what the first time-out repeats
    assert path.sender.timeouts == 2
    assert 0.6 < path.now < 0.65


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("growth", [Reno, Cubic])
def test_everything_comes_in_order_whatever_is_lost(seed: int, growth: type[Reno] | type[Cubic]) -> None:
    random = Random(seed)
    share = random.choice([0.01, 0.1, 0.4])
    path = sent(300, {number for number in range(3000) if random.random() < share}, growth())
    assert path.sender.is_done
    assert path.sender.repeats < 3 * 300


def test_a_receiver_says_what_it_has_behind_a_gap_the_latest_first() -> None:
    receiver = Receiver()
    assert receiver.take(0, b"a") == [b"a"]
    for number in (2, 3, 6, 8, 10):
        assert receiver.take(number, b"x") == []
    assert receiver.ranges() == [(10, 11), (8, 9), (6, 7)]
    assert receiver.take(1, b"b") == [b"b", b"x", b"x"]
    assert receiver.first == 4
    assert receiver.take(2, b"again") == []


def own(arrays: list[Array], peer: Peer, rank: int) -> Steps:
    return peer.allreduce(arrays[rank])


@pytest.mark.parametrize("name", RINGS)
def test_loss_costs_a_ring_over_tcp_many_times_its_time_where_round_trips_are_long(name: str) -> None:
    took = {}
    for loss in (0.0, 0.01):
        protocol = load(name)
        world = protocol.world(workers=4, lanes=protocol.lanes, slots=16, seed=1)
        run = VirtualRun(protocol, world, CableConditions(rate_bps=10e9, delay_s=25e-6, loss=loss))
        arrays = [np.full(100_000, rank + 1, np.float32) for rank in range(4)]
        took[loss] = run.together(partial(own, arrays)) or 0.0
        np.testing.assert_array_equal(arrays, np.full((4, 100_000), 10, np.float32))
        assert (run.statistics()["repeats"] > 0) == (loss > 0)
    assert took[0.01] > 2 * took[0.0] > 0
