"""What came of the cases, in words: rules that are broken, and the frames that show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from .play import Answers, Step
from .rules import RULES
from .run import Failure, Outcome

MOST_STEPS: Final = 12
"""Steps of a case that are shown: its last ones."""


def summary(outcome: Outcome, target: str) -> str:
    """Return the last line: how many cases passed, and which rules are broken."""
    played = outcome.played.total()
    failed, unsteady = len(outcome.failures), len(outcome.unsteady)
    words = [f"{target}: {played} cases of {len(outcome.played)} rules"]
    if outcome.skipped:
        words.append(f"{len(outcome.skipped)} left out, which need raw frames (packet:INTERFACE)")
    if failed:
        words.append(
            f"{failed} failed: broken {'are' if len(outcome.broken) > 1 else 'is'} {', '.join(_ordered(outcome))}"
        )
    if unsteady:
        words.append(
            f"{unsteady} passed only at the second try: frames are lost on the way, or a rule is broken now and then"
        )
    if outcome.is_right:
        words.append("all passed")
    return "; ".join(words)


def lines(outcome: Outcome, *, every: bool = False) -> Iterator[str]:
    """Yield the report: for each broken rule one case, or every case, with its frames."""
    for rule in _ordered(outcome):
        failures = [failure for failure in outcome.failures if failure.rule == rule]
        of = outcome.played[rule]
        yield f"{rule} is broken: {RULES[rule]}"
        for failure in failures if every else failures[:1]:
            yield from _case(failure)
        if len(failures) > 1 and not every:
            yield f"  {len(failures) - 1} more cases show it (of {of} about this rule); --all shows them"
    for failure in outcome.unsteady:
        yield f"{failure.rule} is unsteady: {failure.title}: {failure.text}"


def as_json(outcome: Outcome, target: str) -> dict[str, Any]:
    """Return the outcome for programs: frames are hexadecimal."""

    def shown(answers: Answers) -> dict[str, list[str]]:
        return {str(rank): [frame.hex() for frame in frames] for rank, frames in answers.items()}

    def step_of(step: Step) -> dict[str, Any]:
        sent = [{"rank": rank, "frame": frame.hex()} for rank, frame in step.sent]
        return {"rule": step.rule, "sent": sent, "expected": shown(step.expected), "came": shown(step.came)}

    def failure_of(failure: Failure) -> dict[str, Any]:
        steps = [step_of(step) for step in failure.steps]
        return {"rule": failure.rule, "case": failure.title, "difference": failure.text, "steps": steps}

    return {
        "target": target,
        "is_right": outcome.is_right,
        "played": dict(outcome.played),
        "left_out": outcome.skipped,
        "failures": [failure_of(failure) for failure in outcome.failures],
        "unsteady": [failure_of(failure) for failure in outcome.unsteady],
    }


def _ordered(outcome: Outcome) -> list[str]:
    """Return broken rules, first those of which the largest share of cases fails: they are the causes as a rule."""
    broken = outcome.broken
    return sorted(broken, key=lambda rule: (-broken[rule] / max(1, outcome.played[rule]), list(RULES).index(rule)))


def _case(failure: Failure) -> Iterator[str]:
    yield f"  case: {failure.title}"
    yield f"  {failure.text}"
    shown = failure.steps[-MOST_STEPS:]
    if len(shown) < len(failure.steps):
        yield f"    ({len(failure.steps) - len(shown)} exchanges before these were right)"
    for place, step in enumerate(shown, 1):
        for rank, frame in step.sent:
            yield f"    rank {rank} sends  {_text(frame)}"
        if place < len(shown):
            yield from _answers("gets ", step.came)
        else:
            yield from _answers("got", step.came) if step.came else ["    nobody got anything"]
            yield from _answers("should get", step.expected) if step.expected else ["    nobody should get anything"]


def _answers(verb: str, answers: Answers) -> Iterator[str]:
    for rank, frames in sorted(answers.items()):
        for frame in frames:
            yield f"    rank {rank} {verb}  {_text(frame)}"


def _text(frame: bytes) -> str:
    """Write a frame as `switchsum capture` does."""
    from scapy.layers.l2 import Ether  # noqa: PLC0415 - a large library, which a report without failures does without

    from switchsum.packets.text import one_line  # noqa: PLC0415
    from switchsum_host.links.scapy_layer import Aggregation  # noqa: PLC0415

    packet = Ether(frame)
    return one_line(packet) if Aggregation in packet else f"{len(frame)} bytes: {frame[:64].hex()}"
