"""The options of `switchsum simulate`, from which sweeps make the scenarios of their cells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from switchsum.cli.output import JsonOption
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import FLOAT_FORMATS, LANE_BUILDS

_RATE = "10gbit"
"""Rate of the links of a shape, unless another one is given."""

if TYPE_CHECKING:
    from switchsum_lab.simulation.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """The options of `switchsum simulate`."""

    topology: Annotated[
        str | None,
        Option(
            help="A YAML file, or a shape: star,8; leaf-spine,4,2,4; fat-tree,4. Default: a star with a host for each."
        ),
    ] = None
    size: Annotated[str, Option("--bytes", help="Bytes of each rank's array: 10MB, 64KiB.")] = "1MB"
    workers: Annotated[
        int | None, Option("--workers", "-n", help="Number of ranks of a job, one on each host. Default: all hosts.")
    ] = None
    jobs: Annotated[int, Option(min=1, help="Number of jobs that add at the same time, on hosts of their own.")] = 1
    rate: Annotated[
        str | None,
        Option(help="Rate of all links, or of those to which a file gives none. Default: the file's, or 10gbit."),
    ] = None
    delay: Annotated[str, Option(help="Delay of each cable.")] = "1us"
    queue: Annotated[
        str | None, Option(help="Length of each port's queue: 64KiB, or 64f (frames). Default: no limit.")
    ] = None
    mark: Annotated[
        str | None, Option(help="Ports mark frames (ECN) that find more than this in the queue: 24KiB. Default: none.")
    ] = None
    loss: Annotated[float, Option(help="Probability that a frame is lost on a link.")] = 0.0
    host_queue: Annotated[
        str | None, Option(help="Length of each host's own queue: 64KiB, or 64f. Default: hosts wait for their link.")
    ] = None
    bucket: Annotated[
        str | None,
        Option(help="Token bucket of each link (tbf): bytes that pass at once after a pause. Default: none."),
    ] = None
    late: Annotated[float, Option(help="Probability that a frame is late on a link, so that others overtake it.")] = 0.0
    late_by: Annotated[str, Option(help="Most by which such a frame is late.")] = "1ms"
    twice: Annotated[float, Option(help="Probability that a frame arrives twice over a link.")] = 0.0
    batch: Annotated[str, Option(help="How long hosts wait for more frames behind the first one.")] = "0s"
    outage: Annotated[
        str | None, Option(help="Links that are down for a time, both ways: s1->h1@3ms+50ms (from 3 ms on).")
    ] = None
    pause: Annotated[
        str | None, Option(help="Hosts and switches that stand still for a time: h1@3ms+50ms,s1@1s+20ms.")
    ] = None
    overhead: Annotated[
        int,
        Option(min=0, help="Bytes that the cable adds to each frame: 24 on Ethernet, 0 on a veth pair."),
    ] = 24
    lanes: Annotated[
        str, Option(help=f"Lanes per frame, 128, 256 or 2048; or {', '.join(FLOAT_FORMATS)}; or 2048,int8.")
    ] = "256"
    density: Annotated[float, Option(help="Share of each rank's blocks that are not zero.")] = 1.0
    window: Annotated[int | None, Option(help="Slots of each job. Default: as many as `switchsum run` takes.")] = None
    frame_cost: Annotated[
        str,
        Option(help="Time that a host's processor needs for each frame, or 'measured': 0.5 ns a byte."),
    ] = "0s"
    against: Annotated[
        str,
        Option(
            help="Compare with hosts without a switch (names with commas between them): ring, "
            "two-level-ring, halving-doubling, recursive-doubling, tree, ideal-ring; or best: all that may be it."
        ),
    ] = "ideal-ring"
    seed: Annotated[int, Option(help="Seed of all random events.")] = 0
    until: Annotated[str | None, Option(help="End at this virtual time.")] = None
    fail: Annotated[str | None, Option(help="Switches and links that fail, and when: s1@3.2ms,s2->s3@1ms.")] = None
    switch_timeout: Annotated[
        str | None, Option(help="With --fail: how long ranks wait for a switch before they give up. Default: 20s.")
    ] = None
    move_after: Annotated[
        str | None,
        Option(help="With --fail: how long the controller waits for a switch before it moves jobs. Default: 5s."),
    ] = None
    longest: Annotated[str, Option(help="Refuse a run whose estimated time on this machine is longer.")] = "3600s"
    pcap: Annotated[
        str | None, Option(help="Write the frames of a link such as h1->s1 to a file: LINK or LINK=FILE.")
    ] = None
    trace: Annotated[
        Path | None,
        Option(help="Write the queues of all links, or of the links of --plot, to this file, for ui.perfetto.dev."),
    ] = None
    plot: Annotated[
        str | None, Option(help="Draw the queue of a link (s1->h1) or the window of a host (h1) over time.")
    ] = None
    as_json: JsonOption = False

    def scenario(self) -> Scenario:
        """Return what is to be simulated; raises UsageError and TopologyError."""
        from switchsum.planning.sources import read
        from switchsum_lab.simulation import conditions
        from switchsum_lab.simulation.conditions import CableConditions, parse_rate, parse_time

        if self.topology is None and self.workers is None:
            raise UsageError("how many ranks? Give --workers 8, which means a star, or --topology")
        mbit = parse_rate(self.rate or _RATE) / 1e6
        source = self.topology or f"star,{(self.workers or 1) * self.jobs}"
        planned = read(source, mbit, is_given=self.rate is not None)
        per_frame, kind = _lanes(self.lanes)
        queue_bytes, queue_frames = conditions.parse_queue(self.queue)
        own_bytes, own_frames = conditions.parse_queue(self.host_queue)
        workers = self.workers if self.workers is not None else len(planned.hosts) // self.jobs
        size, batch_s, cost = (
            conditions.parse_size(self.size),
            parse_time(self.batch),
            conditions.parse_cost(self.frame_cost),
        )
        outages, pauses = conditions.parse_spans(self.outage), conditions.parse_spans(self.pause)
        failures = conditions.parse_failures(self.fail)
        until_s, switch_timeout_s, move_after_s = (
            None if text is None else parse_time(text) for text in (self.until, self.switch_timeout, self.move_after)
        )
        cables = CableConditions(
            delay_s=parse_time(self.delay),
            queue_bytes=queue_bytes,
            queue_frames=queue_frames,
            mark_bytes=None if self.mark is None else conditions.parse_size(self.mark),
            loss=self.loss,
            overhead_bytes=self.overhead,
            host_queue_bytes=own_bytes,
            host_queue_frames=own_frames,
            bucket_bytes=0 if self.bucket is None else conditions.parse_size(self.bucket),
            burst_rate_bps=0.0 if self.bucket is None else conditions.AT_ONCE_BPS,
            late=self.late,
            late_by_s=parse_time(self.late_by),
            twice=self.twice,
        )
        # A wrong word is refused before the simulator is imported, which takes most of a second.
        from switchsum_lab.simulation.scenario import Scenario, named

        return Scenario(
            planned=planned,
            workers=workers,
            jobs=self.jobs,
            size=size,
            conditions=cables,
            batch_s=batch_s,
            outages=outages,
            pauses=pauses,
            lanes_per_frame=per_frame,
            lanes=kind,
            density=self.density,
            window_slots=self.window,
            cost=cost,
            seed=self.seed,
            against=named(self.against, workers, size),
            until_s=until_s,
            failures=failures,
            switch_timeout_s=switch_timeout_s,
            move_after_s=move_after_s,
        )


def _lanes(text: str) -> tuple[int, str]:
    per_frame, kind = 256, "int32"
    words = [*map(str, LANE_BUILDS), *FLOAT_FORMATS]
    for part in text.split(","):
        if part in map(str, LANE_BUILDS):
            per_frame = int(part)
        elif part in FLOAT_FORMATS:
            kind = part
        else:
            raise UsageError(f"--lanes {text}: {part!r} must be {', '.join(words[:-1])} or {words[-1]}")
    return per_frame, kind
