"""A rank of another protocol: calls that go on while it computes, and which of them is next."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from switchsum_lab.protocols.member import HostAssignment, Pending, ProtocolMember, _RealCalls, _VirtualCalls, meet
from switchsum_lab.protocols.seam import Array, load
from switchsum_lab.protocols.virtual import VirtualRun
from switchsum_lab.protocols.virtual_ranks import VirtualRanks
from switchsum_lab.simulation.conditions import CableConditions
from switchsum_protocol.errors import UsageError

RANKS = 3


def on_ranks(folder: Path, program: Callable[[ProtocolMember], Any], *, loss: float = 0.0) -> list[Any]:
    """Run a program on ranks of the skeleton in virtual time, each a thread."""
    protocol = load("skeleton")
    run = VirtualRun(protocol, protocol.world(workers=RANKS, lanes=32, slots=1), CableConditions(loss=loss))
    places = [
        HostAssignment(
            directory="skeleton",
            host=rank,
            meeting=f"{folder}/meeting",
            workers=RANKS,
            servers=0,
            lanes=32,
            slots=1,
            seed=0,
            least_timeout_s=0.0,
        )
        for rank in range(RANKS)
    ]

    def rank(place: HostAssignment) -> Any:
        with meet(place) as meeting:
            found = program(ProtocolMember(place, _VirtualCalls(meeting)))
            meeting.send(("end",))
            return found

    with VirtualRanks(run, f"{folder}/meeting", timeout_s=60.0) as served, ThreadPoolExecutor(RANKS) as threads:
        futures = [threads.submit(rank, place) for place in places]
        served.serve(lambda: any(one.done() and one.exception() is not None for one in futures))
        return [one.result() for one in futures]


def filled(member: ProtocolMember, size: int) -> Array:
    return np.full(size, member.rank + 1, np.float32)


def test_calls_that_have_begun_go_on_while_ranks_compute(tmp_path: Path) -> None:
    def program(member: ProtocolMember) -> tuple[float, float]:
        began = member.now()
        member.allreduce(filled(member, 3200))
        alone = member.now() - began
        pending = member.allreduce_async(filled(member, 3200))
        began = member.now()
        member.compute(2 * alone)
        assert (pending.wait() == 6).all()
        assert (pending.wait() == 6).all()
        return alone, member.now() - began

    for alone, beside in on_ranks(tmp_path, program):
        assert beside == pytest.approx(2 * alone, rel=1e-6)


@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_of_calls_that_all_have_begun_the_one_with_the_highest_priority_is_next(tmp_path: Path, loss: float) -> None:
    def program(member: ProtocolMember) -> list[int]:
        ended: list[int] = []
        calls = [member.allreduce_async(filled(member, 3200), priority=priority) for priority in (0, 0, 2, 1, 2)]
        arrays = [call.wait() for call in calls[2:3]]
        at_s = {2: member.now()}
        for number in (0, 4, 3, 1):
            arrays.append(calls[number].wait())
            at_s[number] = member.now()
        assert all((array == 6).all() for array in arrays)
        ended = sorted(at_s, key=lambda number: at_s[number])
        return ended

    for ended in on_ranks(tmp_path, program, loss=loss):
        assert ended[0] == 2
        assert ended.index(4) < ended.index(3) < ended.index(1)


def test_a_call_that_others_have_not_begun_overtakes_none(tmp_path: Path) -> None:
    """Rank 0 begins both calls at once; the others begin the second one only when they have the first sum."""

    def program(member: ProtocolMember) -> float:
        first = member.allreduce_async(filled(member, 320))
        if member.rank:
            first.wait()
        second = member.allreduce_async(filled(member, 64), priority=9)
        member.barrier()
        return float(first.wait()[0] + second.wait()[0])

    assert on_ranks(tmp_path, program) == [12.0] * RANKS


def test_on_real_links_calls_keep_their_order() -> None:
    done: list[str] = []

    class Calls(_RealCalls):
        def __init__(self) -> None:
            self._begun, self._ended = [], 0

        def _call(self, name: str, array: Array) -> None:
            done.append(f"{name} {len(array)}")

    place = HostAssignment(
        directory="", host=0, meeting="", workers=1, servers=0, lanes=32, slots=1, seed=0, least_timeout_s=0.0
    )
    member = ProtocolMember(place, Calls())
    calls: list[Pending] = [member.allreduce_async(np.zeros(size, np.float32), priority=size) for size in (1, 2, 3)]
    calls[1].wait()
    assert done == ["allreduce 1", "allreduce 2"]
    member.barrier()
    calls[0].wait()
    assert done == ["allreduce 1", "allreduce 2", "allreduce 3", "barrier 0"]
    with pytest.raises(UsageError, match="contiguous array of float32"):
        member.allreduce_async(np.zeros(3))  # type: ignore[arg-type]
