"""One round of shared slots over two levels, which are not built: what goes wrong, and which rules mend it.

Run: python -m checks.verify.two_levels

A leaf has a slot that jobs share, and two workers.  What finds the slot taken goes up to the root by itself; when the
slot has both contributions, their sum goes up and stands for both.  The root has a third worker of its own.

Frames may be lost, repeated, late and in any order: whatever was sent once may arrive at any time, or never.  Another
job may take the leaf's slot at any time, and give it back.  The search visits all states of one round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

WORKERS: Final = (0, 1)
"""Those behind the leaf. The third one is 2."""
CHANGES: Final = 5
"""How often the leaf's slot may change hands."""


class Rule(Enum):
    """What happens to a leaf's sum of which the root has one contribution already."""

    ADD = "the root adds it"
    DROP = "the root drops it"
    GIVE_UP = "the root refuses it, and the leaf gives up its slot"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that there is in the round."""

    is_owner: bool = True
    """The leaf's slot is this job's."""
    cell: frozenset[int] = frozenset()
    """Workers whose contributions the leaf's slot has."""
    added: tuple[int, int, int] = (0, 0, 0)
    """How often the root has added the contribution of each worker."""
    sent: frozenset[tuple[str, int]] = frozenset()
    """Frames that may arrive, by what they are and whose."""
    changes: int = CHANGES

    def with_frame(self, kind: str, worker: int = 0) -> State:
        """Return the state after something was sent."""
        return replace(self, sent=self.sent | {(kind, worker)})

    def add(self, *workers: int) -> State:
        """Return the state after the root has added contributions."""
        counts = [count + (worker in workers) for worker, count in enumerate(self.added)]
        return replace(self, added=(counts[0], counts[1], counts[2]))


def following(state: State, rule: Rule) -> Iterator[State]:
    """Yield the states that may follow."""
    if not all(state.added):  # a worker without a result repeats
        for worker in WORKERS:
            yield state.with_frame("to leaf", worker)
    if not state.added[2]:
        yield state.add(2)
    for kind, worker in state.sent:
        yield _after(state, kind, worker, rule)
    if state.changes:
        for is_owner in (False, True):
            yield replace(state, is_owner=is_owner, cell=frozenset(), changes=state.changes - 1)


def _after(state: State, kind: str, worker: int, rule: Rule) -> State:
    """Return the state after a frame has arrived."""
    if kind == "to leaf":
        if not state.is_owner:
            return state.with_frame("alone", worker)
        after = replace(state, cell=state.cell | {worker})
        return after.with_frame("sum") if len(after.cell) == len(WORKERS) else after
    if kind == "alone":
        return state if state.added[worker] else state.add(worker)
    if kind == "refused":
        return replace(state, is_owner=False, cell=frozenset())
    there = [worker for worker in WORKERS if state.added[worker]]
    if len(there) == len(WORKERS):
        return state
    if not there or rule is Rule.ADD:
        return state.add(*WORKERS)
    return state.with_frame("refused") if rule is Rule.GIVE_UP else state


def search(rule: Rule) -> tuple[int, int, int]:
    """Return how many states there are, in how many a sum is wrong, and from how many no worker gets a result.

    The slot need not change hands for a result.
    """
    seen, waiting = {State()}, deque([State()])
    before: dict[State, set[State]] = {}
    while waiting:
        state = waiting.popleft()
        for after in following(state, rule):
            if after.changes == state.changes:
                before.setdefault(after, set()).add(state)
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    ends = {state for state in seen if all(state.added)}
    found = [*ends]
    while found:
        new = before.get(found.pop(), set()) - ends
        ends |= new
        found += new
    return len(seen), sum(max(state.added) > 1 for state in seen), len(seen) - len(ends)


def main() -> None:
    """Print what each rule comes to."""
    for rule in Rule:
        states, wrong, stuck = search(rule)
        print(f"{rule.value}: {states:,} states, {wrong:,} with a double addition, {stuck:,} dead ends")


if __name__ == "__main__":
    main()
