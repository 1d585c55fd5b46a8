"""Parts that fail while a job runs: what comes of it, and within what time."""

from __future__ import annotations

import functools
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from support.daemons import run_here
from support.parts import JOB, START_S, Parts, pause
from support.timing import eventually, patience
from switchsum_controller.switches.client import P4RuntimeClient
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient

from .conftest import NAMESPACES, NEEDS_BMV2

pytestmark = pytest.mark.timeout(300)

SIZE = 2
ROOT = (pytest.mark.root, NAMESPACES)
BMV2 = pytest.param("veth", "bmv2", id="bmv2", marks=(*ROOT, pytest.mark.bmv2, NEEDS_BMV2))
BOTH_SWITCHES = [pytest.param("shm", "embedded", id="shm"), BMV2]
OVER_EVERYTHING = [
    pytest.param("shm", "embedded", id="shm"),
    pytest.param("udp", "embedded", id="udp", marks=pytest.mark.slow),
    pytest.param("veth", "embedded", id="veth", marks=ROOT),
    BMV2,
]


@pytest.fixture
def make(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Parts]]:
    """Yield what makes a test's parts, which end with it."""
    with ExitStack() as stack:

        def make(links: str = "shm", kind: str = "embedded", size: int = SIZE) -> Parts:
            if links == "veth":
                request.getfixturevalue("network_namespace")
            return Parts(stack, tmp_path, size=size, links=links, kind=kind)

        yield make


def known(client: ControllerClient) -> dict[str, object]:
    """Return all that commands show of a controller and that does not change while its jobs run."""
    jobs = [
        replace(job, members=[replace(member, last_heartbeat_s=0.0) for member in job.members])
        for job in client.list_jobs().jobs
    ]
    statistics = client.statistics()
    return {
        "jobs": sorted(jobs, key=lambda job: job.number),
        "ports": client.ports(),
        "links": client.links(),
        "controller": client.info(),
        "ranks": [(member.job, member.rank) for member in statistics.members],
        "slots": [(cell.slot, cell.version, cell.job) for cell in client.slots(rpc.SlotsRequest(limit=1 << 10)).slots],
        "workers": [(one.rank, one.host, one.link) for one in client.workers(rpc.JobRequest(job=JOB)).workers],
    }


def set_up_more(client: ControllerClient) -> None:
    """Give a controller more than the job that runs: settings, a job that was resized, numbers of removed jobs."""
    client.set_loss(rpc.LossRequest(port=99, ingress=0.25, egress=0.5))
    client.create_job(rpc.CreateJobRequest(job="removed", workers=2, slots=3))
    client.create_job(rpc.CreateJobRequest(job="waiting", workers=3, slots=5, timeout_s=77.5))
    client.resize_job(rpc.ResizeJobRequest(job="waiting", workers=4))
    client.create_job(rpc.CreateJobRequest(job="last", workers=2, slots=2))
    client.remove_job(rpc.RemoveJobRequest(job="removed"))
    client.remove_job(rpc.RemoveJobRequest(job="last"))


@pytest.mark.slow
@pytest.mark.parametrize(("links", "kind"), BOTH_SWITCHES)
def test_a_killed_controller_is_not_missed_and_its_successor_knows_the_job(
    make: Callable[..., Parts], links: str, kind: str
) -> None:
    timeout_s = patience(3)  # heartbeats that nobody takes for longer must not end the job
    parts = make(links, kind)
    _, first, workers = parts.start("endless.py", timeout_s=timeout_s, REST_S="0.05")
    epoch = parts.show().epoch
    parts.ask(set_up_more)
    assert eventually(lambda: all(host for _, host, _ in parts.ask(known)["workers"]))  # type: ignore[attr-defined]
    before = parts.ask(known)

    first.kill()
    time.sleep(timeout_s + 1)
    assert [worker.poll() for worker in workers] == [None] * SIZE
    parts.controller()
    parts.await_progress()
    # Nothing is lost that a user has seen: what members say of themselves comes with the next heartbeats.
    assert eventually(lambda: parts.ask(known) == before), (parts.ask(known), before)
    newest = parts.ask(lambda client: client.create_job(rpc.CreateJobRequest(job="new", workers=1, slots=1)))
    assert newest.number > max(job.number for job in before["jobs"]) + 1  # type: ignore[attr-defined]
    time.sleep(timeout_s + 1)
    job = parts.show()
    assert (job.state, job.epoch) == ("running", epoch)
    assert all(0 <= member.last_heartbeat_s < timeout_s for member in job.members)

    parts.end_well(workers)
    job = parts.show()
    assert (job.state, job.epoch) == ("waiting", (epoch + 1) & 0xFFFF)


@pytest.mark.parametrize(("links", "kind"), BOTH_SWITCHES)
def test_a_controller_that_stands_by_takes_the_place_of_one_that_is_killed(
    make: Callable[..., Parts], links: str, kind: str
) -> None:
    parts = make(links, kind)
    _, first, workers = parts.start("endless.py", REST_S="0.05")
    parts.ask(set_up_more)
    second, third = parts.standby(), parts.standby()
    assert eventually(lambda: all(host for _, host, _ in parts.ask(known)["workers"]))  # type: ignore[attr-defined]
    before = parts.ask(known)

    first.kill()
    parts.await_progress()
    assert eventually(lambda: parts.ask(known) == before), (parts.ask(known), before)
    assert [one.poll() for one in (second, third, *workers)] == [None] * (SIZE + 2)
    second.terminate()  # whichever of them serves: the other one does then
    assert second.wait(START_S) == 0
    parts.await_progress()
    assert eventually(lambda: parts.ask(known) == before), (parts.ask(known), before)

    parts.end_well(workers)
    third.terminate()
    assert third.wait(START_S) == 0


@pytest.mark.parametrize(("links", "kind"), OVER_EVERYTHING)
def test_a_killed_switch_is_missed_until_it_is_back(make: Callable[..., Parts], links: str, kind: str) -> None:
    parts = make(links, kind)
    switch, _, workers = parts.start("endless.py")
    for _ in range(2):
        switch.kill()
        switch.wait()
        switch = parts.switch()
        parts.await_progress()
    assert [worker.poll() for worker in workers] == [None] * SIZE
    parts.end_well(workers)


@pytest.mark.parametrize(("links", "kind"), BOTH_SWITCHES)
def test_every_rank_stops_when_another_client_takes_the_switch_from_the_controller(
    make: Callable[..., Parts], links: str, kind: str
) -> None:
    parts = make(links, kind)
    _, _, workers = parts.start("endless.py")
    stranger = P4RuntimeClient(parts.p4runtime, election_id=1 << 100)
    stranger.connect()
    for worker in workers:
        output, _ = worker.communicate(timeout=START_S)
        assert worker.returncode == 1, output
        assert "SwitchLost: another P4Runtime client has become primary of the switch" in output
    stranger.close()
    assert parts.show().state == "waiting"


@pytest.mark.parametrize(("links", "kind"), BOTH_SWITCHES)
def test_two_jobs_side_by_side_do_not_disturb_each_other(make: Callable[..., Parts], links: str, kind: str) -> None:
    parts = make(links, kind, size=2 * SIZE)
    parts.switch()
    parts.controller()
    workers = []
    for first, job in ((0, "a"), (SIZE, "b")):
        create = rpc.CreateJobRequest(job=job, workers=SIZE, timeout_s=START_S)
        parts.ask(functools.partial(ControllerClient.create_job, request=create))
        for rank in range(SIZE):
            place = {"SWITCHSUM_JOB": job, "RANK": str(rank), "WORLD_SIZE": str(SIZE)}
            workers.append(parts.worker(first + rank, "endless.py", **place))
    assert eventually(lambda: {parts.show(job).state for job in "ab"} == {"running"}, 90)
    parts.await_progress()
    parts.end_well(workers)


# What a rank's child holds matters until the rank is lost, which is before the others go on in either way.
@pytest.mark.parametrize(
    ("then", "forks"),
    [
        pytest.param("reform", "", id="reform-alone"),
        pytest.param("replace", "yes", id="replace-forked", marks=pytest.mark.slow),
    ],
)
def test_a_killed_worker_is_told_to_the_others_who_go_on(make: Callable[..., Parts], then: str, forks: str) -> None:
    timeout_s, size = patience(4), 3
    parts = make(size=size)
    # gRPC lets go of connections in children where that is on, which it is not everywhere.
    own = {"THEN": then, "FORKS": forks, "GRPC_ENABLE_FORK_SUPPORT": "0"}
    _, _, workers = parts.start("survivor.py", timeout_s=timeout_s, **own)
    epoch = parts.show().epoch
    workers[1].kill()
    survivors = [workers[0], workers[2]]
    for worker in survivors:
        assert worker.stdout is not None
        # Had it taken as long as the job's time-out, this would be a CollectiveTimeout.
        lines = iter(worker.stdout.readline, "")  # with a cold cache, some of them about that
        assert next((line for line in lines if not line.startswith("switchsum: ")), "") == "lost rank 1\n"
    if then == "replace":
        survivors.append(parts.worker(1, "survivor.py", THEN=then))
    parts.await_progress()
    job = parts.show()
    assert (job.state, job.epoch != epoch, job.workers) == ("running", True, size if then == "replace" else size - 1)
    parts.end_well(survivors)


@pytest.mark.root
@NAMESPACES
def test_a_link_that_is_down_for_five_seconds_goes_on_afterwards(make: Callable[..., Parts]) -> None:
    parts = make("veth")
    _, _, workers = parts.start("endless.py")
    interface = parts.wires[1].interface
    subprocess.run(["ip", "link", "set", interface, "down"], check=True)
    time.sleep(5.0)
    subprocess.run(["ip", "link", "set", interface, "up"], check=True)
    parts.await_progress()
    parts.end_well(workers)


def test_a_job_that_runs_is_resized_by_force_only_and_its_members_learn_why(make: Callable[..., Parts]) -> None:
    parts = make()
    switch, _, workers = parts.start("joins_again.py")
    command = ["job", "resize", JOB, "--slots", "128", "--controller", parts.environment["SWITCHSUM_CONTROLLER"]]
    refused = run_here(*command)
    assert refused.returncode != 0
    assert f"has {SIZE} members" in refused.stderr
    parts.await_progress()
    assert run_here(*command, "--force").returncode == 0
    for worker in workers:
        output, _ = worker.communicate(timeout=START_S)
        assert "was resized: join again under epoch" in output

    again = [parts.worker(rank, "endless.py") for rank in range(SIZE)]
    parts.await_progress()
    switch.kill()
    assert eventually(lambda: parts.show().state == "stalled")
    parts.switch()
    parts.await_progress()
    assert parts.show().state == "running"
    parts.end_well(again)


@pytest.mark.slow
def test_a_worker_whose_python_is_busy_is_not_lost(make: Callable[..., Parts]) -> None:
    timeout_s = patience(8)
    parts = make()
    parts.switch()
    parts.controller()
    create = rpc.CreateJobRequest(job=JOB, workers=SIZE, timeout_s=timeout_s)
    parts.ask(functools.partial(ControllerClient.create_job, request=create))
    hold = {"HOLD_S": str(0.8 * timeout_s)}
    parts.end_well([parts.worker(rank, "busy.py", **hold) for rank in range(SIZE)])


def test_a_worker_that_is_stopped_for_three_seconds_goes_on(make: Callable[..., Parts]) -> None:
    parts = make()
    _, _, workers = parts.start("endless.py")
    pause(workers[1], 3.0)
    parts.await_progress()
    parts.end_well(workers)
