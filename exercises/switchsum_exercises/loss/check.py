"""Exercise 3: what the switch must do."""

from __future__ import annotations

import random

from switchsum_exercises.driver import Attempt, Bench, Wrong, ranks
from switchsum_exercises.frames import WORKERS, add

Lanes = tuple[int, ...]


def lanes_of(rank: int, number: int) -> Lanes:
    """Return what a rank contributes to a round: every sum of some of these says which they are."""
    return (100**rank, number * 100**rank, 7 * rank, -number)


def total(number: int) -> Lanes:
    """Return the sum of a round."""
    return add(add(lanes_of(0, number), lanes_of(1, number)), lanes_of(2, number))


def contribute(bench: Bench, rank: int, number: int) -> dict[int, Lanes]:
    """Send a rank's contribution; return whom results reached, and the sums."""
    results = bench.contribute(rank, lanes_of(rank, number), number=number)
    for other, result in results.items():
        if result.number != number:
            raise Wrong(
                f"round {number} of slot 0: rank {other} got a result with number={result.number}, so that it cannot "
                "know which round that is"
            )
    return {other: result.lanes for other, result in results.items()}


def judge(number: int, got: Lanes) -> None:
    """Raise Wrong with the reason if a result is not the round's sum."""
    right = total(number)
    if got == right:
        return
    for rank in range(WORKERS):
        if got == add(right, lanes_of(rank, number)):
            raise Wrong(f"round {number} of slot 0: rank {rank}'s repeat was added twice")
    raise Wrong(f"round {number} of slot 0: a rank got {got}, and the sum is {right}")


def play(bench: Bench, number: int) -> None:
    """Play a round without loss."""
    results: dict[int, Lanes] = {}
    for rank in range(WORKERS):
        results = contribute(bench, rank, number)
        if results and rank < WORKERS - 1:
            raise Wrong(f"round {number} of slot 0: a result left after {rank + 1} of {WORKERS} contributions")
    if missing := [rank for rank in range(WORKERS) if rank not in results]:
        raise Wrong(f"round {number} of slot 0: {ranks(missing)} got no result")
    for got in results.values():
        judge(number, got)


def without_loss(attempt: Attempt) -> None:
    """Play rounds one after the other."""
    bench = attempt.switch(WORKERS)
    for number in range(1, 6):
        play(bench, number)


def repeat_in_an_open_round(attempt: Attempt) -> None:
    """See that a repeat while others are missing is not added."""
    bench = attempt.switch(WORKERS)
    play(bench, 1)
    contribute(bench, 0, 2)
    contribute(bench, 1, 2)
    if contribute(bench, 1, 2):
        raise Wrong("round 2 of slot 0: rank 1's repeat brought a result, and rank 2 is still missing")
    results = contribute(bench, 2, 2)
    if not results:
        raise Wrong("round 2 of slot 0: every rank has contributed, and no result left")
    for got in results.values():
        judge(2, got)


def lost_result(attempt: Attempt) -> None:
    """See that a repeat in a complete round gets the result, alone."""
    bench = attempt.switch(WORKERS)
    play(bench, 1)
    results = contribute(bench, 2, 1)
    if 2 not in results:
        raise Wrong("round 1 of slot 0: rank 2 lost the result and repeated, and got no answer: it waits for ever")
    judge(1, results[2])
    if others := [rank for rank in results if rank != 2]:
        raise Wrong(f"round 1 of slot 0: rank 2 repeated, and {ranks(others)} got the result as well")


def two_versions(attempt: Attempt) -> None:
    """See that the result of round 1 is there while round 2 fills."""
    bench = attempt.switch(WORKERS)
    play(bench, 1)
    contribute(bench, 0, 2)
    results = contribute(bench, 1, 1)
    if 1 not in results:
        raise Wrong(
            "rank 1 asked for round 1's result when round 2 had begun, and got no answer: a slot has two versions"
        )
    judge(1, results[1])
    contribute(bench, 1, 2)
    judge(2, contribute(bench, 2, 2).get(0, ()))


def late_copy(attempt: Attempt) -> None:
    """See that a copy of an old round does nothing."""
    bench = attempt.switch(WORKERS)
    play(bench, 1)
    play(bench, 2)
    contribute(bench, 0, 3)
    if contribute(bench, 1, 1):
        raise Wrong("a late copy of rank 1's contribution to round 1 was answered in round 3; it is dropped")
    contribute(bench, 1, 3)
    results = contribute(bench, 2, 3)
    if not results:
        raise Wrong("a late copy of round 1 came in round 3, and round 3 was never complete: an old number is dropped")
    for got in results.values():
        judge(3, got)


def bad_network(attempt: Attempt) -> None:
    """Play a hundred rounds in which a third of all frames is lost, each way."""
    bench, dice = attempt.switch(WORKERS), random.Random(1)
    at = [1] * WORKERS
    for _ in range(5000):
        rank = dice.randrange(WORKERS)
        if at[rank] > 100 or dice.random() < 1 / 3:
            continue
        number = at[rank]
        for other, got in contribute(bench, rank, number).items():
            judge(number, got)
            if at[other] == number and dice.random() > 1 / 3:
                at[other] += 1
    if min(at) <= 100:
        raise Wrong(f"on a network that loses a third of all frames, round {min(at)} was never complete")


CHECKS = (without_loss, repeat_in_an_open_round, lost_result, two_versions, late_copy, bad_network)
