"""Workers whose links lead to several switches: what those add, and how a job leaves a rail."""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Sequence

import pytest

from switchsum_controller.jobs.machines import Attachment
from switchsum_controller.jobs.registry import Jobs
from switchsum_controller.jobs.several_links import links_to_leave, number_links, take_down
from switchsum_controller.jobs.slots import Cell
from switchsum_controller.plan.plan import branches_of, plan_all
from switchsum_controller.plan.rebuild import merged, rebuild
from switchsum_controller.tables.names import ADMISSION
from switchsum_controller.trees import moves, rails
from switchsum_controller.trees.fabric import Fabric, FabricSwitch
from switchsum_protocol.errors import UsageError
from switchsum_switch.wires.headers import Address

from .test_moves import FIRST, LANES, Connection, Killed, World, fabric_of, live_of, settings

ATTACHED_TO = (("a1", "b1"), ("a1", "b2"), ("a2", "b2"))
"""Of each rank, the switch to which each link leads: on the second rail others are together."""
SPINE = fabric_of([(leaf, "s") for leaf in ("a1", "a2", "b1", "b2")], dict.fromkeys(("a1", "a2", "b1", "b2"), "s"))
"""Both rails pass one spine."""
APART = Fabric(switches={name: FabricSwitch(p4runtime=f"unix:{name}") for name in ("a", "b")}, lanes_per_frame=LANES)


def jobs_at(attachments: Sequence[Sequence[str]], slots: int = 2) -> Jobs:
    """Return a job that runs, with a worker that has links to these switches for each."""
    jobs = Jobs(64, iter(range(100, 200)).__next__, iter(range(200, 300)).__next__, most_workers=64)
    job = jobs.create("a", workers=len(attachments), slots=slots, timeout_s=60.0)
    for rank, names in enumerate(attachments):
        _, member = jobs.join("a", rank=rank, world_size=len(attachments), now=0.0, rates=[1.0] * len(names))
        for link, name in enumerate(names):
            number = 16 * link + rank
            address = Address(mac=0x0200_0000_0100 + number, ip=0x0A00_0100 + number, port=4000 + number)
            jobs.hello(member.nonce, rank, address, 1 + rank, 0.0, switch=name, link=link)
    number_links(job, jobs.take_number)
    jobs.make_live(job, FIRST)
    return jobs


class RailWorld(World):
    """Workers with a link to each of two rails, of which the slot is on the second one."""

    def __init__(self) -> None:
        super().__init__(SPINE, jobs_at(ATTACHED_TO))
        self.rail = [1] * len(ATTACHED_TO)
        """Over which each worker sends and listens."""
        self.broken: set[tuple[int, int]] = set()
        """Ranks and numbers of links."""

    def attachment(self, rank: int) -> Attachment | None:
        rail = self.rail[rank]
        return None if (rank, rail) in self.broken else live_of(self.jobs).members[rank].attachments[rail]

    def job_number(self, rank: int) -> int:
        job = self.jobs.find("a")
        return [job.number, *job.link_numbers][self.rail[rank]]

    def tell(self, *ranks: int) -> None:
        """Let members hear which links are left."""
        for rank in ranks:
            self.rail[rank] = min({0, 1} - set(links_to_leave(live_of(self.jobs))) - {self.rail[rank]}, default=1)


def begun() -> RailWorld:
    """Return a world in which rank 0 has a result that the others lack, and a link of rank 1 has died."""
    world = RailWorld()
    world.repeat()
    assert world.done == [FIRST + 1] * len(ATTACHED_TO)
    world.repeat(1, 2)
    world.broken.add((1, 1))
    world.rail[2] = 0  # a rail that has nothing for it: what comes is not heard
    world.repeat(0)
    world.rail[2] = 1
    assert world.done == [FIRST + 2, FIRST + 1, FIRST + 1]
    assert take_down(live_of(world.jobs), 1)
    return world


@pytest.mark.parametrize("last", range(0, 120, 5))
def test_sums_are_right_and_go_on_whichever_write_is_the_last_and_whoever_hears_first(last: int) -> None:
    world = begun()
    world.writes_left = last
    try:
        world.move()
    except Killed:
        world.writes_left = 1 << 30
        world.repeat()
        world.go_on()
        if not live_of(world.jobs).moves:  # no switch had been told
            assert take_down(live_of(world.jobs), 1)
        assert links_to_leave(live_of(world.jobs)) == ([] if live_of(world.jobs).is_moving else [1])
        world.move()
    world.writes_left = 1 << 30
    assert links_to_leave(live_of(world.jobs)) == [1]
    for rank in range(len(ATTACHED_TO)):
        world.repeat()
        world.tell((rank + last) % len(ATTACHED_TO))
    for _ in range(12):
        world.repeat()
    assert min(world.done) > FIRST + 4


@pytest.mark.parametrize("seed", range(40))
def test_sums_are_right_although_frames_come_late_and_twice_and_the_controller_is_killed(seed: int) -> None:
    chance = random.Random(seed)
    world = begun()
    reported: set[int] = set()
    for _ in range(80):
        live = live_of(world.jobs)
        ranks = chance.sample(range(len(ATTACHED_TO)), chance.randint(1, len(ATTACHED_TO)))
        match chance.randrange(5):
            case 0 if live.is_moving:
                world.writes_left = chance.randrange(100)
                with contextlib.suppress(Killed):
                    world.move()
                world.writes_left = 1 << 30
            case 1 if live.moves:
                world.go_on()
                if not live_of(world.jobs).moves:  # no switch had been told
                    take_down(live_of(world.jobs), 1)
            case 2 if live.forgotten and ranks[0] not in reported:
                reported.add(ranks[0])
                world.tell(ranks[0])
            case 3:
                world.carry(deque(chance.choices(world.carried[-60:], k=4)))
            case _:
                world.repeat(*ranks)
    world.move()
    world.tell(*({*range(len(ATTACHED_TO))} - reported))
    before = max(world.done)
    for _ in range(12):
        world.repeat()
    assert min(world.done) >= before + 2


def test_a_rail_is_left_with_empty_cells_or_sums_of_others_pass_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    world = RailWorld()
    world.broken.add((0, 1))
    world.repeat()  # the spine has what ranks 1 and 2 have sent, under the bit that rank 2 has alone on the other rail
    assert take_down(live_of(world.jobs), 1)
    monkeypatch.setattr(Connection, "clear", lambda self, cells: None)
    world.move()
    world.tell(0, 1, 2)
    with pytest.raises(AssertionError, match="truth"):
        world.repeat()


def test_a_rail_of_which_a_new_controller_does_not_know_all_links_takes_nothing_while_it_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = RailWorld()
    attachments = [dict(member.attachments) for member in live_of(world.jobs).members]
    monkeypatch.setattr(world, "attachment", lambda rank: attachments[rank][world.rail[rank]])
    world.away.add("b2")
    world.dead.add("b2")
    world.go_on()
    assert (live_of(world.jobs).links, links_to_leave(live_of(world.jobs))) == ([0], [])
    clear = Connection.clear

    def clear_and_repeat(self: Connection, cells: Sequence[Cell]) -> None:
        clear(self, cells)
        world.repeat()  # rank 0 is alone at its switch of the rail, which sends that up to the spine

    monkeypatch.setattr(Connection, "clear", clear_and_repeat)
    world.move()
    world.tell(0, 1, 2)
    before = max(world.done)
    for _ in range(4):
        world.repeat()
    assert min(world.done) > before


def test_each_rail_has_the_slots_the_members_and_a_group_of_its_own() -> None:
    jobs = jobs_at([("a", "b"), ("a", "b")])
    job = jobs.find("a")
    states = plan_all(jobs, settings(), APART)
    for name, number, mac in (("a", job.number, 0x100), ("b", job.link_numbers[0], 0x110)):
        found = states[name].table(ADMISSION)
        assert {entry.match["job"] for entry in found} == {number}
        assert [entry.params["member"] for entry in found] == [1, 2]
        assert {(entry.params["first_slot"], entry.params["slot_count"]) for entry in found} == {(job.slots.first, 2)}
        stations = {entry.match["mac"] for entry in states[name].table("SwitchIngress.dispatch.forwarding.stations")}
        assert {0x0200_0000_0000 + mac, 0x0200_0000_0001 + mac} <= stations
    groups = {entry.params["group"] for state in states.values() for entry in state.table(ADMISSION)}
    assert len(groups) == 2


def test_members_name_those_they_wait_for_only_where_all_rails_have_them_at_one_place() -> None:
    apart = jobs_at([("a", "b"), ("a", "b")])
    assert rails.places_of(APART, apart.find("a"), live_of(apart), 0) == []
    same = jobs_at([("a1", "b1"), ("a2", "b2"), ("a2", "b2")])
    assert rails.places_of(SPINE, same.find("a"), live_of(same), 2) == [1, 2]
    crossed = jobs_at(ATTACHED_TO)
    assert rails.places_of(SPINE, crossed.find("a"), live_of(crossed), 2) == [-1, -1]


def test_a_job_leaves_the_rails_that_pass_what_is_away_and_never_the_last_one() -> None:
    jobs = jobs_at(ATTACHED_TO)
    live = live_of(jobs)
    move = moves.begin(SPINE, live, ["b2"], "b2 stays away")
    assert str(move) == "b2 stays away: it goes on over link 0 of each worker"
    assert (live.down, live.moves, live.is_moving, links_to_leave(live)) == ({1}, 1, True, [])
    assert rails.switches_of_job(SPINE, live) == {"a1", "a2", "s"}
    with pytest.raises(
        UsageError, match="each of its rails needs a switch or link that does not answer: the link from a1 to s"
    ):
        moves.begin(SPINE, live, [], "a link is away", [frozenset(("a1", "s"))])
    assert not take_down(live, 0)
    fresh = live_of(jobs_at(ATTACHED_TO))
    with pytest.raises(UsageError, match="switch s"):
        moves.begin(SPINE, fresh, ["s"], "the spine is away")
    with pytest.raises(UsageError, match="link 1 of each worker needs switch b1, which does not answer"):
        moves.trees_without(SPINE, fresh, ["b1"])
    assert moves.trees_without(SPINE, fresh, []) == [dict.fromkeys(("a1", "a2", "b1", "b2"), "s")]


@pytest.mark.parametrize("gone", ["a", "b"])
def test_a_controller_that_is_started_while_a_rail_is_away_goes_on_over_the_other(gone: str) -> None:
    jobs = jobs_at([("a", "b"), ("a", "b")])
    states = plan_all(jobs, settings(), APART)
    again = Jobs(64, int, int, most_workers=64)
    there = merged({name: state for name, state in states.items() if name != gone})
    assert rebuild(there, again, settings(), 0.0) == []
    live = live_of(again)
    lost, left = (0, 1) if gone == "a" else (1, 0)
    assert (live.down, live.links, live.is_moving, live.has_rails) == ({lost}, [left], True, True)
    assert [one.attachments[left] for one in live.members] == [one.attachments[left] for one in live_of(jobs).members]
    found = plan_all(again, settings(), APART)
    number = [again.find("a").number, *again.find("a").link_numbers][left]
    kept = "b" if gone == "a" else "a"
    assert {entry.match["job"] for entry in found[kept].table(ADMISSION)} == {number}
    # Cells are cleared before members hear of it: the entries are other ones.
    assert {entry.metadata for entry in found[kept].table(ADMISSION)}.isdisjoint(
        {entry.metadata for entry in states[kept].table(ADMISSION)}
    )


def test_a_job_that_has_left_a_rail_does_not_go_back_to_it_where_the_other_one_is_away() -> None:
    jobs = jobs_at([("a", "b"), ("a", "b")])
    assert take_down(live_of(jobs), 1)
    states = plan_all(jobs, settings(), APART)
    again = Jobs(64, int, int, most_workers=64)
    assert rebuild(states["b"], again, settings(), 0.0) == []
    assert again.find("a").live is None  # the controller waits for the switch


def test_links_and_trees_are_at_most_eight_together() -> None:
    spines = [dict.fromkeys(("a1", "a2", "b1", "b2"), name) for name in ("s", "t", "u", "v", "w")]
    links = [(leaf, tree["a1"]) for tree in spines for leaf in tree]
    jobs = jobs_at(ATTACHED_TO, slots=8)
    job = jobs.find("a")
    with pytest.raises(UsageError, match="2 links of a worker times 5 trees of a job are more than 8"):
        branches_of(job, live_of(jobs), settings(), fabric_of(links, *spines))
