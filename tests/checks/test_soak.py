"""Whose report is whose: what the soak makes of workers that are killed just as they tell what came of their job."""

from __future__ import annotations

import queue
from typing import Any

from checks.soak.__main__ import Soak


class FakePlace:
    """A worker that does nothing by itself."""

    def __init__(self, index: int) -> None:
        self.index = self.pid = index
        self.jobs = 0
        self.was_killed = False

    def order(self, **what: Any) -> None:
        """Take an order."""

    def kill(self) -> None:
        """Die."""
        self.was_killed = True

    def end(self) -> int:
        """Be over."""
        return 0


class FakeWorld:
    """Places, and what they tell."""

    shared_slots = 0

    def __init__(self) -> None:
        self.reports: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def place(self, index: int) -> FakePlace:
        """Start a worker."""
        return FakePlace(index)


class FakeClient:
    """A controller to which all is the same."""

    def create_job(self, request: Any) -> None:
        """Make a job."""

    def remove_job(self, request: Any) -> None:
        """Remove one."""


def done(digest: int) -> dict[str, Any]:
    counts = dict.fromkeys(("frames_sent", "frames_received", "sums", "resident_bytes", "taken"), 0)
    return {"outcome": "done", "digest": digest, "reformed": False, **counts}


def test_a_worker_killed_just_after_its_report_does_not_end_its_job_before_the_others_have_told() -> None:
    world = FakeWorld()
    soak = Soak(world, FakeClient(), workers=5, seed=1, timeout_s=10.0)  # type: ignore[arg-type]
    for place in list(soak._starting):
        world.reports.put((place, {"outcome": "ready"}))
        soak._listen(0)
    while not soak._running:
        soak._begin()
    [job] = soak._running.values()
    first, *others = job.places
    world.reports.put((first, done(7)))
    first.kill()  # before anybody has looked at the report
    world.reports.put((first, None))
    soak._listen(0)
    soak._listen(0)
    for place in others:
        assert job.name in soak._running
        assert place not in soak._free
        world.reports.put((place, done(7)))
        soak._listen(0)
    assert job.name not in soak._running
    assert set(others) <= set(soak._free)
    assert soak.problems == []
