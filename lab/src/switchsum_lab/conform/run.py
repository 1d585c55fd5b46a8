"""Plays cases on a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from switchsum_protocol.errors import UsageError

from .case import Case
from .cases import all_cases
from .facts import Facts
from .play import Bench, Different, Play, Step, Target
from .rules import RULES

TRIES = 2
"""A case that fails is played once more: the way to a switch may lose a frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A case that the target did not play as the rules say, and the frames up to the one that shows it."""

    rule: str
    """The rule that is broken: that of the case, or that of a step with which the case only begins."""
    title: str
    text: str
    """Description of the difference at the last step."""
    steps: tuple[Step, ...]


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of all cases."""

    played: Counter[str] = field(default_factory=Counter)
    """Cases by rule."""
    failures: list[Failure] = field(default_factory=list)
    unsteady: list[Failure] = field(default_factory=list)
    """The first try of cases that passed at the second."""
    skipped: list[str] = field(default_factory=list)
    """Titles of cases that need raw frames, where the way to the switch takes none."""

    @property
    def broken(self) -> Counter[str]:
        """Return how many cases failed, by rule."""
        return Counter(failure.rule for failure in self.failures)

    @property
    def is_right(self) -> bool:
        """Whether all cases passed at once."""
        return not self.failures and not self.unsteady


def chosen(rules: Collection[str]) -> list[Case]:
    """Return the cases of some rules, or of all where none is named; raises UsageError for a name of no rule."""
    if unknown := sorted(set(rules) - RULES.keys()):
        raise UsageError(f"there is no rule {unknown[0]!r}; there are {', '.join(RULES)}")
    return [case for case in all_cases() if not rules or case.rule in rules]


def run(
    target: Target,
    facts: Facts,
    *,
    rules: Collection[str] = (),
    on_case: Callable[[int, int], object] = lambda done, of: None,
    tries: int = TRIES,
    stops: bool = False,
) -> Outcome:
    """Play the cases of some rules, or all; `on_case` is told how many are done, of how many.

    `stops`: the first case that fails is the last one.
    """
    bench, outcome, cases = Bench(target=target, facts=facts), Outcome(), chosen(rules)
    fresh = [facts.first_slot + facts.slot_count - 1, facts.first_slot + facts.slot_count - 2]
    ordinary = range(facts.first_slot, facts.first_slot + facts.slot_count - 2)
    for count, case in enumerate(cases):
        on_case(count, len(cases))
        if case.is_raw and not target.is_raw:
            outcome.skipped.append(case.title)
            continue
        outcome.played[case.rule] += 1
        slot = fresh.pop() if case.is_fresh else ordinary[count % len(ordinary)]
        failures = []
        for _ in range(1 if case.is_fresh else tries):
            failure = _play(bench, case, slot, count)
            if failure is None:
                break
            failures.append(failure)
        else:
            outcome.failures.append(failures[0])
            if stops:
                break
            continue
        outcome.unsteady += failures
    on_case(len(cases), len(cases))
    return outcome


def _play(bench: Bench, case: Case, slot: int, seed: int) -> Failure | None:
    play = Play(bench, slot, case.version, seed)
    try:
        case.act(play)
    except Different as found:
        is_early = len(found.steps) <= play.event
        rule = found.steps[-1].rule if is_early else case.rule
        return Failure(rule=rule, title=case.title, text=found.text, steps=found.steps)
    return None
