"""How many slots a job gets, and how many of them it keeps in flight."""

from __future__ import annotations

from dataclasses import replace

import pytest

from switchsum_controller.plan.windows import frames_held, most_in_flight, window_slots
from switchsum_host.api.join import Membership
from switchsum_host.links.shm import cached_bytes
from switchsum_protocol.errors import NoCapacity
from switchsum_protocol.frame import FRAME_BYTES, LANE_BUILDS, payload_bytes
from switchsum_protocol.member_rpc import MOST_IN_FLIGHT, JoinRequest

from .planned import SLOTS, make_jobs, make_settings, plan, rebuilt, running_job


@pytest.mark.parametrize(
    ("ports", "port_frames", "window"),
    [([1, 2], None, 4), ([1, 2], 32, 4), ([1, 2], 3, 3), ([1, 1], 3, 1), ([1, 1], 1, 1), ([1, 1], 6, 3)],
)
def test_the_window_is_what_the_fullest_port_holds(ports: list[int], port_frames: int | None, window: int) -> None:
    assert window_slots(running_job(make_jobs(), ports=ports), port_frames, 1106) == window


def test_the_window_is_what_the_smallest_socket_holds() -> None:
    jobs = make_jobs()
    job = running_job(jobs, workers=3)
    assert job.live is not None
    for member, kept in zip(job.live.members, (0, 20_000, 14_000), strict=True):
        member.receive_bytes = kept
    assert frames_held(14_000, 1106) == 3
    assert window_slots(job, 100, 1106) == 3
    again, _ = rebuilt(plan(jobs, make_settings()), now=100.0)
    assert window_slots(again.find("a"), 100, 1106) == 3
    for member in job.live.members:
        # One socket of the switch for all of them.
        member.attachments[0] = replace(member.attachments[0], ingress_port=7)
    assert window_slots(job, 100, 1106) == 1


def test_the_window_is_no_larger_than_any_member_has_use_for() -> None:
    jobs = make_jobs()
    job = running_job(jobs, workers=3)
    assert job.live is not None
    for member, worth in zip(job.live.members, (0, 4 * 1106 - 1, 5 * 1106), strict=True):
        member.window_bytes = worth
    assert window_slots(job, None, 1106) == 3
    assert window_slots(job, 2, 1106) == 2
    assert window_slots(job, None, 8274) == 1
    again, _ = rebuilt(plan(jobs, make_settings()), now=100.0)
    assert window_slots(again.find("a"), None, 1106) == 3


@pytest.mark.parametrize("frame_bytes", [FRAME_BYTES + payload_bytes(lanes) for lanes in LANE_BUILDS])
@pytest.mark.parametrize("workers", [1, 2, 3, 16, 32])
def test_a_member_has_rows_for_every_window_that_it_may_be_given(workers: int, frame_bytes: int) -> None:
    job = running_job(make_jobs(), workers=workers)
    assert job.live is not None
    for member in job.live.members:
        member.window_bytes = cached_bytes(workers)
    membership = object.__new__(Membership)
    membership._request = JoinRequest(job="a", rank=0, world_size=workers, window_bytes=cached_bytes(workers))
    assert most_in_flight(job.live, None, frame_bytes) == membership.most_in_flight(frame_bytes)


@pytest.mark.parametrize(
    ("kept", "worth", "port_frames", "wanted"),
    [
        ((0, 0), (0, 0), None, MOST_IN_FLIGHT),  # packet links of the embedded switch
        ((0, 0), (4 * 1106, 5 * 1106), None, 4),  # shared memory: the smaller cache
        ((0, 0), (0, 0), 64, 64),  # BMv2: what its rings hold
        ((20_000, 14_000), (0, 0), None, 3),  # UDP: the smaller socket
    ],
)
def test_a_job_wants_as_many_slots_as_its_links_and_caches(
    kept: tuple[int, ...], worth: tuple[int, ...], port_frames: int | None, wanted: int
) -> None:
    job = running_job(make_jobs())
    assert job.live is not None
    for member, receive_bytes, window_bytes in zip(job.live.members, kept, worth, strict=True):
        member.receive_bytes, member.window_bytes = receive_bytes, window_bytes
    assert most_in_flight(job.live, port_frames, 1106) == wanted


def test_slots_that_members_do_not_want_are_free_for_other_jobs() -> None:
    jobs = make_jobs()
    first = jobs.create("a", workers=2, slots=None, timeout_s=8.0)
    assert (first.slots.count, jobs.free_slots) == (SLOTS, 0)
    with pytest.raises(NoCapacity):
        jobs.create("b", workers=2, slots=None, timeout_s=8.0)
    jobs.fit(first, 5)
    second = jobs.create("b", workers=2, slots=None, timeout_s=8.0)
    assert (first.slots.first, first.slots.count, second.slots.first, second.slots.count) == (0, 5, 5, 11)
    jobs.fit(first, 9)  # the next incarnation wants more, and there is no more
    assert first.slots.count == 5
    jobs.remove("b")
    jobs.fit(first, 9)
    assert first.slots.count == 9
    again, _ = rebuilt(plan(jobs, make_settings()))
    assert again.find("a").fits_slots
    jobs.resize("a", workers=None, slots=3)
    assert not first.fits_slots
