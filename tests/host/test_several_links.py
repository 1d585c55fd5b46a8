"""Several links of one worker: their names, how slots are dealt, and when one is taken for dead."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from switchsum.host.links.listed import NamedLink, split_links
from switchsum.host.links.names import is_several
from switchsum.host.links.several import NOWHERE, dealt
from switchsum.host.links.watching import FORGIVEN_S, LOOK_S, MOST_STRIKES, PROOF_S, SILENT_S, LinkWatch
from switchsum.protocol.errors import UsageError


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
        ("packet:eth0,packet:eth0", "named twice"),
        ("packet:eth0@0,packet:eth1@1", "rate is a number"),
        ("packet:eth0@fast,packet:eth1@1", "rate is a number"),
        ("packet:eth0@nan,packet:eth1@1", "rate is a number"),
        ("packet:eth0@1,packet:eth1", "give it to all"),
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


class Watched:
    """A watch over two links of a worker on a clock of its own."""

    def __init__(self, *names: str) -> None:
        self.runs: dict[str, bool] = {}
        self.links_down: Sequence[int] = ()
        self.told: list[int] = []
        self.mirrors = [NOWHERE, NOWHERE]
        self.links: Any = SimpleNamespace(
            links=names,
            names=names,
            down=frozenset(),
            rates=[2.0, 1.0],
            sent=np.zeros(2, np.int64),
            came=np.zeros(2, np.int64),
            mirror=self.mirrors.__setitem__,
            do_without=lambda down: setattr(self.links, "down", frozenset(down)),
        )
        self.now = 100.0
        links: Any = self.links
        self.watch = LinkWatch(links, self, lambda interface: self.runs.get(interface, True))

    def tell_down(self, link: int, reason: str) -> None:
        self.told.append(link)

    def passes(self, seconds: float, *, sent: tuple[int, int], came: tuple[int, int]) -> None:
        """Let time pass, in which frames go and come at each look."""
        for _ in range(round(seconds / LOOK_S)):
            self.links.sent += sent
            self.links.came += came
            self.now += LOOK_S * 1.001
            self.watch.look(self.now)


def test_a_link_whose_interface_is_down_is_left_out_at_once_but_never_the_last_one() -> None:
    watched = Watched("packet:a", "packet:b")
    watched.passes(1.0, sent=(1, 1), came=(1, 1))
    assert watched.told == []
    watched.runs["b"] = False
    watched.passes(LOOK_S, sent=(0, 0), came=(0, 0))
    assert (watched.told, watched.links.down) == ([1], {1})
    watched.runs["a"] = False
    watched.passes(1.0, sent=(0, 0), came=(0, 0))
    assert watched.told == [1]


def test_a_link_that_others_have_lost_is_left_out_and_nobody_told() -> None:
    watched = Watched("packet:a", "packet:b")
    watched.links_down = [0]
    watched.passes(LOOK_S, sent=(1, 1), came=(1, 1))
    assert (watched.told, watched.links.down) == ([], {0})


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
    assert (watched.mirrors, watched.told) == ([NOWHERE, 0], [])
    watched.passes(5 * SILENT_S, sent=(0, 1), came=(0, 0))  # the switch is away
    assert watched.told == []
    watched.passes(PROOF_S + 2 * LOOK_S, sent=(1, 1), came=(1, 0))
    assert (watched.told, watched.links.down, watched.mirrors) == ([1], {1}, [NOWHERE, NOWHERE])


def test_a_link_that_answers_again_or_owes_nothing_stays() -> None:
    watched = Watched("udp:a", "udp:b")
    watched.passes(5 * SILENT_S, sent=(1, 0), came=(1, 0))
    assert watched.mirrors == [NOWHERE, NOWHERE]
    watched.passes(SILENT_S + 2 * LOOK_S, sent=(0, 1), came=(0, 0))
    watched.passes(LOOK_S, sent=(1, 1), came=(1, 1))
    assert (watched.mirrors, watched.told) == ([NOWHERE, NOWHERE], [])


@pytest.mark.parametrize(("pause_s", "told"), [(1.0, [1]), (FORGIVEN_S, [])])
def test_a_link_on_which_results_come_and_nothing_goes_is_dead_in_the_end(pause_s: float, told: list[int]) -> None:
    watched = Watched("udp:a", "udp:b")
    for _ in range(MOST_STRIKES):
        watched.passes(SILENT_S + 2 * LOOK_S, sent=(0, 1), came=(0, 0))
        assert watched.mirrors[1] == 0
        watched.passes(LOOK_S, sent=(1, 1), came=(1, 1))
        watched.passes(pause_s, sent=(1, 0), came=(1, 0))
    assert watched.told == told
