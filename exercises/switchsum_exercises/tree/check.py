"""Exercise 6: what a leaf must do."""

from __future__ import annotations

import random

from switchsum_exercises.driver import Attempt, Bench, Wrong, ranks
from switchsum_exercises.frames import UP, Frame, Kind, add, port_of
from switchsum_exercises.loss.solution import Switch as Root

LEAVES = 2
BELOW = 2
"""Ranks at a leaf."""
LEAF = 1
"""The leaf that is looked at alone."""
Lanes = tuple[int, ...]


def lanes_of(leaf: int, rank: int, number: int) -> Lanes:
    """Return what a rank contributes to a round: sums say which are in them."""
    return (100 ** (2 * leaf + rank), number, -7 * rank, leaf)


def total(number: int, leaves: range) -> Lanes:
    """Return the sum of some leaves."""
    sums: Lanes = (0, 0, 0, 0)
    for leaf in leaves:
        for rank in range(BELOW):
            sums = add(sums, lanes_of(leaf, rank, number))
    return sums


def leaf_of(attempt: Attempt, number: int = LEAF) -> Bench:
    """Make a leaf."""
    return Bench(attempt, attempt.call("Leaf", number, BELOW), "Leaf.process")


def contribute(bench: Bench, rank: int, number: int, leaf: int = LEAF) -> dict[int, list[Frame]]:
    """Send a rank's contribution to its leaf."""
    frame = Frame(kind=Kind.CONTRIBUTION, rank=rank, number=number, lanes=lanes_of(leaf, rank, number))
    return bench.send(port_of(rank), frame)


def result_of(number: int) -> Frame:
    """Return the root's result."""
    return Frame(kind=Kind.RESULT, number=number, lanes=total(number, range(LEAVES)))


def judge_up(answers: dict[int, list[Frame]], number: int, when: str) -> None:
    """Raise Wrong unless one right contribution went up, and nothing else anywhere."""
    if UP not in answers:
        raise Wrong(f"round {number}: {when}, and nothing went up")
    if len(answers) > 1:
        raise Wrong(f"round {number}: a frame went down before the root's result came")
    frame = answers[UP][0]
    if frame.kind != Kind.CONTRIBUTION or frame.number != number:
        raise Wrong(f"round {number}: what went up is no contribution to round {number}: {frame}")
    if frame.rank != LEAF:
        raise Wrong(f"what leaf {LEAF} sent up says rank {frame.rank}: at the root, a leaf's rank is its own number")
    if frame.lanes != (right := total(number, range(LEAF, LEAF + 1))):
        raise Wrong(f"round {number}: {frame.lanes} went up, and the sum of the leaf's ranks is {right}")


def play(bench: Bench, number: int) -> None:
    """Play a round without loss."""
    for rank in range(BELOW):
        answers = contribute(bench, rank, number)
        if rank < BELOW - 1 and answers:
            raise Wrong(f"round {number}: a frame left after {rank + 1} of {BELOW} contributions")
    judge_up(answers, number, "all ranks of the leaf have contributed")
    answers = bench.send(UP, result_of(number))
    if UP in answers:
        raise Wrong(f"round {number}: the root's result was sent back to the root")
    if missing := [rank for rank in range(BELOW) if port_of(rank) not in answers]:
        raise Wrong(f"round {number}: the root's result came, and {ranks(missing)} did not get it")
    for frames in answers.values():
        judge_down(frames[0], number)


def judge_down(frame: Frame, number: int) -> None:
    """Raise Wrong unless a rank gets the root's result."""
    if frame.kind != Kind.RESULT or frame.number != number:
        raise Wrong(f"round {number}: what a rank got is no result of that round: {frame}")
    if frame.lanes != (right := total(number, range(LEAVES))):
        raise Wrong(f"round {number}: a rank got {frame.lanes}, and the sum of the tree is {right}")


def rounds(attempt: Attempt) -> None:
    """Play rounds one after the other."""
    bench = leaf_of(attempt)
    for number in range(1, 6):
        play(bench, number)


def repeat_of_a_rank(attempt: Attempt) -> None:
    """See that a repeat while others are missing is not added."""
    bench = leaf_of(attempt)
    contribute(bench, 0, 1)
    if contribute(bench, 0, 1):
        raise Wrong("round 1: rank 0's repeat made a frame leave, and rank 1 is still missing")
    judge_up(contribute(bench, 1, 1), 1, "all ranks of the leaf have contributed")


def lost_below(attempt: Attempt) -> None:
    """See that a leaf with the result answers itself."""
    bench = leaf_of(attempt)
    play(bench, 1)
    answers = contribute(bench, 1, 1)
    if UP in answers:
        raise Wrong("rank 1 repeated, the leaf has the result, and asked the root again: the leaf answers itself")
    if list(answers) != [port_of(1)]:
        raise Wrong(
            f"rank 1 lost the result and repeated; frames left through ports {sorted(answers)}, not through 2 alone"
        )
    judge_down(answers[port_of(1)][0], 1)


def lost_above(attempt: Attempt) -> None:
    """See that a leaf without the result asks again."""
    bench = leaf_of(attempt)
    for rank in range(BELOW):
        contribute(bench, rank, 1)
    judge_up(contribute(bench, 0, 1), 1, "rank 0 repeated and the leaf has no result: its contribution may be lost")


def late_result(attempt: Attempt) -> None:
    """See that results of other rounds do nothing."""
    bench = leaf_of(attempt)
    play(bench, 1)
    if bench.send(UP, result_of(1)):
        raise Wrong("a second copy of round 1's result was sent down again: who lost the first one asks for it")
    play(bench, 2)
    contribute(bench, 0, 3)
    if bench.send(UP, result_of(1)):
        raise Wrong("a late copy of round 1's result was sent down in round 3")
    contribute(bench, 1, 3)
    judge_late(bench.send(UP, result_of(3)))


def judge_late(answers: dict[int, list[Frame]]) -> None:
    """Raise Wrong if round 3 has no result, or a wrong one."""
    if port_of(0) not in answers:
        raise Wrong("a late copy of round 1's result came in round 3, and round 3's result was not sent down")
    judge_down(answers[port_of(0)][0], 3)


def bad_network(attempt: Attempt) -> None:
    """Play fifty rounds over the tree, where each link loses a fifth of the frames each way."""
    leaves, root, dice = [leaf_of(attempt, number) for number in range(LEAVES)], Root(LEAVES), random.Random(1)
    at = {(leaf, rank): 1 for leaf in range(LEAVES) for rank in range(BELOW)}

    def arrives() -> bool:
        return dice.random() > 1 / 5

    def down(leaf: int, answers: dict[int, list[Frame]]) -> None:
        for rank in range(BELOW):
            for frame in answers.get(port_of(rank), ()):
                if arrives() and frame.number == at[leaf, rank]:
                    judge_down(frame, frame.number)
                    at[leaf, rank] += 1

    for _ in range(4000):
        leaf, rank = dice.choice(list(at))
        if at[leaf, rank] > 50 or not arrives():
            continue
        answers = contribute(leaves[leaf], rank, at[leaf, rank], leaf)
        down(leaf, answers)
        for frame in answers.get(UP, ()):
            for port, result in root.process(port_of(leaf), frame) if arrives() else ():
                if arrives():
                    down(port - 1, leaves[port - 1].send(UP, result))
    if min(at.values()) <= 50:
        raise Wrong(f"on links that lose a fifth of all frames, round {min(at.values())} was never complete")


CHECKS = (rounds, repeat_of_a_rank, lost_below, lost_above, late_result, bad_network)
