"""What links do to frames: when they arrive, which of them do, and what switch and queue look like meanwhile."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from switchsum_lab.simulation import world
from switchsum_lab.simulation.conditions import CableConditions, parse_rate, parse_size, parse_time
from switchsum_lab.simulation.network import Network
from switchsum_lab.simulation.records import Stop
from switchsum_lab.simulation.world import Storm
from switchsum_protocol.errors import UsageError
from switchsum_switch.api.switch import Switch
from switchsum_switch.wires.headers import internet_checksum

from .rig import FORWARDER, QUICK, frame, numbers, pair

FIRST_HOP_S = 125 * 8 / 1e12 + 1e-6


def test_a_frame_takes_as_long_as_rates_and_delays_say() -> None:
    network, first, second = pair(replace(QUICK, overhead_bytes=24))
    first.send(frame(7), at=1e-3)
    assert network.run() is Stop.IDLE
    [(at_s, data)] = second.received
    assert data == frame(7)
    assert at_s == pytest.approx(1e-3 + FIRST_HOP_S + (125 + 24) * 8 / 1e9 + 1e-6, abs=2e-12)


def test_frames_wait_for_one_another_and_the_queue_says_how_many() -> None:
    network, first, second = pair(QUICK)
    network.links["s1->h2"].watch()
    for number in range(5):
        first.send(frame(number), at=0.0)
    network.run(until=FIRST_HOP_S + 1.5e-6)
    link = network.links["s1->h2"]
    assert (link.queued, link.queued_bytes) == (4, 500)  # one has left, one is being sent
    assert network.switches["s1"].clock.now_us() == 3
    network.run()
    arrivals = [at_s for at_s, _ in second.received]
    assert [round((later - sooner) * 1e9) for sooner, later in itertools.pairwise(arrivals)] == [1000] * 4
    assert (link.queued, link.most_queued, link.most_queued_bytes) == (0, 5, 625)
    depths = [depth for _, depth in link.depth()]
    assert max(depths) == 625
    assert depths[-1] == 0


def test_of_many_events_the_earliest_comes_first_and_of_equal_ones_that_which_was_there_first() -> None:
    network, first, second = pair(QUICK)
    draw = random.Random(1)
    times = [draw.randrange(40) * 50e-6 for _ in range(300)]
    for number, at in enumerate(times[:200]):
        first.send(frame(number), at=at)
    network.run(until=1e-3)  # others are added while the next few are known already
    for number, at in enumerate(times[200:], 200):
        first.send(frame(number), at=1e-3 + at)
    network.run()
    due = [*times[:200], *(1e-3 + at for at in times[200:])]
    assert numbers(second) == sorted(range(300), key=lambda number: (round(due[number] * 1e6), number))


@pytest.mark.parametrize("limit", [{"queue_frames": 3}, {"queue_bytes": 3 * 125}])
def test_a_full_queue_drops_what_comes_last(limit: dict[str, Any]) -> None:
    network, first, second = pair(replace(QUICK, **limit))
    for number in range(6):
        first.send(frame(number), at=0.0)
    first.send(frame(9), at=10e-6)
    network.run()
    assert numbers(second) == [0, 1, 2, 9]
    assert network.links["s1->h2"].dropped == 3


def test_chosen_frames_are_lost_and_an_outage_loses_what_is_on_the_cable() -> None:
    network, first, second = pair(replace(QUICK, lost_frames=(1, 3), outages=((20e-6, 30e-6),)))
    for number in range(10):
        first.send(frame(number), at=number * 5e-6)
    network.run()
    # Frame 4 is on its way at 22 us and frame 5 at 27 us.
    assert numbers(second) == [0, 2, 6, 7, 8, 9]
    assert network.links["s1->h2"].lost == 4


@pytest.mark.parametrize(("conditions", "share"), [({"loss": 0.1}, 0.1), ({"burst": (0.02, 5.0)}, 0.0909)])
def test_losses_are_as_many_as_was_said_and_the_seed_says_which(conditions: dict[str, Any], share: float) -> None:
    def run(seed: int) -> tuple[list[int], str]:
        network, first, second = pair(replace(QUICK, **conditions), seed=seed)
        for number in range(3000):
            first.send(frame(number), at=number * 2e-6)
        network.run()
        return numbers(second), network.digest

    came, digest = run(1)
    assert 1 - len(came) / 3000 == pytest.approx(share, rel=0.25)
    assert run(1) == (came, digest)
    assert run(2)[0] != came
    lost = sorted({*range(3000)} - {*came})
    runs = 1 + sum(later > sooner + 1 for sooner, later in itertools.pairwise(lost))
    assert (len(lost) / runs > 3) == ("burst" in conditions)


def test_late_frames_are_overtaken_and_none_is_lost() -> None:
    network, first, second = pair(replace(QUICK, late=0.2, late_by_s=20e-6))
    for number in range(500):
        first.send(frame(number), at=number * 2e-6)
    network.run()
    came = numbers(second)
    assert sorted(came) == [*range(500)]
    assert came != sorted(came)


def test_frames_that_meet_a_long_queue_are_marked_and_their_checksum_stays_right() -> None:
    network, first, second = pair(replace(QUICK, mark_bytes=250))
    for number in range(6):
        first.send(frame(number), at=0.0)
    network.run()
    assert [data[15] & 3 for _, data in second.received] == [2, 2, 2, 3, 3, 3]
    assert all(internet_checksum(data[14:34]) == 0 for _, data in second.received)
    assert network.links["s1->h2"].marked == 3


def test_a_token_bucket_lets_so_many_bytes_go_at_once() -> None:
    network, first, second = pair(replace(QUICK, rate_bps=1e8, bucket_bytes=500, burst_rate_bps=1e9))
    for number in range(10):
        first.send(frame(number), at=0.0)
    network.run()
    gaps = [at_s for at_s, _ in second.received]
    apart = [round((later - sooner) * 1e6) for sooner, later in itertools.pairwise(gaps)]
    assert apart[:4] == [1, 1, 1, 1]
    assert apart[-4:] == [10, 10, 10, 10]


def test_switches_that_flood_each_other_end_with_the_reason() -> None:
    network = Network(frame_bytes=256, most_bytes=8 << 20)
    for name in ("s1", "s2"):
        switch = network.switch(name, Switch.from_file(FORWARDER))
        switch.tables["stations"].set_default("flood", group=1)
        switch.multicast.set(1, [(2, 0), (3, 0), (4, 0)])
    host = network.host("h1")
    network.link("h1", "s1", port=1)
    for port in (2, 3, 4):
        network.link("s1", "s2", port=port, other_port=port)
    host.send(frame())
    with pytest.raises(Storm, match="do switches flood each other"):
        network.run(until=1.0)


def test_frames_that_go_round_between_switches_end_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "EVENTS_AT_ONCE", 1000)
    network = Network()
    for name, port in (("s1", 2), ("s2", 3)):
        switch = network.switch(name, Switch.from_file(FORWARDER))
        switch.tables["stations"].set_default("forward", port=port)
    host = network.host("h1")
    network.link("h1", "s1", port=1)
    for port in (2, 3):
        network.link("s1", "s2", port=port, other_port=port)
    host.send(frame())
    network.run(until=0.1)  # what has an end of its own may go on
    with pytest.raises(Storm, match="do frames circulate"):
        network.run()


@pytest.mark.parametrize("open_ports", [False, True])
def test_a_program_that_wants_a_port_that_is_not_there_is_named(open_ports: bool) -> None:
    network = Network(open_ports=open_ports)
    switch = network.switch("s1", Switch.from_file(FORWARDER))
    switch.tables["stations"].set_default("forward", port=7)
    host = network.host("h1")
    network.link("h1", "s1", port=1)
    host.send(frame())
    if open_ports:
        network.run()
    else:
        with pytest.raises(UsageError, match="s1 sends frames to port 7, which has no link"):
            network.run()
    assert network.discarded("s1").no_link == 1
    network.host("h2")
    with pytest.raises(UsageError, match="there is no port 512"):
        network.link("h2", "s1", port=512)


def test_what_is_no_link_is_refused() -> None:
    wrong: Any
    for wrong in ({"rate_bps": 0.0}, {"loss": 1.5}, {"queue_frames": 0}, {"outages": ((2.0, 1.0),)}):
        with pytest.raises(UsageError):
            CableConditions(**wrong)
    for parse, text in ((parse_rate, "0gbit"), (parse_rate, "fast"), (parse_time, "-1us"), (parse_size, "0MB")):
        with pytest.raises(UsageError):
            parse(text)
    assert (parse_rate("10gbit"), parse_size("1.5MB")) == (1e10, 1_500_000)
    assert parse_time("5us") == pytest.approx(5e-6)
    network, first, _ = pair(QUICK)
    network.run(until=1e-3)
    for wrong in (lambda: first.send(b""), lambda: first.send(frame(), at=0.0), lambda: network.run(until=0.0)):
        with pytest.raises(UsageError):
            wrong()
    with pytest.raises(UsageError, match="port 1 of s1 has a link already"):
        network.link("s1", "h2", port=1)
