"""Exercise 2: what the switch must do."""

from __future__ import annotations

from switchsum_exercises.driver import Attempt, Bench, Wrong, ranks
from switchsum_exercises.frames import WORKERS, add

EVERYBODY = list(range(WORKERS))
LANES = ((1, 20, -3, 0), (10, -5, 300, 7), (100, 6, 4, -70_000))
ROUNDS = (LANES, LANES[::-1], ((5, 5, 5, 5), (0, 0, 0, 0), (-5, 1, 2, 3)))


def total(lanes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Return the sum."""
    return add(add(lanes[0], lanes[1]), lanes[2])


def round_of(bench: Bench, number: int, order: list[int], before: tuple[int, ...] = (0, 0, 0, 0)) -> None:
    """Play one round, in which ranks contribute in some order."""
    lanes = ROUNDS[(number - 1) % len(ROUNDS)]
    for count, rank in enumerate(order, 1):
        results = bench.contribute(rank, lanes[rank], number=number)
        if count < WORKERS:
            if results:
                raise Wrong(f"round {number}: a result left after {count} of {WORKERS} contributions")
            continue
        if not results:
            raise Wrong(f"round {number}: every rank has contributed, and no result left")
        if missing := [other for other in EVERYBODY if other not in results]:
            raise Wrong(f"round {number}: {ranks(missing)} got no result; it goes to every rank")
        for other, result in sorted(results.items()):
            judge(number, other, result.lanes, lanes, lanes[order[-1]], before)


def judge(
    number: int, rank: int, got: tuple[int, ...], lanes: tuple[tuple[int, ...], ...], last: tuple[int, ...],
    before: tuple[int, ...],
) -> None:  # fmt: skip
    """Raise Wrong with the reason if a result is not the sum."""
    right = total(lanes)
    if got == right:
        return
    if got == last:
        raise Wrong(f"round {number}: the result is the last contribution alone: lanes are to be added, not stored")
    if len(got) == len(right) and got == add(right, before):
        raise Wrong(f"round {number}: the sum has round {number - 1} in it: the slot was not emptied")
    raise Wrong(f"round {number}: rank {rank} got {got}, and the sum is {right}")


def one_round(attempt: Attempt) -> None:
    """See that a round gives everybody the sum."""
    round_of(attempt.switch(WORKERS), 1, [0, 1, 2])


def any_order(attempt: Attempt) -> None:
    """Let contributions come in any order."""
    for order in ([2, 1, 0], [1, 0, 2], [1, 2, 0]):
        round_of(attempt.switch(WORKERS), 1, order)


def many_rounds(attempt: Attempt) -> None:
    """Use a slot again and again."""
    bench = attempt.switch(WORKERS)
    before: tuple[int, ...] = (0, 0, 0, 0)
    for number in range(1, 8):
        round_of(bench, number, [(number + step) % WORKERS for step in range(WORKERS)], before)
        before = total(ROUNDS[(number - 1) % len(ROUNDS)])


CHECKS = (one_round, any_order, many_rounds)
