"""Cells in virtual time, one after the other in this process, so that kernels and programs stay loaded."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Final

import numpy as np

from switchsum import topologies
from switchsum.planning import topology
from switchsum.planning.sources import read
from switchsum_lab.options import SimulateOptions
from switchsum_lab.simulation import jobs, peers, scenario
from switchsum_lab.simulation.conditions import ETHERNET_OVERHEAD
from switchsum_lab.simulation.placement import place_all
from switchsum_lab.simulation.scenario import Result, Scenario
from switchsum_lab.sweeps import arrivals, counted, lateness, others, replay, shared_slots, simulated_ranks, supports
from switchsum_lab.sweeps.axes import ALL_TO_ALL, HALVES, OURS, Cell, Impossible
from switchsum_lab.sweeps.outcome import Outcome, left_out_of
from switchsum_protocol.builds import largest_build
from switchsum_protocol.errors import LocalError, UsageError
from switchsum_protocol.frame import FLOAT_FORMATS, FRAME_BYTES, LANE_BUILDS, MAX_WORKERS, payload_bytes

IDEAL_SWITCHES: Final = "ideal-switches"
RIVALS: Final = (*peers.ALGORITHMS, *peers.EXCHANGES, scenario.IDEAL, IDEAL_SWITCHES, *counted.WAYS)
"""Protocols beside ours; ideal ones are formulas, and sparse ones of hosts are counted."""
_OF_OUR_HOSTS: Final = ("batch_us", "outage", "pause")
MTU: Final = 1500
MOST_AT_ONE_SWITCH: Final = 128
"""Hosts of all jobs: as many as the shape `star` has."""
_OF_REAL_LINKS: Final = {
    "switch": "virtual links have the embedded switch only",
    "calls": "on virtual links only collectives of several steps of ours differ from call to call",
}


def lanes_of(cell: Cell) -> tuple[int, str]:
    """Return lanes of a frame and their format; raises Impossible if an MTU carries none."""
    parts = cell.lanes.split(",") if cell.lanes else []
    kind = next((part for part in parts if part in FLOAT_FORMATS), "int32")
    try:
        build = next((int(part) for part in parts if part.isdigit()), None) or largest_build(cell.mtu or MTU)
    except UsageError as error:
        raise Impossible("mtu", str(error)) from error
    return build, kind


def _block_of(cell: Cell) -> int:
    """Return how many values are zero, or not, together."""
    if cell.recording is not None:
        return replay.block(cell)
    if cell.block is not None:
        return cell.block
    return 1 if cell.collective == "topk" else lanes_of(cell)[0]


def scenario_of(cell: Cell, seed: int = 0) -> Scenario:
    """Return what is to be simulated; raises UsageError or LocalError."""
    build, kind = lanes_of(cell)
    options = SimulateOptions(
        topology=cell.topology or f"star,{cell.workers * cell.jobs}",
        size=str(cell.bytes),
        workers=cell.workers,
        jobs=cell.jobs,
        rate=None if cell.rate_mbit is None else f"{cell.rate_mbit:.9f}mbit",
        delay="1us" if cell.delay_us is None else f"{cell.delay_us:.9f}us",
        queue=cell.queue,
        mark=cell.mark,
        fail=cell.fail,
        overhead=ETHERNET_OVERHEAD if cell.overhead is None else cell.overhead,
        loss=cell.loss,
        host_queue=cell.host_queue,
        bucket=cell.bucket,
        late=cell.late,
        late_by="1ms" if cell.late_by_us is None else f"{cell.late_by_us:.9f}us",
        twice=cell.twice,
        batch="0s" if cell.batch_us is None else f"{cell.batch_us:.9f}us",
        outage=cell.outage,
        pause=cell.pause,
        lanes=f"{build},{kind}",
        density=cell.density,
        window=cell.slots,
        frame_cost=cell.frame_cost or "0s",
        against="",
        seed=seed,
    )
    wanted = options.scenario()
    planned = wanted.planned if cell.uplink_mbit is None else _with_uplinks(wanted.planned, cell.uplink_mbit)
    wanted = replace(wanted, link_mtu=cell.mtu, planned=planned)
    late = lateness.drawn(cell.late_ranks, len(wanted.hosts), seed)
    late_hosts = tuple((host, 0.0, late_s) for host, late_s in zip(wanted.hosts, late, strict=True) if late_s > 0)
    if cell.arrivals is not None:
        begins = zip(wanted.hosts_of_jobs, arrivals.times(cell.arrivals, cell.jobs, seed), strict=True)
        late_hosts = tuple((host, 0.0, at_s) for hosts, at_s in begins for host in hosts if at_s > 0)
    return replace(wanted, pauses=wanted.pauses + late_hosts, background=cell.background)


def _with_uplinks(planned: topologies.Network, mbit: float) -> topologies.Network:
    """Return a network whose hosts send at another rate than they receive."""
    hosts = {*planned.hosts}
    cables = (replace(cable, up_mbit=mbit) if hosts & {*cable.ends} else cable for cable in planned.cables)
    return replace(planned, cables=tuple(cables))


def check(cell: Cell) -> None:
    """Raise Impossible if a cell cannot be simulated: before anything runs."""
    if cell.protocol not in (OURS, *RIVALS):
        others.load(cell, (OURS, *RIVALS))
        if cell.uplink_mbit is not None:
            raise Impossible("uplink_mbit", f"{cell.protocol} is simulated on links with one rate for both directions")
        cell = replace(cell, lanes="", servers=None, fusion=False)
    others.refuse_servers(cell)
    _check_hosts(cell)
    shared_slots.check(cell, has_steps=_has_steps(cell))
    build, _ = lanes_of(cell)
    if build not in LANE_BUILDS:
        raise Impossible("lanes", f"a frame has {', '.join(map(str, LANE_BUILDS))} lanes, not {build}")
    if cell.mtu is not None and cell.protocol == OURS and largest_build(cell.mtu) < build:
        raise Impossible("mtu", f"frames of {build} lanes need an MTU of {FRAME_BYTES + payload_bytes(build) - 14}")
    if cell.slots is not None and not cell.jobs <= cell.slots <= jobs.SLOTS // cell.jobs:
        raise Impossible("slots", f"a job of {cell.jobs} has 1 to {jobs.SLOTS // cell.jobs} slots, not {cell.slots}")
    _check_network(cell.topology, cell.workers, cell.jobs)
    if cell.topology is not None and cell.rate_mbit is not None:
        try:
            read(cell.topology, cell.rate_mbit, is_given=True)
        except (UsageError, LocalError) as error:
            raise Impossible("rate_mbit", str(error)) from error
    if cell.protocol in peers.POWERS and cell.workers & (cell.workers - 1):
        raise Impossible("workers", f"{cell.protocol} needs a power of two of workers, not {cell.workers}")
    if cell.recording is not None:
        replay.check(cell)
        cell = replace(cell, bytes=4 * max(call.values for call in replay.calls(cell)))
    elif cell.step:
        raise Impossible("step", "only a recording has steps")
    try:
        wanted = scenario_of(cell)
        scenario.check_size(wanted)
    except UsageError as error:
        axis = error.option if isinstance(error, scenario.ScenarioError) else "workers"
        raise Impossible(axis, str(error)) from error
    except LocalError as error:
        raise Impossible("bytes", str(error)) from error
    shared_slots.check_network(cell, wanted)
    _check_arrays(cell, wanted)


def _check_hosts(cell: Cell) -> None:
    """Raise Impossible if a cell has what only real links have, or only our own hosts."""
    for name, reason in _OF_REAL_LINKS.items():
        if name == "calls" and cell.protocol == OURS and _has_steps(cell):
            continue
        if getattr(cell, name) != getattr(Cell(), name):
            raise Impossible(name, reason)
    if cell.fail is not None and (cell.protocol != OURS or cell.shared_slots is not None or _has_steps(cell)):
        raise Impossible("fail", f"only an allreduce of {OURS} is simulated with failures, with slots of its own")
    _check_arrivals(cell)
    if cell.background is not None and (cell.protocol not in (OURS, peers.RING) or cell.shared_slots is not None):
        raise Impossible("background", f"only {OURS} and {peers.RING} have streams beside them")
    if cell.late_ranks is not None and (cell.shared_slots is not None or cell.recording is not None):
        raise Impossible("late_ranks", "shared slots and recordings are simulated with ranks that begin together")
    if cell.late_ranks is not None and cell.pause is not None:
        raise Impossible("pause", "late ranks are hosts that stand still at first: leave one of both out")
    for name in _OF_OUR_HOSTS:
        if getattr(cell, name) != getattr(Cell(), name) and (cell.protocol != OURS or cell.shared_slots is not None):
            raise Impossible(name, f"only {OURS} has it, with slots of its own")


def _check_arrivals(cell: Cell) -> None:
    """Raise Impossible if jobs cannot arrive one after the other in a cell."""
    if cell.arrivals is None:
        return
    has_steps = cell.shared_slots is not None or cell.recording is not None or _has_steps(cell)
    if has_steps or cell.protocol not in (OURS, *peers.ALGORITHMS):
        raise Impossible("arrivals", f"allreduces of {OURS}, rings and trees of hosts have arrivals, with own slots")
    for name in ("late_ranks", "pause"):
        if getattr(cell, name) is not None:
            raise Impossible(name, "hosts of jobs that arrive stand still until then: leave one of both out")
    try:
        arrivals.times(cell.arrivals, cell.jobs, cell.seed)
    except UsageError as error:
        raise Impossible("arrivals", str(error)) from error


def _check_arrays(cell: Cell, wanted: Scenario) -> None:
    """Raise Impossible if the arrays of a cell cannot be made, or not by this protocol."""
    if wanted.shares_array and cell.recording is None and cell.density < 1 and cell.overlap != "all":
        raise Impossible("overlap", "these arrays are too large for one of each worker: only `all` can be simulated")
    if cell.protocol in counted.WAYS:
        counted.check(cell)
        return
    if cell.protocol in peers.EXCHANGES and cell.collective != ALL_TO_ALL:
        raise Impossible("collective", f"{cell.protocol} adds nothing: collective must be {ALL_TO_ALL}")
    if not _has_steps(cell):
        return
    if cell.collective == ALL_TO_ALL:
        _check_exchange(cell)
        return
    if cell.collective in HALVES:
        if cell.protocol in (peers.RING, scenario.IDEAL):
            return
        if cell.bytes % (4 * cell.workers):
            raise Impossible("bytes", f"{cell.collective} needs as many values for each of {cell.workers} workers")
    what = "fusion" if cell.fusion else "collective" if cell.collective != "allreduce" else "values"
    if cell.protocol != OURS and what != "values":
        raise Impossible(what, f"{cell.protocol} has none of this: only {OURS} has")
    if cell.protocol != OURS:
        return
    simulated_ranks.check(cell)
    if cell.jobs > 1:
        raise Impossible("jobs", "a collective of several steps is simulated for one job")
    if cell.workers > simulated_ranks.MOST_RANKS:
        raise Impossible(
            "workers", f"a collective of several steps is simulated for {simulated_ranks.MOST_RANKS} at most"
        )


def _check_exchange(cell: Cell) -> None:
    """Raise Impossible if an all-to-all cannot be as a cell has it.

    No switch adds in it.  Ranks of ours hand it to gloo, which sends to all others at the same time.
    """
    if cell.protocol not in (OURS, *peers.EXCHANGES, scenario.IDEAL):
        names = ", ".join((OURS, *peers.EXCHANGES, scenario.IDEAL))
        raise Impossible("collective", f"{cell.protocol} has no {ALL_TO_ALL}: only {names} have")
    if cell.bytes % (4 * cell.workers):
        raise Impossible("bytes", f"{ALL_TO_ALL} needs as many values for each of {cell.workers} workers")
    for name in ("fusion", "lanes", "slots", "batch_us", "recording", "density", "values", "calls"):
        if getattr(cell, name) != getattr(Cell(), name):
            raise Impossible(name, f"an {ALL_TO_ALL} is simulated as bytes that hosts send one another: leave it out")
    try:
        peers.check_hosts(_way_of(cell), cell.workers)
    except UsageError as error:
        raise Impossible("workers", str(error)) from error


def _way_of(cell: Cell) -> str:
    """Return the way in which the simulation of a network carries a cell out."""
    if cell.collective == ALL_TO_ALL:
        return peers.DIRECT if cell.protocol == OURS else cell.protocol
    if cell.collective in HALVES:
        return peers.HALF_RING
    return "switches" if cell.protocol == OURS else cell.protocol


def _has_steps(cell: Cell) -> bool:
    """Tell whether a cell of ours is simulated with a communicator for each rank."""
    return cell.collective != "allreduce" or cell.fusion or cell.values != supports.WHOLE


@cache
def _check_network(source: str | None, workers: int, count: int) -> None:
    """Raise Impossible if a network is none, or its only switch lacks bits for so many workers."""
    if source is None and workers > MAX_WORKERS:
        raise Impossible("workers", f"one switch has bits for {MAX_WORKERS} workers, not {workers}: give a topology")
    if source is None and workers * count > MOST_AT_ONE_SWITCH:
        raise Impossible("jobs", f"one switch has room for {MOST_AT_ONE_SWITCH} workers of all jobs: give a topology")
    try:
        read(source or f"star,{workers * count}", topology.DEFAULT_MBIT)
    except (UsageError, LocalError) as error:
        raise Impossible("topology", str(error)) from error


def check_trees(cell: Cell) -> None:
    """Raise Impossible if no trees serve the jobs of a cell that has passed `check`: this takes longer."""
    _check_trees(cell.topology, cell.workers, cell.jobs)


@cache
def _check_trees(source: str | None, workers: int, count: int) -> None:
    planned = read(source or f"star,{workers * count}", topology.DEFAULT_MBIT)
    try:
        place_all(planned, Scenario(planned=planned, workers=workers, jobs=count, size=4).hosts_of_jobs, jobs.SLOTS)
    except (UsageError, LocalError) as error:
        raise Impossible("workers", str(error)) from error


def run(cell: Cell, seed: int) -> Outcome:
    """Simulate a cell; raises SwitchsumError."""
    return _one(cell, seed) if cell.recording is None else replay.run(cell, seed, _one)


def _one(cell: Cell, seed: int, draw: replay.Draw | None = None) -> Outcome:
    """Simulate one collective; `draw` makes the arrays in place of the cell's density and overlap."""
    is_other = cell.protocol not in (OURS, *RIVALS)
    wanted = scenario_of(replace(cell, lanes="") if is_other else cell, seed)
    if cell.protocol in (scenario.IDEAL, IDEAL_SWITCHES):
        name = scenario.IDEAL if cell.protocol == scenario.IDEAL else "ideal switches"
        share = 0.5 if cell.collective in (*HALVES, ALL_TO_ALL) else 1.0
        return Outcome.of(share * scenario.ideals(wanted)[name], cell.bytes)
    arrays = partial(_arrays, cell, draw)
    if is_other:
        return _outcome(cell, wanted, others.simulate(cell, wanted, arrays))
    if cell.protocol in counted.WAYS:
        return counted.run(cell, wanted, *arrays(wanted))
    if cell.shared_slots is not None:
        return shared_slots.run(cell, wanted, arrays)
    if cell.protocol == OURS and _has_steps(cell) and cell.collective != ALL_TO_ALL:
        return simulated_ranks.run(cell, wanted, _block_of(cell), *arrays(wanted))
    [found] = scenario.simulate(wanted, ways=[_way_of(cell)], draw=arrays)
    return _outcome(cell, wanted, found)


def _arrays(cell: Cell, draw: replay.Draw | None, wanted: Scenario) -> tuple[list[supports.Array], supports.Array]:
    """Return the arrays of a job, and their sum."""
    ranks = 1 if wanted.shares_array else wanted.workers
    if draw is not None:
        made = [draw(rank) for rank in range(ranks)]
        total: supports.Array = np.sum(made, axis=0, dtype=np.float32)
    else:
        made, total = supports.arrays(
            ranks=ranks,
            values=wanted.size // 4,
            block=_block_of(cell),
            density=cell.density,
            overlap=cell.overlap,
            seed=wanted.seed,
            kind=cell.values,
        )
    return (made * wanted.workers, total * wanted.workers) if wanted.shares_array else (made, total)


def _outcome(cell: Cell, wanted: Scenario, found: Result) -> Outcome:
    """Return what a simulation came to; raises LocalError if it did not end or a sum is wrong."""
    if not found.is_complete:
        raise LocalError(f"the simulation stood still: {found.finished} of {len(wanted.hosts)} workers had finished")
    if found.is_right is False:
        raise LocalError(others.WRONG)
    switches = {*wanted.planned.switches, others.SWITCH, *wanted.others}
    sent = sum(link.bytes for link in found.links if link.name.partition("->")[0] not in switches)
    took_s, slowest_ms = found.simulated_s, None
    if cell.arrivals is not None:
        arrived = arrivals.times(cell.arrivals, cell.jobs, wanted.seed)
        jobs_s = [end - at for end, at in zip(found.jobs_s or (took_s,), arrived, strict=True)]
        took_s, slowest_ms = sum(jobs_s) / len(jobs_s), 1e3 * max(jobs_s)
    return Outcome.of(
        took_s,
        cell.bytes,
        slowest_ms=slowest_ms,
        sent_mb=sent / len(wanted.hosts) / 1e6,
        frames=found.frames,
        repeats=found.repeats,
        late_ms=None if cell.late_ranks is None else 1e3 * max((until for _, _, until in wanted.pauses), default=0.0),
        sum_error=found.sum_error,
        left_out=left_out_of(found.left_out),
        right=found.is_right,
    )
