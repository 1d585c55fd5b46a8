"""Outer steps of DiLoCo that go on without ranks that are late."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from support.timing import patience
from switchsum_host.compress import Compressor, ErrorFeedback, Exchanged
from switchsum_protocol.agreement_rpc import KEEP
from switchsum_protocol.errors import UsageError
from tests.host.quorum_ranks import QuorumRanks

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
from switchsum.torch import DiLoCo  # noqa: E402  (it needs torch)

EVERY, STEPS = 4, 24
ENOUGH_S = patience(0.3)
"""Patience in which ranks come that are not late, also on a busy machine."""


class Counting(Compressor):
    """Keeps a number that all ranks must have alike."""

    def __init__(self) -> None:
        self.count = 0

    def _exchange_parts(self, comm: Any, parts: Sequence[Any], values: Any) -> Exchanged:
        self.count += 1
        return Exchanged(own=values.copy(), mean=comm.allreduce(values.copy()) / comm.world_size)

    def _state(self) -> dict[str, Any]:
        return {"count": self.count}

    def _restore(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


@pytest.fixture
def ranks() -> Iterator[QuorumRanks]:
    made = QuorumRanks(3)
    yield made
    made.close()


def train(ranks: QuorumRanks, rank: int, pause: Callable[[int], None], **options: Any) -> tuple[Any, Any, list[int]]:
    """Train a model of a line; return it, its trainer, and the inner steps at which this rank was."""
    generator = torch.Generator().manual_seed(rank)
    model = torch.nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    diloco = DiLoCo(model, optimizer, every=EVERY, group=ranks.comms[rank], quorum=0.6, patience_s=ENOUGH_S, **options)
    target, at = torch.arange(12.0).reshape(2, 6) / 12, []
    while diloco.step < STEPS:
        pause(diloco.step)
        values = torch.randn(16, 6, generator=generator)
        optimizer.zero_grad()
        (model(values) - values @ target.T).square().mean().backward()
        optimizer.step()
        at.append(diloco.step)
    diloco.finish()
    return model, diloco, at


@pytest.mark.parametrize(
    "options",
    [
        {"how": None, "fragments": 1},
        {"how": "int10", "fragments": 2},
        {"how": "powersgd:1", "fragments": 1},  # a late rank's factors are older than the others'
    ],
)
def test_a_late_rank_takes_the_steps_that_it_has_missed_and_all_end_with_the_same_model(
    ranks: QuorumRanks, options: dict[str, Any]
) -> None:
    def late(step: int) -> None:
        """Be so late with each second operation that the others go on."""
        number = ranks.agreement.latest.number
        if (step + 1) % EVERY == 0 and number < 4:
            while ranks.agreement.latest.number <= number:
                time.sleep(0.001)

    def in_time(_: int) -> None:
        """Do not go on for so long without the late rank that results are kept no longer."""
        while (
            2 not in ranks.agreement.asking
            and ranks.agreement.latest.number - ranks.agreement.finished.get(2, 0) >= KEEP - 1
            and 2 in ranks.agreement.latest.absent
        ):
            time.sleep(0.001)

    with ThreadPoolExecutor(3) as pool:
        begun = [pool.submit(train, ranks, rank, late if rank == 2 else in_time, **options) for rank in range(3)]
        (first, diloco, at), (second, *_), (third, of_late, at_late) = [one.result() for one in begun]
    assert at == list(range(1, STEPS + 1))
    assert len(at_late) < STEPS  # others' steps count
    assert at_late == sorted(at_late)
    assert at_late[-1] >= STEPS
    assert ranks.agreement.left_out[2] >= 1
    assert [one.steps for one in diloco.fragments] == [one.steps for one in of_late.fragments]
    for one, another, last in zip(first.parameters(), second.parameters(), third.parameters(), strict=True):
        assert torch.equal(one, another)
        assert torch.equal(one, last)
    assert all(
        torch.equal(one, last)
        for own, others in zip(diloco.fragments, of_late.fragments, strict=True)
        for one, last in zip(own.outer, others.outer, strict=True)
    )


def test_a_rank_that_is_too_late_goes_on_from_the_others_outer_parameters(ranks: QuorumRanks) -> None:
    def late(step: int) -> None:
        while step == 0 and ranks.agreement.latest.number <= KEEP + 1:
            time.sleep(0.001)

    def in_time(_: int) -> None:
        """Do not come to the end before the late rank is back."""
        while ranks.agreement.latest.number > KEEP + 1 and not {2} & (ranks.agreement.asking.keys() | back()):
            time.sleep(0.001)

    def back() -> set[int]:
        return set(ranks.agreement.given_model)

    with ThreadPoolExecutor(3) as pool:
        begun = [pool.submit(train, ranks, rank, late if rank == 2 else in_time, fragments=2) for rank in range(3)]
        (first, diloco, _), _, (third, of_late, at_late) = [one.result() for one in begun]
    assert ranks.agreement.given_model == {2: 1}
    assert max(after - before for before, after in pairwise(at_late)) > EVERY // 2  # it has gone ahead with them
    assert [(one.steps, one.latest) for one in diloco.fragments] == [
        (one.steps, one.latest) for one in of_late.fragments
    ]
    for one, last in zip(first.parameters(), third.parameters(), strict=True):
        assert torch.equal(one, last)
    for own, others in zip(diloco.fragments, of_late.fragments, strict=True):
        kept, given = own.optimizer.state_dict(), others.optimizer.state_dict()
        assert str(kept) == str(given)


def test_with_all_in_time_steps_have_the_bits_that_they_have_without_a_quorum(ranks: QuorumRanks) -> None:
    def one(rank: int, **terms: Any) -> list[Any]:
        model = torch.nn.Linear(6, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        generator = torch.Generator().manual_seed(rank)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(1.0)
        diloco = DiLoCo(model, optimizer, every=2, fragments=1, how=None, group=ranks.comms[rank], **terms)
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(4, 6, generator=generator)).square().sum().backward()
            optimizer.step()
        diloco.finish()
        diloco.remove()
        return [parameter.detach().clone() for parameter in model.parameters()]

    def both(rank: int) -> tuple[list[Any], list[Any]]:
        return one(rank), one(rank, quorum=0.6, patience_s=60.0)

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(both, range(3)))
    assert ranks.agreement.latest.number == 4
    for without, with_quorum in found:
        assert all(torch.equal(a, b) for a, b in zip(without, with_quorum, strict=True))


@pytest.mark.parametrize(("before", "fragments"), [(2, 1), (3, 1), (3, 2), (4, 2)])
def test_a_checkpoint_goes_on_at_its_step_with_a_quorum(ranks: QuorumRanks, before: int, fragments: int) -> None:
    after = 4

    def one(rank: int, stops: bool) -> tuple[int, list[int], list[Any]]:
        model = torch.nn.Linear(6, 2)
        with torch.no_grad():
            for number, parameter in enumerate(model.parameters()):
                parameter.fill_(1.0 + number)

        def made() -> tuple[Any, Any]:
            optimizer = torch.optim.SGD(model.parameters(), 0.05)
            terms: dict[str, Any] = {"quorum": 0.6, "patience_s": 60.0}
            comm = ranks.comms[rank]
            return optimizer, DiLoCo(model, optimizer, every=2, fragments=fragments, how=None, group=comm, **terms)

        optimizer, diloco = made()
        for step in range(before + after):
            if stops and step == before:
                kept = [parameter.detach().clone() for parameter in model.parameters()]
                state = diloco.state_dict()
                diloco.remove()
                optimizer, diloco = made()
                with torch.no_grad():
                    for parameter, own in zip(model.parameters(), kept, strict=True):
                        parameter.copy_(own)
                diloco.load_state_dict(state)
            optimizer.zero_grad()
            model(torch.full((4, 6), 1.0 + rank + step)).square().mean().backward()
            optimizer.step()
        diloco.finish()
        diloco.remove()
        latest = [fragment.latest for fragment in diloco.fragments]
        return diloco.step, latest, [parameter.detach().clone() for parameter in model.parameters()]

    def both(rank: int) -> tuple[Any, Any]:
        return one(rank, stops=False), one(rank, stops=True)

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(both, range(3)))
    for (steps, latest, model), (others, other_latest, other_model) in found:
        assert steps == others == before + after
        assert latest == other_latest == [before + after] * fragments
        assert all(torch.equal(a, b) for a, b in zip(model, other_model, strict=True))


@pytest.mark.parametrize(
    "bad",
    [
        {"quorum": 0.6},
        {"patience_s": 1.0},
        {"quorum": 1.2, "patience_s": 1.0},
        {"quorum": 0.6, "patience_s": 1.0, "delay": 1},
        {"quorum": 0.6, "patience_s": 1.0, "how": Counting()},
        {"quorum": 0.6, "patience_s": 1.0, "how": ErrorFeedback(Counting())},
    ],
)
def test_what_cannot_go_on_without_ranks_is_refused(ranks: QuorumRanks, bad: dict[str, Any]) -> None:
    def make(rank: int) -> None:
        model = torch.nn.Linear(6, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with pytest.raises(UsageError, match=r"quorum"):
            DiLoCo(model, optimizer, every=4, group=ranks.comms[rank], **bad)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(make, range(3)))
