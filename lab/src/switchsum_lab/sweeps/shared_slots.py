"""Jobs that share the slots of a switch in virtual time: what finds its slot taken goes to an aggregator beside it.

On a topology of several switches one of them adds for all jobs, and the others only forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from switchsum.topologies import Cable, Network
from switchsum_host.engine.state import Count
from switchsum_lab.simulation import jobs, placement
from switchsum_lab.simulation.scenario import Drawing, Scenario
from switchsum_lab.sweeps.axes import OURS, Cell, Impossible
from switchsum_lab.sweeps.outcome import Outcome
from switchsum_protocol.errors import LocalError, UsageError
from switchsum_protocol.frame import MAX_WORKERS
from switchsum_protocol.member_rpc import MOST_IN_FLIGHT

AGGREGATOR: Final = "aggregator"


def check(cell: Cell, *, has_steps: bool) -> None:
    """Raise Impossible if jobs cannot share slots as a cell asks for, or if it says how and none are shared."""
    if cell.shared_slots is None:
        if cell.aggregator_mbit is not None:
            raise Impossible("aggregator_mbit", "an aggregator is there for shared slots only: give `shared_slots`")
        return
    if cell.protocol != OURS:
        raise Impossible("shared_slots", f"{cell.protocol} has none of it: only {OURS} has")
    if cell.workers > MAX_WORKERS:
        raise Impossible("workers", f"slots are shared on one switch, which has bits for {MAX_WORKERS} workers")
    if has_steps:
        raise Impossible("shared_slots", "a collective of several steps has slots of its own")
    if not 1 <= cell.shared_slots <= jobs.SLOTS:
        raise Impossible("shared_slots", f"a switch has 1 to {jobs.SLOTS} slots, not {cell.shared_slots}")
    if cell.slots is not None and cell.slots > (most := _window(replace(cell, slots=None))):
        raise Impossible("slots", f"a job has at most {most} of these shared slots in flight, not {cell.slots}")


def check_network(cell: Cell, wanted: Scenario) -> None:
    """Raise Impossible if slots are shared, and hosts do not all reach one switch over one link each."""
    if cell.shared_slots is None:
        return
    try:
        placement.middle(wanted.planned, wanted.hosts)
    except UsageError as error:
        raise Impossible("topology", str(error)) from error


def _window(cell: Cell) -> int:
    """Return how many slots a job has in flight."""
    assert cell.shared_slots is not None
    return cell.slots or min(cell.shared_slots, MOST_IN_FLIGHT, jobs.SLOTS // cell.jobs)


def run(cell: Cell, wanted: Scenario, draw: Drawing) -> Outcome:
    """Simulate a cell; raises SwitchsumError."""
    assert cell.shared_slots is not None
    root, hosts = placement.middle(wanted.planned, wanted.hosts), wanted.hosts_of_jobs
    planned = _beside_aggregator(wanted.planned, root, cell.aggregator_mbit)
    lanes = wanted.lanes_per_frame
    network = jobs.build(planned, wanted.conditions, lanes=lanes, mtu=wanted.mtu, seed=wanted.seed)
    controller = jobs.controlled(
        network,
        planned,
        wanted.hosts,
        lanes=lanes,
        seed=wanted.seed,
        fallback=AGGREGATOR,
        shared_slots=cell.shared_slots,
        root=root,
    )
    made = [
        jobs.Job(
            network,
            planned,
            own,
            wanted.conditions,
            lanes=lanes,
            window_slots=_window(cell),
            cost=wanted.cost,
            share=jobs.Share(
                number=number,
                first_host=sum(map(len, hosts[:number])),
                controller=controller,
                shares_slots=True,
            ),
            seed=wanted.seed,
        )
        for number, own in enumerate(hosts)
    ]
    drawn = [draw(replace(wanted, seed=wanted.seed + number)) for number in range(cell.jobs)]
    ended = jobs.add_together(made, [own for own, _ in drawn], lanes=wanted.lanes)
    for one in ended:
        if one.error is not None:
            raise one.error
    if not all(one.is_complete for one in ended):
        finished = sum(one.finished for one in ended)
        raise LocalError(f"the simulation stood still: {finished} of {len(wanted.hosts)} workers had finished")
    for arrays, total in drawn:
        if wanted.lanes == "int32" and not all(np.allclose(one, total, rtol=1e-5, atol=1e-3) for one in arrays):
            raise LocalError("a sum was wrong, so this run does not count")
    sent = sum(link.bytes for link in network.busiest() if link.name.partition("->")[0] in wanted.hosts)
    return Outcome.of(
        max(one.seconds for one in ended),
        cell.bytes,
        sent_mb=sent / len(wanted.hosts) / 1e6,
        frames=network.world.frames_moved,
        repeats=sum(job.repeats for job in made),
        taken=_taken(made),
        right=True,
    )


def _beside_aggregator(planned: Network, root: str, mbit: float | None) -> Network:
    """Return a network with an aggregator beside a switch, by default with a link like the slowest one."""
    cable = Cable(ends=(root, AGGREGATOR), mbit=mbit or min(cable.mbit for cable in planned.cables))
    return replace(planned, switches=(*planned.switches, AGGREGATOR), cables=(*planned.cables, cable))


def _taken(made: Sequence[jobs.Job]) -> float:
    """Return the share of rounds whose slot another job had."""
    counts = np.sum([worker.engine.counts for job in made for worker in job.workers], axis=0)
    return float(counts[Count.TAKEN] / counts[Count.ROUNDS])
