"""Members with several links: who may join, which entries they get, and what a controller finds again."""

from __future__ import annotations

import itertools

import pytest

from switchsum_controller.jobs.job import Job
from switchsum_controller.jobs.registry import Jobs
from switchsum_controller.jobs.several_links import number_links, rates_of, take_down
from switchsum_controller.plan.plan import Identity, Settings, branches_of
from switchsum_controller.plan.rebuild import rebuild
from switchsum_controller.plan.windows import most_in_flight
from switchsum_controller.tables.names import ADMISSION, RESULT_ADDRESS
from switchsum_controller.trees.fabric import Fabric, FabricSwitch
from switchsum_protocol.errors import UsageError, WorldSizeMismatch
from switchsum_switch.wires.headers import Address

from .planned import plan

HERE = Address(mac=0x02_00_00_00_00_FE, ip=0x0A00_00FE, port=21333)
SETTINGS = Settings(identity=Identity(address=HERE, growth_bytes=512))


def make_jobs() -> Jobs:
    return Jobs(16, itertools.count(1000).__next__, itertools.count(1 << 60).__next__)


def address(rank: int, link: int) -> Address:
    return Address(mac=0x02_00_00_00_00_00 + 16 * link + rank, ip=0x0A00_0001 + (link << 8) + rank, port=5000)


def join(jobs: Jobs, rank: int, rates: list[float]) -> int:
    return jobs.join("a", rank=rank, world_size=2, now=0.0, rates=rates)[1].nonce


def running_job(jobs: Jobs, *rates: list[float]) -> Job:
    job = jobs.create("a", workers=2, slots=8, timeout_s=8.0)
    for rank, nonce in enumerate([join(jobs, rank, of_rank) for rank, of_rank in enumerate(rates)]):
        for link in reversed(range(len(rates[rank]))):
            assert not job.is_complete
            assert jobs.hello(nonce, rank, address(rank, link), 1 + rank + 4 * link, 0.0, link=link)
    assert job.is_complete
    number_links(job, jobs.take_number)
    jobs.make_live(job, first_number=1)
    return job


def test_every_link_of_a_member_is_another_way_to_the_same_slots_and_bit() -> None:
    jobs = make_jobs()
    job = running_job(jobs, [200.0, 100.0], [200.0, 50.0])
    state = plan(jobs, SETTINGS)
    ways = [
        (entry.match["job"], entry.match["rank"], entry.match["ingress_port"], entry.params["member"])
        for entry in state.table(ADMISSION)
    ]
    second = job.link_numbers[0]
    assert sorted(ways) == [(job.number, 0, 1, 1), (job.number, 1, 2, 2), (second, 0, 5, 1), (second, 1, 6, 2)]
    shared = {(entry.params["first_slot"], entry.params["slot_count"]) for entry in state.table(ADMISSION)}
    assert shared == {(job.slots.first, job.slots.count)}
    assert len({entry.params["group"] for entry in state.table(ADMISSION)}) == 2
    ips = {(e.match["job"], e.match["rank"]): e.params["ip"] for e in state.table(RESULT_ADDRESS) if e.params}
    assert ips == {
        (number, rank): address(rank, link).ip for link, number in enumerate((job.number, second)) for rank in (0, 1)
    }


def test_each_link_of_a_member_leads_into_each_tree_of_the_job() -> None:
    roots = ("root", "other")
    switches = {name: FabricSwitch(p4runtime=name, ports={"leaf": 9}) for name in roots} | {
        name: FabricSwitch(p4runtime=name, ports={"root": 8, "other": 9, "far": 10}) for name in ("leaf", "far")
    }
    for name in roots:
        switches[name] = FabricSwitch(p4runtime=name, ports={"leaf": 9, "far": 10})
    trees = [dict.fromkeys(("leaf", "far"), name) for name in roots]
    fabric = Fabric(switches=switches, parents=trees[0], others=trees[1:], shares=(1.0, 1.0), lanes_per_frame=256)
    jobs = make_jobs()
    job = jobs.create("a", workers=2, slots=8, timeout_s=8.0)
    for rank, switch in enumerate(("leaf", "far")):
        nonce = join(jobs, rank, [1.0, 1.0])
        for link in range(2):
            jobs.hello(nonce, rank, address(rank, link), 1 + rank + 4 * link, 0.0, switch=switch, link=link)
    number_links(job, jobs.take_number)
    assert not job.gathering.has_rails
    branches = branches_of(job, job.gathering, SETTINGS, fabric)
    ways = [(one.job, one.tree, one.slots.first, one.slots.count) for one in branches["leaf"]]
    second, (first, middle) = job.link_numbers[0], (job.slots.first, job.slots.first + 4)
    assert ways == [
        (job.number, 0, first, 4),
        (job.number, 1, middle, 4),
        (second, 0, first, 4),
        (second, 1, middle, 4),
    ]
    assert len({one.group for one in branches["leaf"]}) == 4


def test_links_carry_slots_by_the_least_rate_of_any_rank_or_equally_where_one_is_not_known() -> None:
    for rates, expected in (
        (([200.0, 100.0], [150.0, 400.0]), [150.0, 100.0]),
        (([200.0, 0.0], [200.0, 100.0]), [1.0, 1.0]),
        (([100.0], [100.0]), []),
    ):
        job = running_job(make_jobs(), *rates)
        assert job.live is not None
        assert rates_of(job.live) == expected


def test_a_link_is_taken_down_once_and_never_the_last_one() -> None:
    live = running_job(make_jobs(), [1.0, 1.0], [1.0, 1.0]).live
    assert live is not None
    assert [take_down(live, link) for link in (2, -1, 1, 1, 0)] == [False, False, True, False, False]
    assert live.down == {1}


def test_a_window_is_such_that_each_link_may_carry_all_of_it() -> None:
    live = running_job(make_jobs(), [1.0, 1.0], [1.0, 1.0]).live
    assert live is not None
    assert most_in_flight(live, 32, 1114) == 32


@pytest.mark.parametrize(
    ("rates", "error"),
    [([1.0] * 9, UsageError), ([-1.0, 1.0], UsageError), ([1.0], WorldSizeMismatch), ([1.0] * 3, WorldSizeMismatch)],
)
def test_links_that_do_not_fit_are_refused(rates: list[float], error: type[Exception]) -> None:
    jobs = make_jobs()
    jobs.create("a", workers=2, slots=8, timeout_s=8.0)
    join(jobs, 0, [1.0, 1.0])
    with pytest.raises(error, match="links"):
        join(jobs, 1, rates)
    join(jobs, 1, [5.0, 5.0])


def test_a_hello_over_a_link_that_a_member_does_not_have_is_nobodys() -> None:
    jobs = make_jobs()
    jobs.create("a", workers=2, slots=8, timeout_s=8.0)
    assert not jobs.hello(join(jobs, 0, []), 0, address(0, 1), 1, 0.0, link=1)


def test_a_controller_that_is_started_again_finds_all_links() -> None:
    jobs = make_jobs()
    job = running_job(jobs, [200.0, 100.0], [200.0, 100.0])
    assert job.live is not None
    assert take_down(job.live, 1)
    again = make_jobs()
    assert rebuild(plan(jobs, SETTINGS), again, SETTINGS, now=0.0) == []
    found = again.find("a")
    assert found.live is not None
    assert (found.link_numbers, found.live.down) == (job.link_numbers, {1})
    assert [one.all_attachments for one in found.live.members] == [one.all_attachments for one in job.live.members]
    assert plan(again, SETTINGS) == plan(jobs, SETTINGS)
