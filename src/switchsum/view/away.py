"""Switches that are away and links that are gone, each with what hangs on it and whether jobs feel it."""

from __future__ import annotations

from typing import Final

from switchsum.view.facts import Facts, Overview, is_over
from switchsum.view.findings import Alert
from switchsum.view.late import WAITING_S
from switchsum.view.words import capital, listed
from switchsum_protocol import rpc
from switchsum_protocol.states import SwitchPresence

START: Final = "Start it again{where}. What waits goes on where it was."


def away(seen: Overview) -> list[Alert]:
    """Say which switches are away and which links are gone; links that lead to such a switch are not told apart."""
    gone = [one for one in seen.switches.switches if one.state == SwitchPresence.AWAY]
    names = [one.switch for one in gone]
    found = [_of_switch(seen, one) for one in gone]
    faults = [fault for fault in seen.links.faults if {*names}.isdisjoint(fault.switches)]
    for low, high in sorted(gone_links(seen)):
        if not {low, high} & {*names}:
            found.append(_of_link(seen, low, high))
            faults = [fault for fault in faults if not {low, high} <= {*fault.switches}]
    return found + [Alert(kind="links", text=f"Links: {fault}.") for fault in faults]


def gone_links(seen: Overview) -> set[tuple[str, str]]:
    """Return the pairs of switches, the lower one first, between which a tree of a job needs a link that is gone."""
    there = {frozenset((link.switch, link.far_switch)) for link in seen.links.links}
    pairs = {(child, above) for facts in seen.jobs for child, above, *_ in facts.job.tree}
    return {pair for pair in pairs if frozenset(pair) not in there} if seen.links.links else set()


def _of_switch(seen: Overview, switch: rpc.SwitchInfo) -> Alert:
    name = switch.switch
    links = sorted({low if high == name else high for low, high in gone_links(seen) if name in (low, high)})
    over = [facts for facts in seen.jobs if is_over(facts.job, name)]
    moved = [facts for facts in seen.jobs if facts not in over and _moved_from(facts.job, name)]
    felt = [_felt(facts) for facts in over] + [f"job {one.job.job} goes on without it" for one in moved]
    known = f"Switch {name}" if name else f"The switch{f' at {switch.p4runtime}' if switch.p4runtime else ''}"
    text = f"{known} is away; {listed(felt) if felt else 'no job needs it'}."
    details = f"{capital(switch.trouble)}." if switch.trouble else ""
    if links:
        details += f" Its links to {', '.join(links)} are gone with it."
    details += "".join(f" Job {one.job.job}: {_moved_from(one.job, name)}." for one in moved)
    where = f", at {switch.p4runtime}" if switch.p4runtime else ""
    return Alert(
        kind="away",
        text=text,
        details=details.strip(),
        advice=START.format(where=where),
        jobs=[one.job.job for one in over],
        switch=name,
    )


def _of_link(seen: Overview, low: str, high: str) -> Alert:
    over = [facts for facts in seen.jobs if any(row[:2] == [low, high] for row in facts.job.tree)]
    text = f"The link from {low} to {high} is gone{'; ' if over else ''}{listed([*map(_felt, over)]) if over else ''}."
    details, advice = "Both switches answer.", "Look at the cable and at both ports."
    return Alert(kind="links", text=text, details=details, advice=advice, jobs=[one.job.job for one in over])


def _felt(facts: Facts) -> str:
    """Say whether a job stands still."""
    since_s = max((one.waiting_s for one in facts.workers if one.age_s >= 0), default=0.0)
    if since_s >= WAITING_S:
        return f"job {facts.job.job} has waited {since_s:.0f} s for it"
    return f"job {facts.job.job} needs it, and has not stopped yet"


def _moved_from(job: rpc.JobInfo, switch: str) -> str:
    """Say where a job was moved from a switch; empty: it was not."""
    return next((move.what for move in reversed(job.moved) if switch in move.away), "")
