"""Allreduces that go on without ranks that are late: all have the same sums of the same sets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from support.timing import patience
from switchsum.testing.local import communicators
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.join import REPORT_S
from switchsum_host.api.missed import Kept, QuorumSum, SharedArrays
from switchsum_protocol.agreement_rpc import AgreeReply, AgreeRequest, Terms
from switchsum_protocol.errors import (
    CollectiveTimeout,
    OperationMismatch,
    SumOverflow,
    SwitchLost,
    UsageError,
    WorkerLost,
)
from switchsum_protocol.member_rpc import CompareRequest, MemberRequest, ReformRequest
from switchsum_protocol.reports import WorkerReport

from .quorum_ranks import QuorumRanks

ENOUGH_S = patience(0.4)
"""Patience in which ranks ask that begin together, also on a busy machine."""
QUORUM: dict[str, float] = {"quorum": 0.75, "patience_s": 0.01}


@pytest.fixture
def ranks() -> Iterator[QuorumRanks]:
    made = QuorumRanks(4)
    yield made
    made.close()


def add(comm: Communicator, seen: list[QuorumSum]) -> QuorumSum:
    """Take part in an operation with a rank's own bit, and note what this rank hears of."""
    array = np.full(700, float(1 << comm.rank), np.float32)
    result = comm.allreduce(array, quorum=0.75, patience_s=0.01)
    seen += [*result.missed, result]
    return result


def together(calls: list[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [one.result() for one in [pool.submit(call) for call in calls]]


def run(ranks: QuorumRanks, operations: int, late: int, pause: Callable[[QuorumRanks, int], None]) -> list[Any]:
    """Have all ranks do operations, the one that is `late` after a pause each; return what each has heard of.

    The others begin every second operation when the late one has asked: else they would go on without it.
    """
    seen: list[list[QuorumSum]] = [[] for _ in ranks.comms]

    def work(rank: int) -> None:
        number = 0
        while number < operations:
            if rank == late:
                pause(ranks, number)
            while rank != late and number % 2 and late not in ranks.agreement.asking:
                time.sleep(0.001)
            number = add(ranks.comms[rank], seen[rank]).number

    together([lambda rank=rank: work(rank) for rank in range(4)])  # type: ignore[misc]
    return seen


def check(seen: list[list[QuorumSum]], operations: int) -> None:
    for heard in seen:
        assert [one.number for one in heard] == list(range(1, operations + 1))
        for one in heard:
            assert one.count == len(one.ranks)
            assert (one.array == sum(1 << rank for rank in one.ranks)).all()
    for of_all in zip(*seen, strict=True):
        assert len({(one.ranks, one.array.tobytes()) for one in of_all}) == 1


def await_operation(ranks: QuorumRanks, number: int) -> None:
    while ranks.agreement.latest.number < number:
        time.sleep(0.001)


def test_a_rank_that_is_late_again_and_again_gets_all_sums_and_adds_to_every_second_one(ranks: QuorumRanks) -> None:
    seen = run(ranks, 6, 3, lambda ranks, number: await_operation(ranks, number + 1))
    check(seen, 6)
    assert [one.count for one in seen[0]] == [3, 4] * 3
    assert ranks.agreement.left_out == {3: 3}


@pytest.mark.parametrize("share", [0.02, 1.0])
def test_small_blocks_are_added_by_those_who_are_there(ranks: QuorumRanks, share: float) -> None:
    blocks = np.random.default_rng(5).random((4, 625)) < share
    arrays = [np.where(np.repeat(own, 32), np.float32(1 << rank), np.float32(0)) for rank, own in enumerate(blocks)]

    def call(rank: int) -> QuorumSum:
        return ranks.comms[rank].allreduce(arrays[rank].copy(), block=32, quorum=0.75, patience_s=0.01)

    for _ in range(4):  # a group remembers its own calls
        for result in together([lambda rank=rank: call(rank) for rank in range(3)]):  # type: ignore[misc]
            assert result.ranks == (0, 1, 2)
            np.testing.assert_array_equal(result.array, sum(arrays[:3]))


def test_a_controller_that_is_killed_in_the_midst_is_followed_by_one_that_says_the_same(ranks: QuorumRanks) -> None:
    def pause(ranks: QuorumRanks, number: int) -> None:
        await_operation(ranks, number + 1)
        ranks.restart()

    seen = run(ranks, 6, 3, pause)
    check(seen, 6)
    assert ranks.agreement.left_out == {3: 3}


def test_a_rank_that_dies_is_left_out_by_all(ranks: QuorumRanks) -> None:
    assert ranks.job.live is not None
    nonce = ranks.job.live.members[1].nonce
    ranks.jobs.leave(nonce)
    seen: list[list[QuorumSum]] = [[] for _ in range(4)]
    for _ in range(2):
        together([lambda rank=rank: add(ranks.comms[rank], seen[rank]) for rank in (0, 2, 3)])  # type: ignore[misc]
    check([seen[0], seen[2], seen[3]], 2)
    assert {one.ranks for one in seen[0]} == {(0, 2, 3)}
    assert ranks.agreement.waits == 0


def test_a_rank_that_dies_after_the_agreement_is_lost_to_those_who_join_without_it(ranks: QuorumRanks) -> None:
    def join_in_vain(rank: int) -> Callable[..., Communicator]:
        def join(*, job: str, cancelled: threading.Event, **_: int) -> Communicator:
            membership: Any = ranks.comms[rank].queue.membership
            membership.lost = frozenset({2})  # as the next heartbeat says
            membership.on_heartbeat()
            assert cancelled.wait(patience(20.0))
            raise UsageError(f"stopped waiting for job {job!r} to be complete, because it was cancelled")

        return join

    def lose(rank: int) -> int:
        with pytest.raises(WorkerLost, match="rank 2 of job 'a' is gone, and was to take part") as caught:
            add(ranks.comms[rank], [])
        return caught.value.rank

    def ask_and_die() -> None:
        membership: Any = ranks.comms[2].queue.membership
        nonce, wait_s = membership.reply.nonce, patience(20.0)
        request = AgreeRequest(job="a", nonce=nonce, after=0, quorum=0.75, patience_s=0.01, wait_s=wait_s)
        membership.ask("Agree", request, AgreeReply, wait_s)

    for rank in (0, 1):
        ranks.comms[rank].connect_again = join_in_vain(rank)
    assert together([lambda: lose(0), lambda: lose(1), ask_and_die])[:2] == [2, 2]


def test_a_rank_that_comes_too_late_is_lost_and_the_others_go_on(ranks: QuorumRanks) -> None:
    seen: list[list[QuorumSum]] = [[] for _ in range(4)]
    for _ in range(5):
        together([lambda rank=rank: add(ranks.comms[rank], seen[rank]) for rank in (0, 1, 2)])  # type: ignore[misc]
    with pytest.raises(WorkerLost, match="lacks the results of 5 operations, and members keep 4"):
        add(ranks.comms[3], seen[3])
    assert ranks.agreement.waits == 1  # the others' patience, once
    together([lambda rank=rank: add(ranks.comms[rank], seen[rank]) for rank in (0, 1, 2)])  # type: ignore[misc]
    check(seen[:3], 6)


class Training:
    """A rank whose model is the sum of all results; it takes part with its own bit."""

    def __init__(self, comm: Communicator) -> None:
        self.comm, self.model = comm, np.zeros(700, np.int64)
        comm.quorums.share(self.model)

    def step(self) -> QuorumSum:
        result = self.comm.allreduce(np.full(700, 1 << self.comm.rank), quorum=0.5, patience_s=ENOUGH_S)
        for one in (*result.missed, result):
            self.model += one.array
        return result


def steps_with(ranks: QuorumRanks, late: Training, others: list[Training]) -> list[QuorumSum]:
    """Have a rank that was absent take part in the others' next operation; its result is the first one."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(late.step)
        while late.comm.rank not in ranks.agreement.asking:
            time.sleep(0.001)
        rest: list[QuorumSum] = together([one.step for one in others])
        return [asked.result(), *rest]


def test_a_rank_that_is_too_late_is_given_the_model_and_gives_others_what_they_lack(ranks: QuorumRanks) -> None:
    zero, one, two, three = [Training(comm) for comm in ranks.comms]
    for _ in range(4):
        together([one.step, two.step, three.step])
    ranks.jobs.fit(ranks.jobs.find("a/quorum-1"), 1)  # as when its members join
    together([one.step, two.step])
    back = steps_with(ranks, zero, [one, two])
    assert [(found.number, found.ranks, found.missed) for found in back] == [(6, (0, 1, 2), ())] * 3
    assert [found.was_given_model for found in back] == [True, False, False]
    assert ranks.agreement.given_model == {0: 1}
    last, *_ = steps_with(ranks, three, [zero, one, two])
    assert [(found.number, found.ranks) for found in last.missed] == [(5, (1, 2)), (6, (0, 1, 2))]
    assert not last.was_given_model
    expected = 4 * 0b1110 + 0b0110 + 0b0111 + 0b1111
    for training in (zero, one, two, three):
        assert (training.model == expected).all()


class Recorded:
    """A communicator whose broadcasts the root makes first; the other rank hears them later."""

    def __init__(self, rank: int, said: list[Any]) -> None:
        self.rank, self.said = rank, said

    def broadcast(self, array: Any, root: int = 0, *, label: str = "") -> None:
        if self.rank == root:
            self.said.append(array.copy())
        else:
            array[...] = self.said.pop(0)


@pytest.mark.parametrize("arrays", [1, 100])
def test_a_model_may_have_more_arrays_than_a_frame_can_describe(arrays: int) -> None:
    said: list[Any] = []
    models = [[np.full((2, 1 + number), number + rank) for number in range(arrays)] for rank in range(2)]
    for rank, model in enumerate(models):
        kept = Kept(rank)
        kept.model = SharedArrays(tuple(model))
        assert kept.catch_up(Recorded(rank, said), [0, 1], {1: 0}, 9, 4) == ((), rank == 1)
        assert len(said) == (0 if rank else arrays + 1 + (arrays > 1))
    for own, given in zip(*models, strict=True):
        assert np.array_equal(own, given)


def test_a_model_of_another_shape_than_the_others_is_refused(ranks: QuorumRanks) -> None:
    own = np.zeros(3)
    with pytest.raises(UsageError, match=r"other arrays to quorums\.share"):
        SharedArrays((own,)).take([np.zeros(4)])
    with pytest.raises(UsageError, match=r"other arrays to quorums\.share"):
        SharedArrays((own,)).take([np.zeros(3, np.float32)])
    SharedArrays((own,)).take([np.ones(3)])
    assert own.tolist() == [1.0] * 3
    own.flags.writeable = False
    with pytest.raises(UsageError, match="share works in place"):
        ranks.comms[0].quorums.share(own)


def test_results_that_members_keep_are_their_own(ranks: QuorumRanks) -> None:
    seen: list[list[QuorumSum]] = [[] for _ in range(4)]
    together([lambda rank=rank: add(ranks.comms[rank], seen[rank]) for rank in (0, 1, 2)])  # type: ignore[misc]
    for heard in seen[:3]:
        heard[0].array[:] = -1  # as a program may that has applied it
    with ThreadPoolExecutor(1) as pool:
        last = pool.submit(add, ranks.comms[3], seen[3])
        while 3 not in ranks.agreement.asking:
            time.sleep(0.001)
        together([lambda rank=rank: add(ranks.comms[rank], seen[rank]) for rank in (0, 1, 2)])  # type: ignore[misc]
        assert last.result().number == 2
    assert (seen[3][0].array == 7).all()


def test_who_waits_for_all_ends_the_others_operation_too(ranks: QuorumRanks) -> None:
    quorums = [comm.quorums for comm in ranks.comms]
    terms = Terms(quorum=0.75, patience_s=60.0)
    agreed = together([
        lambda rank=rank: quorums[rank].agree(terms, is_whole=rank == 0)  # type: ignore[misc]
        for rank in range(4)
    ])  # fmt: skip
    assert [(one.is_whole, one.ranks) for one in agreed] == [(True, (0, 1, 2, 3))] * 4
    with ThreadPoolExecutor(4) as pool:
        ends = [pool.submit(quorums[rank].end) for rank in range(3)]
        last = ranks.comms[3].allreduce(np.ones(3), quorum=0.75, patience_s=60.0)
        assert [one.result() for one in ends] == [()] * 3
    assert (last.count, last.missed, last.array.tolist()) == (0, (), [1.0] * 3)


def test_a_late_rank_has_all_results_when_all_have_ended(ranks: QuorumRanks) -> None:
    seen: list[list[QuorumSum]] = [[] for _ in range(4)]
    for _ in range(2):
        together([lambda rank=rank: add(ranks.comms[rank], seen[rank]) for rank in (0, 1, 2)])  # type: ignore[misc]
    quorums = [comm.quorums for comm in ranks.comms]
    with pytest.raises(UsageError, match="no operation with a quorum yet"):
        quorums[3].end()
    *missed, last = together([*(quorums[rank].end for rank in range(3)), lambda: add(ranks.comms[3], seen[3])])
    assert (missed, last.count) == ([()] * 3, 0)
    check([*seen[:3], seen[3][:-1]], 2)


@pytest.mark.parametrize(
    "bad",
    [
        {"quorum": 0.0},
        {"quorum": 1.5},
        {"patience_s": 0.0},
        {"patience_s": -1.0},
        {"quorum": None},
        {"patience_s": None},
    ],
)
def test_terms_that_make_no_sense_are_refused_before_anybody_is_asked(ranks: QuorumRanks, bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"quorum|patience_s"):
        ranks.comms[0].allreduce(np.ones(3), **QUORUM | bad)
    assert ranks.agreement.terms is None


def test_another_quorum_than_the_others_is_refused_by_name(ranks: QuorumRanks) -> None:
    def ask(comm: Communicator, quorum: float) -> None:
        comm.allreduce(np.ones(3, np.float32), quorum=quorum, patience_s=60.0)  # nobody is late, however busy

    together([partial(ask, comm, 0.75) for comm in ranks.comms])
    for rank in (2, 0, 1, 3):  # nobody goes on without the one that differs
        with pytest.raises(OperationMismatch, match="rank 2 asks with quorum=1, "):
            ask(ranks.comms[rank], 1.0 if rank == 2 else 0.75)
    assert ranks.agreement.refused == {2: 1}


def test_models_that_differ_are_named_by_all_before_a_rank_is_too_late(ranks: QuorumRanks) -> None:
    for comm in ranks.comms:
        comm.quorums.share(np.zeros(6 if comm.rank == 2 else 5))

    def ask(comm: Communicator) -> str:
        with pytest.raises(OperationMismatch) as caught:  # noqa: PT012 - the second time, who was the first to ask
            for _ in range(2):
                comm.allreduce(np.ones(3, np.float32), quorum=0.5, patience_s=60.0)
        return str(caught.value)

    for error in together([partial(ask, comm) for comm in ranks.comms]):
        assert "1 arrays of 6 values" in error
        assert "1 arrays of 5 values" in error


@pytest.mark.parametrize("asking", [(0, 1, 3), (0,)])
def test_a_rank_that_calls_something_else_ends_all(ranks: QuorumRanks, asking: tuple[int, ...]) -> None:
    """The others wait for it, or go on without it: as soon as all are there, all hear of it."""
    live = ranks.job.live
    assert live is not None
    others = [rank for rank in range(4) if rank not in asking]
    for rank in others:
        report = WorkerReport(
            job="a", nonce=live.members[rank].nonce, begun=1, operation="barrier", waiting_s=1.0, is_inside=True
        )
        live.members[rank].reported.note(report, 0.0)

    def ask(comm: Communicator) -> str:
        with pytest.raises(OperationMismatch) as caught:
            comm.allreduce(np.ones(3, np.float32), quorum=0.5, patience_s=60.0)
        return str(caught.value)

    for error in together([partial(ask, ranks.comms[rank]) for rank in asking]):
        assert f"rank {others[0]} waits in barrier, and rank {', '.join(map(str, asking))} in an operation" in error
    news = ranks.controller.members.heartbeat(MemberRequest(job="a", nonce=live.members[others[0]].nonce))
    assert "waits in barrier" in news.mismatch


class VirtualCondition:
    """A controller's condition, whose waits last no time and move its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.notified = 0

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def notify_all(self) -> None:
        self.notified += 1


def test_a_job_with_quorums_hears_within_a_second_where_its_members_are(ranks: QuorumRanks) -> None:
    """What a member waits in is in its reports, which it sends with heartbeats; the second one says for how long."""
    reconciler: Any = ranks.controller.reconciler
    assert ranks.job.live is not None
    nonce, changed = ranks.job.live.members[0].nonce, VirtualCondition()
    reconciler.changed, reconciler.clock = changed, lambda: changed.now
    news = ranks.controller.members.attend(MemberRequest(job="a", nonce=nonce), lambda _: True)

    def pause_s() -> float:
        before = changed.now
        next(news)
        return changed.now - before

    next(news)
    assert pause_s() > 0.5
    ranks.controller.agreements.agree(
        AgreeRequest(job="a", nonce=nonce, after=0, quorum=0.5, patience_s=9.0, wait_s=0.0)
    )
    assert changed.notified  # whoever waits for the next heartbeat waits no longer
    assert REPORT_S < pause_s() <= 0.5


def test_a_rank_that_is_absent_hears_how_the_others_differ(ranks: QuorumRanks) -> None:
    """They end the job, so it must not hear instead that they are gone."""
    first, second, third, late = ranks.comms
    together(
        [
            partial(one.allreduce, np.ones(3), quorum=0.75, patience_s=0.01, narrow=True)
            for one in (first, second, third)
        ]
    )
    [name] = ranks.agreement.groups
    members = ranks.controller.members
    for rank, operation in enumerate(("a step", "a step", "another step")):
        _, member = ranks.jobs.join(name, rank=rank, world_size=3, now=0.0)
        request = CompareRequest(job=name, nonce=member.nonce, operation=operation, wait_s=0.0)
        assert members.compare(request).operations[rank] == operation
    with pytest.raises(
        OperationMismatch, match="rank 0 issued a step; rank 1 issued a step; rank 2 issued another step"
    ):
        late.allreduce(np.ones(3), quorum=0.75, patience_s=0.01, narrow=True)


def test_who_only_computes_while_something_else_is_under_way_is_waited_for(ranks: QuorumRanks) -> None:
    agreement = ranks.agreement
    terms = Terms(quorum=0.5, patience_s=60.0)
    for rank in (0, 1, 3):
        agreement.ask(rank, 0, terms, is_whole=False, now=0.0, begun=1)
    agreement.note_elsewhere({}, 4, [])  # rank 2 is in no collective
    agreement.note_elsewhere({2: (1, "allreduce")}, 4, [])  # which those who ask have begun, too
    agreement.check_alike()
    agreement.note_elsewhere({2: (2, "allreduce")}, 4, [])
    with pytest.raises(OperationMismatch, match="rank 2 waits in allreduce, and rank 0, 1, 3 in"):
        agreement.check_alike()


def with_late(ranks: QuorumRanks, call: Callable[[int], Any]) -> Any:
    """Have rank 3 be absent from no operation that the others take part in now; return its result."""
    with ThreadPoolExecutor(1) as pool:
        last = pool.submit(call, 3)
        while 3 not in ranks.agreement.asking:
            time.sleep(0.001)
        together([partial(call, rank) for rank in (0, 1, 2)])
        return last.result()


@pytest.mark.parametrize("takes", [True, False])
def test_results_that_a_rank_has_missed_are_not_lost_with_an_overflow(ranks: QuorumRanks, takes: bool) -> None:
    """They are there when the error is, and in the next result if nobody has taken them."""
    kept: dict[int, list[int]] = {rank: [] for rank in range(4)}

    def call(rank: int, value: int = 1) -> None:
        found = ranks.comms[rank].allreduce(np.full(6, value, np.int8), quorum=0.75, patience_s=ENOUGH_S)
        kept[rank] += [one.number for one in (*found.missed, found)]

    def overflow(rank: int) -> None:
        with pytest.raises(SumOverflow):
            call(rank, 60)
        if takes:
            kept[rank] += [one.number for one in ranks.comms[rank].quorums.take_missed()]

    together([partial(call, rank) for rank in (0, 1, 2)])
    with_late(ranks, overflow)
    assert kept[3] == [1] * takes
    with_late(ranks, call)
    assert kept == {rank: [1, 3] for rank in range(4)}


@pytest.mark.parametrize("error", [CollectiveTimeout("nobody comes", [0]), KeyboardInterrupt(), SwitchLost("main")])
def test_results_that_a_rank_has_missed_are_not_lost_with_any_other_error(
    ranks: QuorumRanks, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(rank: int) -> QuorumSum:
        return ranks.comms[rank].allreduce(np.ones(6, np.int8), quorum=0.75, patience_s=ENOUGH_S)

    def fail(comm: Communicator, *given: Any, **how: Any) -> Any:
        """Raise in the sum, when it is known who takes part."""
        if "quorum" not in how:
            raise error
        return allreduce(comm, *given, **how)

    together([partial(ask, rank) for rank in (0, 1, 2)])
    allreduce = Communicator.allreduce
    monkeypatch.setattr(Communicator, "allreduce", fail)

    def fails(rank: int) -> list[int]:
        with pytest.raises(type(error)):
            ask(rank)
        return [one.number for one in ranks.comms[rank].quorums.take_missed()]

    assert with_late(ranks, fails) == [1]


@pytest.mark.parametrize("dtype", [">f4", ">i8", "<f4", "bfloat16", "bool"])
def test_a_late_rank_gets_results_of_every_dtype(ranks: QuorumRanks, dtype: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    op = "or" if dtype == "bool" else "sum"

    def call(rank: int) -> QuorumSum:
        return ranks.comms[rank].allreduce(np.ones(6, kind), op, quorum=0.75, patience_s=ENOUGH_S)

    first, *_ = together([partial(call, rank) for rank in (0, 1, 2)])
    [missed] = with_late(ranks, call).missed
    assert missed.array.dtype == kind
    assert missed.array.tobytes() == first.array.tobytes()


@pytest.mark.parametrize(
    "dtype",
    [">f8", "M8[ms]", "V5", [("a", ">i2"), ("b", "f8", (2, 3))], [("x", [("y", "u1"), ("z", "<f4")])], "bfloat16"],
    ids=str,
)
def test_shared_arrays_may_have_any_dtype(dtype: Any) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    said: list[Any] = []
    for rank in range(2):
        own = np.full(4 * kind.itemsize, 7 + rank, np.uint8).view(kind)
        kept = Kept(rank)
        kept.model = SharedArrays((own,))
        assert kept.catch_up(Recorded(rank, said), [0, 1], {1: 0}, 9, 4) == ((), rank == 1)
        assert own.tobytes() == bytes([7] * own.nbytes)


def test_errors_of_a_group_name_ranks_of_the_job(ranks: QuorumRanks) -> None:
    quorums, group = ranks.comms[0].quorums, (0, 2, 3)
    given = [
        WorkerLost("rank 1 of job 'a/quorum-1' is gone: its process has ended", 1),
        WorkerLost("ranks 1, 2 have left the job without an error", 1),
        CollectiveTimeout("no progress for 3 s: the switch waits for rank 1, 2 and ranks at other switches", (1, 2)),
        OperationMismatch("rank 2 issued barrier; rank 0, 1 issued allreduce of float32[6]"),
    ]
    found: list[Any] = []
    for error in given:
        with pytest.raises(type(error)) as caught, quorums.among(group):
            raise error
        found.append(caught.value)
    lost, left, late, mismatch = found
    assert (lost.rank, left.rank, late.missing) == (2, 2, (2, 3))
    assert str(lost).startswith("rank 2 of job 'a' is gone: its process has ended; to go on without it, all ranks")
    assert str(left).startswith("ranks 2, 3 have left")
    assert "waits for rank 2, 3 and ranks at" in str(late)
    assert str(mismatch) == "rank 3 issued barrier; rank 0, 2 issued allreduce of float32[6]"
    sentence = r"^rank 1 of job 'a' is gone; .*comm\.reform\(\)$"
    with pytest.raises(WorkerLost, match=sentence) as whole, quorums.among((0, 1, 2, 3)):
        raise WorkerLost("rank 1 of job 'a' is gone", 1)
    assert whole.value.rank == 1


def test_who_asks_hears_that_the_others_form_the_job_anew(ranks: QuorumRanks) -> None:
    live = ranks.job.live
    assert live is not None
    ranks.jobs.leave(live.members[3].nonce)
    ranks.jobs.leave(live.members[2].nonce)  # the one that went first is named
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ranks.comms[0].allreduce, np.ones(3), quorum=0.5, patience_s=60.0)
        while 0 not in ranks.agreement.asking:
            time.sleep(0.001)
        request = ReformRequest(job="a", nonce=live.members[1].nonce, wait_s=0.01)
        assert ranks.controller.members.reform(request).missing == [0]
        with pytest.raises(WorkerLost, match=r"rank 3 .* rank 1 forms the job anew; .*comm\.reform\(\)") as caught:
            asked.result()
    assert caught.value.rank == 3


def test_a_communicator_without_a_controller_has_no_quorums() -> None:
    [comm] = communicators(1)
    with pytest.raises(UsageError, match=r"need a communicator of switchsum\.connect"):
        comm.allreduce(np.ones(3), quorum=0.5, patience_s=0.1)
    comm.close()
