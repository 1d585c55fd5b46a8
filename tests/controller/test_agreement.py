"""Who takes part in an operation that may go on without some ranks: decided once, written before it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from support.timing import patience
from switchsum_controller.jobs.agreement import MOST_GROUPS, Agreement, Decision
from switchsum_controller.jobs.job import Job
from switchsum_controller.service.config import Config
from switchsum_controller.service.controller import Controller
from switchsum_controller.service.reconciler import Reconciler
from switchsum_controller.trees import rails
from switchsum_protocol.agreement_rpc import AgreeReply, AgreeRequest, Terms
from switchsum_protocol.errors import NotAdmitted, OperationMismatch, SwitchLost, UsageError, WorkerLost

from .planned import make_jobs, make_settings, plan, rebuilt, running_job
from .rig import SWITCH, program

TERMS = Terms(quorum=0.75, patience_s=0.01, keep=3)
LONG_S = patience(10.0)


class Ranks:
    """Ranks that ask, on a virtual clock; each has the results of the operations that it took part in or was given."""

    def __init__(self, workers: int = 4, terms: Terms = TERMS) -> None:
        self.workers, self.terms, self.agreement = workers, terms, Agreement()
        self.after = [0] * workers
        self.gone: set[int] = set()

    def ask(self, rank: int, now: float, *, is_whole: bool = False) -> None:
        self.agreement.ask(rank, self.after[rank], self.terms, is_whole=is_whole, now=now)

    def decide(self, now: float) -> Decision | None:
        decision = self.agreement.outcome(self.workers, self.gone, now)
        if decision is not None:
            self.agreement = self.agreement.taken(decision, self.gone)
            for rank in set(range(self.workers)) - {*decision.absent}:
                self.after[rank] = decision.number
        return decision

    def round(self, ranks: list[int], now: float) -> Decision | None:
        for rank in ranks:
            self.ask(rank, now)
        return self.decide(now)


def test_all_take_part_where_all_have_asked() -> None:
    ranks = Ranks()
    assert ranks.round([0, 1, 2], 0.0) is None
    assert ranks.round([3], 0.0) == Decision(number=1)


def test_a_round_is_closed_when_patience_ends_and_a_quorum_has_asked() -> None:
    ranks = Ranks()
    assert ranks.round([0, 1], 0.0) is None
    assert ranks.decide(5.0) is None  # two of four are no quorum
    assert ranks.round([2], 5.0) == Decision(number=1, absent=(3,))
    assert ranks.agreement.left_out == {3: 1}


def test_the_last_rank_and_the_end_of_patience_decide_once() -> None:
    ranks = Ranks()
    ranks.round([0, 1, 2], 0.0)
    closed = ranks.decide(1.0)
    ranks.ask(3, 1.0)
    assert ranks.agreement.answer(3, 0) is None  # it waits for the next one
    assert [ranks.agreement.answer(rank, 0) for rank in (0, 1, 2, 0)] == [closed] * 4


def test_who_was_absent_joins_the_next_operation_and_is_given_what_it_lacks() -> None:
    ranks = Ranks()
    ranks.round([0, 1, 2], 0.0)
    ranks.decide(1.0)
    ranks.ask(3, 1.1)
    assert ranks.decide(9.0) is None  # nobody is there who has all results
    assert ranks.round([0, 1, 2], 9.0) == Decision(number=2, behind=((3, 0),))
    assert ranks.round([0, 1, 2, 3], 9.0) == Decision(number=3)


def test_who_was_absent_is_not_waited_for_again() -> None:
    ranks = Ranks()
    ranks.round([0, 1, 2], 0.0)
    assert ranks.decide(0.01) is not None
    for number in (2, 3, 4):
        assert ranks.round([0, 1, 2], 1.0) == Decision(number=number, absent=(3,))
    assert (ranks.agreement.waits, ranks.agreement.left_out) == (1, {3: 4})


def test_patience_with_a_rank_that_is_late_again_and_again_is_halved_until_it_is_in_time_twice() -> None:
    ranks = Ranks()

    def close() -> float:
        """Go on without rank 3, from 0.0 on; return when."""
        assert ranks.round([0, 1, 2], 0.0) is None
        due_s = ranks.agreement.due_s()
        assert due_s is not None
        decision = ranks.decide(due_s)
        assert decision is not None
        assert decision.absent == (3,)
        return due_s

    def take_part() -> None:
        assert ranks.round([3, 0, 1, 2], 0.0) is not None

    waited = []
    for _ in range(6):
        waited.append(close())
        take_part()
    assert waited == [TERMS.patience_s / part for part in (1, 2, 4, 8, 16, 16)]
    take_part()
    assert close() == TERMS.patience_s
    assert ranks.agreement.waits == 7


def test_a_rank_that_lacks_more_results_than_are_kept_is_lost() -> None:
    ranks = Ranks()
    ranks.round([0, 1, 2], 0.0)
    ranks.decide(1.0)
    for _ in range(TERMS.keep):
        ranks.round([0, 1, 2], 1.0)
    with pytest.raises(WorkerLost, match="lacks the results of 4 operations, and members keep 3") as caught:
        ranks.ask(3, 2.0)
    assert caught.value.rank == 3
    assert ranks.round([0, 1, 2], 2.0) is not None


def test_a_rank_that_lacks_more_results_than_are_kept_is_given_the_model_where_there_is_one() -> None:
    ranks = Ranks(terms=replace(TERMS, gives_model=True))
    ranks.round([0, 1, 2], 0.0)
    ranks.decide(1.0)
    for _ in range(TERMS.keep):
        ranks.round([0, 1, 2], 1.0)
    ranks.ask(3, 2.0)
    assert ranks.round([0, 1, 2], 2.0) == Decision(number=TERMS.keep + 2, behind=((3, 0),))
    assert ranks.agreement.given_model == {3: 1}
    with pytest.raises(OperationMismatch, match="a model for ranks that are too late"):
        ranks.agreement.ask(0, ranks.after[0], TERMS, is_whole=False, now=3.0)


def test_a_rank_that_is_gone_is_not_waited_for_and_too_few_are_lost() -> None:
    ranks = Ranks()
    ranks.gone = {1}
    ranks.round([0, 2], 0.0)
    assert ranks.round([3], 5.0) == Decision(number=1, absent=(1,))  # it was rank 3 that they waited for
    assert ranks.agreement.waits == 0
    ranks.gone = {1, 2}
    ranks.ask(0, 0.0)
    with pytest.raises(WorkerLost, match="2 of 4 ranks are less than a quorum"):
        ranks.decide(0.0)


def test_nobody_waits_for_a_result_that_died_with_those_who_had_it() -> None:
    ranks = Ranks(terms=Terms(quorum=0.5, patience_s=0.01))
    ranks.round([0, 1], 0.0)
    assert ranks.decide(1.0) == Decision(number=1, absent=(2, 3))
    ranks.gone = {0, 1}
    ranks.ask(2, 1.0)
    assert ranks.decide(1.0) is None
    ranks.ask(3, 1.0)
    with pytest.raises(WorkerLost, match="rank 0 is gone, and nobody else has the result of operation 1"):
        ranks.decide(1.0)


def test_when_patience_has_ended_without_a_quorum_time_alone_is_not_waited_for() -> None:
    ranks = Ranks()
    assert ranks.round([0, 1], 0.0) is None
    assert ranks.agreement.due_s() == TERMS.patience_s
    assert ranks.decide(TERMS.patience_s) is None
    assert ranks.agreement.due_s() is None


def test_a_rank_that_dies_while_it_waits_does_not_take_part() -> None:
    ranks = Ranks()
    ranks.round([0, 1, 2], 0.0)
    ranks.gone = {2}
    assert ranks.decide(1.0) is None
    assert ranks.round([3], 1.0) == Decision(number=1, absent=(2,))


def test_an_operation_of_all_waits_beyond_patience_but_not_for_the_dead() -> None:
    ranks = Ranks()
    for rank in (0, 1, 2):
        ranks.ask(rank, 0.0, is_whole=True)
    assert ranks.decide(100.0) is None
    ranks.gone = {3}
    assert ranks.decide(100.0) == Decision(number=1, absent=(3,), is_whole=True)


def test_a_call_that_came_late_asks_for_nothing() -> None:
    ranks = Ranks()
    ranks.round([0, 1, 2, 3], 0.0)
    ranks.round([0, 1, 2], 0.0)
    ranks.decide(1.0)
    ranks.agreement.ask(3, 0, TERMS, is_whole=False, now=1.0)  # of before the first decision
    assert 3 not in ranks.agreement.asking


def test_other_terms_and_results_of_nowhere_are_refused_by_name() -> None:
    ranks = Ranks()
    ranks.ask(0, 0.0)
    with pytest.raises(
        OperationMismatch, match=r"rank 1 asks with quorum=0.5, .* goes on with quorum=0.75.*, as rank 0 asked first"
    ):
        ranks.agreement.ask(1, 0, Terms(quorum=0.5, patience_s=0.01), is_whole=False, now=0.0)
    assert ranks.agreement.refused == {1: 1}
    with pytest.raises(OperationMismatch, match=r"rank 1 asks with quorum=0\.5"):  # nobody goes on without it
        ranks.ask(0, 0.0)
    with pytest.raises(NotAdmitted, match="operation 7"):
        Ranks().agreement.ask(1, 7, TERMS, is_whole=False, now=0.0)


def test_who_went_first_is_blamed_and_not_who_left_because_of_it() -> None:
    ranks = Ranks()
    ranks.ask(3, 0.0)
    with pytest.raises(WorkerLost, match=r"rank 2 is gone, .*call comm\.reform\(\)") as caught:
        ranks.agreement.outcome(4, [2, 0, 1], 0.0)
    assert caught.value.rank == 2


@pytest.mark.parametrize(
    "bad",
    [
        *({"quorum": value} for value in (0, -0.5, 1.01, float("nan"), True, "1")),
        *({"patience_s": value} for value in (0, -1.0, float("inf"), float("nan"), None)),
        *({"keep": value} for value in (0, 65, 1.5)),
    ],
)
def test_terms_that_make_no_sense_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Terms(**{"quorum": 0.75, "patience_s": 0.01} | bad).check()


def times_of(step_s: float, slow: float, steps: int, decision_s: float = 0.003) -> tuple[float, int]:
    """Return what an operation took in virtual time with a last rank that is slower, and in how many that took part."""
    ranks = Ranks()
    now, together = 0.0, 0
    due = [step_s, step_s, step_s, slow * step_s]
    for _ in range(steps):
        decision = None
        while decision is None:
            closes = ranks.agreement.due_s()
            comes = [(at, rank) for rank, at in enumerate(due) if rank not in ranks.agreement.asking]
            at, rank = min(comes) if comes else (float("inf"), -1)
            if closes is not None and len(ranks.agreement.asking) >= 3 and closes < at:
                now = closes
            else:
                now = max(now, at)
                ranks.ask(rank, now)
            decision = ranks.decide(now)
        now += decision_s
        together += not decision.absent
        for rank in set(range(4)) - {*decision.absent}:
            due[rank] = now + step_s * (slow if rank == 3 else 1)
    return now / steps, together


def test_a_rank_at_half_speed_costs_steps_of_100_ms_less_than_a_tenth() -> None:
    alone, all_of_them = times_of(0.1, 1.0, 40)
    taken, together = times_of(0.1, 2.0, 40)
    assert all_of_them == 40
    assert taken <= 1.1 * alone
    assert together == 20  # it takes part in every second operation
    assert 20 * 2 * (taken - alone) < 4 * TERMS.patience_s  # of twenty waits most are short
    stopped, _ = times_of(0.1, 100.0, 40)
    assert stopped - alone == pytest.approx(TERMS.patience_s / 40, abs=1e-9)  # patience once


def test_the_entries_tell_a_new_controller_what_was_decided() -> None:
    jobs = make_jobs()
    job = running_job(jobs, workers=4)
    ranks = Ranks()
    assert job.live is not None
    ranks.round([0, 1, 2], 0.0)
    ranks.decide(1.0)
    job.live.agreement = ranks.agreement
    again = rebuilt(plan(jobs, make_settings()))[0].find("a")
    assert again.live is not None
    assert again.live.agreement.answer(1, 0) == ranks.agreement.latest == Decision(number=1, absent=(3,))
    assert again.live.agreement.record(4) == ranks.agreement.record(4)
    with pytest.raises(OperationMismatch):
        again.live.agreement.ask(3, 0, Terms(quorum=1.0, patience_s=1.0), is_whole=False, now=0.0)


def test_jobs_that_did_not_ask_have_the_entries_that_they_had() -> None:
    jobs = make_jobs()
    running_job(jobs)
    assert not any(b"agreement" in entry.metadata for entry in plan(jobs, make_settings()).entries.values())


class Asked:
    """A controller without switches, whose writes a test sees, and four members of a job."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.controller = Controller(Config(program=program(), switch_address="127.0.0.1:1", address=SWITCH))
        reconciler = self.controller.reconciler
        reconciler.is_fresh, reconciler.jobs = False, make_jobs()
        self.job: Job = running_job(reconciler.jobs, workers=4, slots=2)
        self.written: list[tuple[str, list[str]]] = []
        """By write, the job that the latest decision names, and the jobs that there were."""
        self.write: Callable[[], None] = lambda: None
        self.fleet: Any = SimpleNamespace(is_settled=True, away=list, without=set(), connections={"": None})
        monkeypatch.setattr(reconciler, "fleet", self.fleet)
        monkeypatch.setattr(reconciler, "synchronise", self._synchronise)
        monkeypatch.setattr(reconciler, "end_jobs_if_ousted", lambda: None)

    def _synchronise(self, *, for_running: bool) -> None:
        assert for_running
        self.write()
        assert self.job.live is not None
        self.written.append(
            (self.job.live.agreement.latest.group, [job.name for job in self.controller.reconciler.jobs])
        )

    def agree(self, rank: int, after: int = 0, *, wait_s: float = LONG_S, quorum: float = 0.75) -> AgreeReply:
        assert self.job.live is not None
        nonce = self.job.live.members[rank].nonce
        return self.controller.agreements.agree(
            AgreeRequest(job="a", nonce=nonce, after=after, quorum=quorum, patience_s=0.02, wait_s=wait_s)
        )

    def all(self, ranks: tuple[int, ...], after: int = 0) -> list[AgreeReply]:
        with ThreadPoolExecutor(len(ranks)) as pool:
            return list(pool.map(lambda rank: self.agree(rank, after), ranks))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def test_those_who_take_part_get_a_job_of_their_own_and_keep_it(asked: Asked) -> None:
    replies = asked.all((0, 1, 2))
    assert replies == [AgreeReply(number=1, absent=[3], group="a/quorum-1", groups=["a/quorum-1"])] * 3
    assert asked.controller.reconciler.jobs.find("a/quorum-1").workers == 3
    assert asked.all((0, 1, 2), after=1)[0].group == "a/quorum-1"
    everybody = [asked.agree(3, 0, wait_s=0.0), *asked.all((0, 1, 2), after=2), asked.agree(3, 0)]
    assert everybody[0].number == 0
    assert [(one.number, one.group, one.behind) for one in everybody[1:]] == [(3, "", [[3, 0]])] * 4


def test_a_decision_is_told_when_it_is_written_and_not_before(asked: Asked) -> None:
    may_write, tries = threading.Event(), []

    def write() -> None:
        tries.append(1)
        if not may_write.is_set():
            raise SwitchLost("the switch is away")

    asked.write = write
    with ThreadPoolExecutor(3) as pool:
        reported = [pool.submit(asked.agree, rank) for rank in (0, 1)]
        assert asked.agree(2, wait_s=0.1).number == 0
        assert asked.agree(2, wait_s=0.0).held_up == "the switch is away"
        assert tries
        assert not any(one.done() for one in reported)
        assert [job.name for job in asked.controller.reconciler.jobs] == ["a"]  # what was made for it is gone
        may_write.set()
        assert asked.agree(2).number == 1
        assert [one.result().absent for one in reported] == [[3]] * 2
    group = asked.agree(2).group
    assert asked.written == [("", ["a", group]), (group, ["a", group])]  # a killed controller leaves no name of nothing


class OneAway:
    """The switch of the job, and one that is away."""

    def __init__(self) -> None:
        self.connections, self.without = {"": None, "spare": None}, set[str]()

    def away(self) -> list[str]:
        return ["spare"]

    @property
    def is_settled(self) -> bool:
        return "spare" in self.without


@pytest.mark.parametrize("used", ["", "spare"])
def test_a_decision_does_not_wait_for_a_switch_that_no_running_job_uses(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, used: str
) -> None:
    reconciler = asked.controller.reconciler
    monkeypatch.setattr(reconciler, "fleet", OneAway())
    monkeypatch.setattr(rails, "switches_of_job", lambda *_: {used})
    if used:
        assert asked.agree(0, wait_s=0.05).number == 0
        assert not reconciler.fleet.without
    else:
        assert {one.number for one in asked.all((0, 1, 2))} == {1}
        assert reconciler.has_news


def test_a_decision_names_switches_that_hang_without_need(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    reconciler, reported = asked.controller.reconciler, []
    fleet: Any = SimpleNamespace(away=list, without=set(), connections={"s1": None, "spare": None})

    def change(_: object, unused: set[str]) -> None:
        reported.append(set(unused))
        fleet.without |= unused

    fleet.change = change
    monkeypatch.setattr(reconciler, "fleet", fleet)
    monkeypatch.setattr(rails, "switches_of_job", lambda *_: {"s1"})
    reconciler.has_news = False
    Reconciler.synchronise(reconciler)
    assert (reported, reconciler.has_news) == ([set()], False)
    Reconciler.synchronise(reconciler, for_running=True)
    assert (reported[1:], reconciler.has_news) == ([{"spare"}], True)


def test_what_a_new_controller_has_read_is_told_when_all_switches_have_it(asked: Asked) -> None:
    reported = asked.all((0, 1, 2))
    asked.fleet.is_settled = False  # the former one was killed before it had written to the last switch
    assert asked.agree(0, wait_s=0.05).number == 0
    asked.fleet.is_settled = True
    assert asked.agree(0) == reported[0]


def test_who_was_told_is_told_again_though_too_few_are_left_by_then(asked: Asked) -> None:
    reported = asked.all((0, 1, 2))
    assert asked.job.live is not None
    for rank in (1, 3):
        asked.controller.reconciler.jobs.leave(asked.job.live.members[rank].nonce)
    assert asked.agree(0) == reported[0]
    late = asked.agree(0, after=1)
    assert (late.number, late.lost) == (0, 1)
    assert late.why.startswith("rank 1 is gone, and 2 of 4 ranks are less than a quorum")


def test_a_set_that_is_used_no_more_gives_its_slots_to_another_one(asked: Asked) -> None:
    asked.all((0, 1, 2))
    jobs = asked.controller.reconciler.jobs
    assert jobs.free_slots == 0
    assert asked.job.live is not None
    agreement = asked.job.live.agreement
    agreement.asking, agreement.since_s, agreement.answered = {0: 1, 1: 1, 3: 0}, 0.0, {}
    agreement.finished.update({0: 1, 1: 1})
    assert asked.agree(3, 0, wait_s=0.1).number == 0  # rank 2 may be in the midst of it
    agreement.finished[2], agreement.held_up = 1, ""
    assert asked.agree(3, 0).groups == ["a/quorum-3"]  # the second one had no slots
    assert {job.name for job in jobs} == {"a", "a/quorum-3"}


def test_a_job_bounds_quorums_and_how_many_sets_of_ranks_are_at_work(asked: Asked) -> None:
    with pytest.raises(UsageError, match=r"job 'a' allows quorums from 0.5 on, not 0.25"):
        asked.agree(0, quorum=0.25)
    assert asked.job.live is not None
    assert asked.job.live.agreement.refused == {0: 1}
    asked.all((0, 1, 2))
    agreement = asked.job.live.agreement
    agreement.groups.update({f"other {number}": agreement.groups["a/quorum-1"] for number in range(MOST_GROUPS - 1)})
    jobs = asked.controller.reconciler.jobs
    jobs.fit(jobs.find("a/quorum-1"), 1)
    for name in list(agreement.groups)[1:]:
        jobs.create(name, workers=3, slots=1, timeout_s=8.0)
    agreement.asking, agreement.since_s = {0: 1, 1: 1, 3: 0}, 0.0
    agreement.finished.update({0: 0, 1: 0})
    reply = asked.agree(3, 0, wait_s=0.1)
    assert (reply.number, "in the midst of" in reply.held_up) == (0, True)
