"""Why a job waits, in sentences, from what controller, switch and workers know of it: the table of `rules`, applied."""

from __future__ import annotations

from typing import Final

from switchsum.view.facts import Facts
from switchsum.view.findings import Finding
from switchsum.view.late import stands
from switchsum.view.rounds import trees_of
from switchsum.view.rules import RULES, Level, Rule
from switchsum.view.symptoms import SYMPTOMS, Symptom
from switchsum.view.words import listed, slots_text

MOST_SWITCHES: Final = 6
"""Number of switches of a tree that are named one by one."""


def explain(facts: Facts) -> list[Finding]:
    """Say all that is worth saying of a job; the first sentence names what costs it most."""
    found: list[tuple[Rule, Symptom]] = []
    for level in Level:
        if level is not Level.BESIDE and found:
            if level is not Level.SLOW or found[0][0].level <= Level.SWITCH:
                continue
            # Links that lost frames before a job came to stand still may be the cause.
            found += [one for one in _seen(facts, level) if one[0].kind in ("link", "congested")]
            continue
        found += sorted(_seen(facts, level), key=lambda one: -one[1].share)
    return [finding(rule, seen) for rule, seen in found]


def _seen(facts: Facts, level: Level) -> list[tuple[Rule, Symptom]]:
    rules = [rule for rule in RULES if rule.level is level]
    return [(rule, seen) for rule in rules for seen in SYMPTOMS[rule.symptom](facts) if seen.share >= rule.share]


def finding(rule: Rule, seen: Symptom) -> Finding:
    """Fill a row of the table with what was seen."""
    text, details, advice, command = (
        template.format_map(seen.words) for template in (rule.sentence, rule.details, rule.advice, rule.command)
    )
    return Finding(
        kind=rule.kind,
        text=text,
        details=details,
        advice=advice,
        command=command,
        ranks=seen.ranks,
        since_s=seen.since_s,
        slots=seen.slots,
        operation=seen.operation,
        cause=seen.cause,
        share=seen.lost,
        symptom=rule.symptom,
        level=int(rule.level),
        cost=round(seen.share, 4),
    )


def headline(facts: Facts) -> str:
    """Say what job this is and which slots it has."""
    job = facts.job
    which = "shared slots" if job.shares_slots and not job.own_slot_count else "slots"
    state = job.state
    if stands(facts.workers):
        state = f"has stood still for {max(one.waiting_s for one in facts.workers if one.age_s >= 0):.0f} s"
    return f"job {job.job}: {state}, {job.workers} ranks, {which} {slots_text(job)} of {_switches(facts)}"


def _switches(facts: Facts) -> str:
    """Name the switches that a job's sums pass: one, a tree of a few by name, or how many there are."""
    trees = trees_of(facts.job)
    names = {name for parents in trees.values() for pair in parents.items() for name in pair}
    if not names:
        return "the switch"
    if len(trees) > 1:
        return f"{len(trees)} trees over {len(names)} switches"
    [parents] = trees.values()
    below: dict[str, list[str]] = {}
    for child, above in sorted(parents.items()):
        below.setdefault(above, []).append(child)
    levels = [f"{listed(children)} below {above}" for above, children in sorted(below.items())]
    return f"a tree of {len(names)} switches{f': {listed(levels)}' if len(names) <= MOST_SWITCHES else ''}"
