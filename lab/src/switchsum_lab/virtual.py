"""`switchsum run --virtual-time`: the user's processes on a simulated network."""

from __future__ import annotations

import sys
from typing import Final

from switchsum import topologies
from switchsum.launch.local_job import JOB, LOOPBACK, environment_of
from switchsum.launch.options import RunOptions
from switchsum.planning.runs import places
from switchsum.planning.sources import read
from switchsum.view.late import find_late, said
from switchsum_controller.jobs.late_calls import Calls
from switchsum_lab.simulation import jobs
from switchsum_lab.simulation.conditions import CableConditions, parse_failures, parse_queue, parse_time
from switchsum_lab.simulation.ranks import Ranks
from switchsum_protocol.errors import UsageError
from switchsum_switch.bmv2 import process as bmv2
from switchsum_switch.process.children import Child, Children
from switchsum_switch.process.ending import ended_by_signals, scratch_folder

_NOBODY: Final = "virtual-time-has-no-controller"
"""Address where nobody listens. A call that needs a controller fails with this name."""


def run(options: RunOptions) -> int:
    """Run a job in virtual time; return the exit code of the first process that failed, or 0."""
    source = options.topology or f"star,{options.workers}"
    job = place(options, read(source, options.link_mbit, is_given=options.rate is not None))
    with ended_by_signals(), scratch_folder() as scratch, Children(scratch) as children:
        ranks = Ranks(job, scratch, clock_factor=options.clock_factor, timeout_s=options.timeout_s)
        meeting = LOOPBACK, bmv2.free_port()
        workers = [_start(children, options, rank, scratch, ranks.path, meeting) for rank in range(options.workers)]
        ranks.serve(lambda: children.failed(workers) is not None, lambda rank: workers[rank].process.poll() is not None)
        failed, code = children.wait(workers)
    sys.stderr.write("\n".join(_account(options, job, ranks.calls)) + "\n")
    if failed is not None:
        sys.stderr.write(f"switchsum: {failed.ending(code)}; the job is over\n")
        return code or 1
    return 0


def place(options: RunOptions, planned: topologies.Network) -> jobs.Job:
    """Return the job on its network; raises UsageError where it has no room there."""
    if options.workers > len(planned.hosts):
        raise UsageError(
            f"the topology has {len(planned.hosts)} hosts for {options.workers} ranks: a simulated host has one"
        )
    queue_bytes, queue_frames = parse_queue(options.queue)
    conditions = CableConditions(
        delay_s=parse_time(options.delay), queue_bytes=queue_bytes, queue_frames=queue_frames, loss=options.loss
    )
    lanes, seed = options.effective_lanes_per_frame, options.seed or 0
    network = jobs.build(planned, conditions, lanes=lanes, seed=seed)
    failures = parse_failures(options.fail)
    job = jobs.Job(
        network,
        planned,
        places(planned.hosts, options.workers),
        conditions,
        lanes=lanes,
        has_controller=bool(failures),
        timeout_s=options.timeout_s,
        seed=seed,
    )
    for name, at_s in failures:
        job.fail(name, at_s)
    return job


def _start(
    children: Children, options: RunOptions, rank: int, scratch: str, path: str, meeting: tuple[int, int]
) -> Child:
    environment = environment_of(options, rank, f"unix:{scratch}/{_NOBODY}", f"virtual:{path}", meeting)
    prefix = not (options.terminal and rank == 0)
    return children.start(f"rank {rank}", options.command, environment=environment, prefix=prefix)


def _account(options: RunOptions, job: jobs.Job, calls: Calls) -> list[str]:
    """Say what the run came to."""
    network = job.network
    busiest = next(iter(network.busiest()))
    if options.clock_factor:
        how = f"computation took {options.clock_factor:g} times what the clock said: the next run differs"
    else:
        how = "computation took what compute() said: every run is the same"
    late = find_late(calls.report(network.now))
    return [
        *(f"switchsum: simulated: {text}" for text in job.moved),
        *([] if late is None else [f"switchsum: simulated: {said(late, f'rank {late.rank}')}"]),
        f"switchsum: simulated, not measured: {network.now * 1e3:.9g} ms of virtual time; {how}",
        f"switchsum: simulated {network.world.frames_moved:,} frames, {job.repeats:,} repeats; longest queue "
        f"{busiest.most_queued_bytes:,} bytes at {busiest.name}; digest {network.digest} of job {JOB!r}",
    ]
