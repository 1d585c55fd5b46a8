"""Several links of one worker: their names, how slots are dealt, and when one is taken for dead."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.timing import patience
from switchsum_host.links.names import NamedLink, is_several, split_links
from switchsum_host.links.several import NOWHERE, dealt, dealt_without, open_several
from switchsum_host.links.watching import FORGIVEN_S, LOOK_S, MOST_STRIKES, PROOF_S, RAIL_SILENT_S, SILENT_S, LinkWatch
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import FRAME_BYTES, Header, Kind
from switchsum_protocol.member_rpc import ReadyReply
from switchsum_protocol.wire import build_frame, parse_frame
from switchsum_switch.wires.headers import Address


def test_a_text_names_one_link_or_several_with_their_rates() -> None:
    assert not is_several("shm:/tmp/a,b@c")
    assert is_several("packet:eth0,packet:eth1")
    assert split_links("packet:eth0@200, packet:eth1@100.5") == [
        NamedLink(name="packet:eth0", mbit=200.0),
        NamedLink(name="packet:eth1", mbit=100.5),
    ]
    assert split_links("udp:10.0.0.1:5,packet:eth1") == [
        NamedLink(name="udp:10.0.0.1:5"),
        NamedLink(name="packet:eth1"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("packet:eth0,packet:eth0", "given twice"),
        ("packet:eth0@0,packet:eth1@1", "rate is a number"),
        ("packet:eth0@fast,packet:eth1@1", "rate is a number"),
        ("packet:eth0@nan,packet:eth1@1", "rate is a number"),
        ("packet:eth0@1,packet:eth1", "give a rate to all"),
        ("packet:eth0,shm:a", "of the kinds udp and packet"),
        (",".join(f"packet:e{i}" for i in range(9)), "1 to 8 links, not 9"),
        ("packet:eth0@200,eth1@100", "written with its kind"),
    ],
)
def test_several_links_that_no_worker_can_have_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        split_links(text)


def test_slots_are_dealt_evenly_and_in_proportion() -> None:
    links = dealt(12, [200.0, 100.0])
    assert np.bincount(links).tolist() == [8, 4]
    assert all(np.bincount(links[at : at + 3]).tolist() == [2, 1] for at in range(9))
    assert np.bincount(dealt(256, [1.0, 0.0, 3.0])).tolist() == [64, 0, 192]


def test_no_slot_changes_its_link_but_those_of_a_link_that_is_down() -> None:
    rates = [4.0, 2.0, 1.0, 1.0]
    everything = [set(some) for count in range(4) for some in itertools.combinations(range(4), count)]
    for before, after in itertools.product(everything, everything):
        if before <= after:
            old, new = dealt_without(64, rates, before), dealt_without(64, rates, after)
            stay = ~np.isin(old, list(after))
            assert (old[stay] == new[stay]).all()
            assert not np.isin(new, list(after)).any()
    assert np.bincount(dealt_without(64, rates, {3})).tolist() == [37, 18, 9]
    assert np.bincount(dealt_without(64, rates, {0, 3})).tolist() == [0, 42, 22]


class Watched:
    """A watch over links of a worker on a clock of its own."""

    def __init__(self, *names: str) -> None:
        self.runs: dict[str, bool] = {}
        self.longest: dict[str, int] = {}
        self.links_down: Sequence[int] = ()
        self.reported: list[int] = []
        self.mirrors = [NOWHERE] * len(names)
        self.links: Any = SimpleNamespace(
            links=names,
            names=names,
            max_frame_bytes=1114,
            down=frozenset(),
            rates=[2.0, 1.0, 1.0][: len(names)],
            has_rails=False,
            sent=np.zeros(len(names), np.int64),
            came=np.zeros(len(names), np.int64),
            mirror=self.mirrors.__setitem__,
            do_without=lambda down: setattr(self.links, "down", frozenset(down)),
        )
        self.now = 100.0
        links: Any = self.links
        self.watch = LinkWatch(links, self, lambda interface: self.runs.get(interface, True), self.longest_of)

    def longest_of(self, interface: str) -> int:
        return self.longest.get(interface, 1514)

    def tell_down(self, link: int, reason: str) -> None:
        self.reported.append(link)

    def passes(self, seconds: float, *, sent: tuple[int, ...], came: tuple[int, ...]) -> None:
        """Let time pass, in which frames go and come at each look."""
        for _ in range(round(seconds / LOOK_S)):
            self.links.sent += sent
            self.links.came += came
            self.now += LOOK_S * 1.001
            self.watch.look(self.now)


def test_a_link_whose_interface_is_down_is_left_out_at_once_but_never_the_last_one() -> None:
    watched = Watched("packet:a", "packet:b")
    watched.passes(1.0, sent=(1, 1), came=(1, 1))
    assert watched.reported == []
    watched.runs["b"] = False
    watched.passes(LOOK_S, sent=(0, 0), came=(0, 0))
    assert (watched.reported, watched.links.down) == ([1], {1})
    watched.runs["a"] = False
    watched.passes(1.0, sent=(0, 0), came=(0, 0))
    assert watched.reported == [1]


def test_a_link_whose_mtu_shrinks_is_left_out_as_one_that_is_down() -> None:
    watched = Watched("packet:a", "packet:b")
    watched.longest["a"] = 1114
    watched.passes(1.0, sent=(1, 1), came=(1, 1))
    assert watched.reported == []
    watched.longest["b"] = 614
    watched.passes(LOOK_S, sent=(1, 1), came=(1, 1))  # frames without lanes are answered
    assert (watched.reported, watched.links.down) == ([1], {1})


def test_a_link_that_others_have_lost_is_left_out_and_nobody_told() -> None:
    watched = Watched("packet:a", "packet:b")
    watched.links_down = [0]
    watched.passes(LOOK_S, sent=(1, 1), came=(1, 1))
    assert (watched.reported, watched.links.down) == ([], {0})


def test_members_that_have_lost_different_links_each_keep_the_one_that_they_have() -> None:
    worker = Watched("packet:eth0", "packet:eth1")
    worker.runs["eth0"] = False
    worker.passes(0.2, sent=(1, 1), came=(0, 1))
    worker.links_down = [1]  # the controller has heard of another member's loss first
    worker.passes(0.2, sent=(0, 1), came=(0, 1))
    assert worker.links.down == {0}


def test_a_silent_link_is_dead_once_another_has_answered_in_its_place() -> None:
    watched = Watched("udp:a", "udp:b")
    watched.passes(SILENT_S + 2 * LOOK_S, sent=(0, 1), came=(0, 0))
    assert (watched.mirrors, watched.reported) == ([NOWHERE, 0], [])
    watched.passes(5 * SILENT_S, sent=(0, 1), came=(0, 0))  # the switch is away
    assert watched.reported == []
    watched.passes(PROOF_S + 2 * LOOK_S, sent=(1, 1), came=(1, 0))
    assert (watched.reported, watched.links.down, watched.mirrors) == ([1], {1}, [NOWHERE, NOWHERE])


def test_a_link_that_answers_again_or_owes_nothing_stays() -> None:
    watched = Watched("udp:a", "udp:b")
    watched.passes(5 * SILENT_S, sent=(1, 0), came=(1, 0))
    assert watched.mirrors == [NOWHERE, NOWHERE]
    watched.passes(SILENT_S + 2 * LOOK_S, sent=(0, 1), came=(0, 0))
    watched.passes(LOOK_S, sent=(1, 1), came=(1, 1))
    assert (watched.mirrors, watched.reported) == ([NOWHERE, NOWHERE], [])


@pytest.mark.parametrize(("pause_s", "reported"), [(1.0, [1]), (FORGIVEN_S, [])])
def test_a_link_on_which_results_come_and_nothing_goes_is_dead_in_the_end(pause_s: float, reported: list[int]) -> None:
    watched = Watched("udp:a", "udp:b")
    for _ in range(MOST_STRIKES):
        watched.passes(SILENT_S + 2 * LOOK_S, sent=(0, 1), came=(0, 0))
        assert watched.mirrors[1] == 0
        watched.passes(LOOK_S, sent=(1, 1), came=(1, 1))
        watched.passes(pause_s, sent=(1, 0), came=(1, 0))
    assert watched.reported == reported


def test_a_silent_rail_is_dead_unless_another_is_silent_too_and_left_when_all_leave_it() -> None:
    watched = Watched("udp:a", "udp:b")
    watched.links.has_rails = True
    watched.passes(RAIL_SILENT_S + 5.0, sent=(1, 1), came=(0, 0))  # this machine, or all switches
    assert watched.reported == []
    watched.passes(RAIL_SILENT_S / 2 - 1.0, sent=(1, 1), came=(1, 0))
    watched.passes(LOOK_S, sent=(1, 1), came=(1, 1))
    watched.passes(RAIL_SILENT_S - 1.0, sent=(1, 1), came=(1, 0))
    assert watched.reported == []
    watched.passes(2.0, sent=(1, 1), came=(1, 0))
    assert (watched.reported, watched.links.down, watched.mirrors) == ([1], frozenset(), [NOWHERE, NOWHERE])
    watched.links_down = [1]
    watched.passes(LOOK_S, sent=(1, 0), came=(1, 0))
    assert (watched.reported, watched.links.down) == ([1], {1})


def test_two_rails_that_die_at_once_are_both_left_for_the_third() -> None:
    watched = Watched("udp:a", "udp:b", "udp:c")
    watched.links.has_rails = True
    watched.passes(RAIL_SILENT_S + 5.0, sent=(1, 1, 1), came=(0, 0, 0))  # this machine, or all switches
    assert watched.reported == []
    watched.passes(RAIL_SILENT_S, sent=(1, 1, 1), came=(0, 0, 1))
    assert watched.reported == [0, 1]


@pytest.mark.parametrize("has_rails", [False, True])
def test_an_answer_that_comes_over_another_link_than_its_slots_counts_unless_links_are_rails(has_rails: bool) -> None:
    switch = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for one in switch:
        one.bind(("127.0.0.1", 0))
        one.settimeout(patience(10))
    names = ",".join(f"udp:127.0.0.1:{one.getsockname()[1]}" for one in switch)
    here = Address(mac=1, ip=0x0A000001, port=21333)
    links = open_several(split_links(names), rows=64, frame_bytes=FRAME_BYTES, switch=here, together=False)
    links.take_slots(
        ReadyReply(
            admitted=True, hello_seen=True, first_slot=8, slot_count=8, link_rates=[1.0, 1.0], link_jobs=[5, 6],
            trees=[4, 4], has_rails=has_rails,
        )
    )  # fmt: skip
    assert links.ways[:8].tolist() == [0, 2, 0, 2, 1, 3, 1, 3]  # link 0 or 1 of the first tree, then of the second
    for link, one in enumerate(switch):
        hello = Header(kind=Kind.HELLO, job=5 + link)
        rows, lengths = np.array([link], np.int32), np.array([FRAME_BYTES], np.int32)
        frame = build_frame(links.links[link].address, here, hello)
        links.tx_frames[link, links.lead : links.lead + len(frame)] = np.frombuffer(frame, np.uint8)
        links.links[link].send(rows, lengths)
        _, back = one.recvfrom(4096)
        for slot, kind in ((8, Kind.RESULT), (9, Kind.RESULT), (12, Kind.RESULT), (13, Kind.RESULT), (14, Kind.REJECT)):
            header = Header(kind=kind, job=5 + link, slot=slot, tree=slot >= 12)
            one.sendto(build_frame(here, links.links[link].address, header)[42:], back)
    found: list[tuple[int, int, int]] = []
    deadline = time.monotonic() + 10
    while len(found) < 10 and time.monotonic() < deadline:
        links.wait(0.1)
        batch = links.receive()
        for row, length in zip(batch.rows, batch.lengths, strict=True):
            packet = parse_frame(bytes(batch.frames[row, links.lead : links.lead + length]))
            assert packet is not None
            found.append((packet.header.job, packet.header.slot, packet.header.tree))
        links.release()
    links.close()
    for one in switch:
        one.close()
    own = [(5, 8, 0), (5, 9, 2), (5, 12, 1), (5, 13, 3)]
    nobodys = [(0, 8, 0), (0, 9, 0), (0, 12, 1), (0, 13, 1)]
    refusals = [(0, 14, 1)] if has_rails else [(5, 14, 1)]
    assert sorted(found) == sorted(own + (nobodys if has_rails else own) + 2 * refusals)
