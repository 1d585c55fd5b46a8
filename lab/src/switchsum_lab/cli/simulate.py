"""`switchsum simulate`: an allreduce on any network, in virtual time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from switchsum_protocol.errors import LocalError, UsageError
from switchsum_switch.process.notices import waiting_for
from typer import Option

from switchsum.cli.fields import takes
from switchsum.cli.output import JsonOption, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from switchsum_lab.simulation.network import Network
    from switchsum_lab.simulation.scenario import Result, Scenario

_SHOWN_LINKS = 5


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
    rate: Annotated[str, Option(help="Rate of the links of a shape.")] = "10gbit"
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
    lanes: Annotated[str, Option(help="Lanes per frame, 128, 256 or 2048; or int32, int16, int8; or 2048,int8.")] = (
        "256"
    )
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
            "two-level-ring, halving-doubling, tree, ideal-ring."
        ),
    ] = "ideal-ring"
    seed: Annotated[int, Option(help="Seed of all random events.")] = 0
    until: Annotated[str | None, Option(help="End at this virtual time.")] = None
    fail: Annotated[str | None, Option(help="Switches and links that fail, and when: s1@3.2ms,s2->s3@1ms.")] = None
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
        from switchsum_lab.simulation import conditions
        from switchsum_lab.simulation.conditions import Link, parse_rate, parse_time
        from switchsum_lab.simulation.scenario import Scenario

        from switchsum.cli.topology import read

        if self.topology is None and self.workers is None:
            raise UsageError("how many ranks? Give --workers 8, which means a star, or --topology")
        planned = read(self.topology or f"star,{(self.workers or 1) * self.jobs}", parse_rate(self.rate) / 1e6)
        per_frame, kind = _lanes(self.lanes)
        queue_bytes, queue_frames = conditions.parse_queue(self.queue)
        own_bytes, own_frames = conditions.parse_queue(self.host_queue)
        return Scenario(
            planned=planned,
            workers=self.workers if self.workers is not None else len(planned.hosts) // self.jobs,
            jobs=self.jobs,
            size=conditions.parse_size(self.size),
            conditions=Link(
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
            ),
            batch_s=parse_time(self.batch),
            outages=conditions.parse_spans(self.outage),
            pauses=conditions.parse_spans(self.pause),
            lanes_per_frame=per_frame,
            lanes=kind,
            density=self.density,
            window_slots=self.window,
            cost=conditions.parse_cost(self.frame_cost),
            seed=self.seed,
            against=tuple(name for name in self.against.split(",") if name),
            until_s=None if self.until is None else parse_time(self.until),
            failures=conditions.parse_failures(self.fail),
        )


@takes(SimulateOptions)
def simulate(options: SimulateOptions) -> None:
    """Simulate an allreduce: real P4 programs and workers on links of any rate, in virtual time.

    All printed figures are simulated.  The same options and seed give the same figures.
    """
    from switchsum_lab.simulation import scenario as scenarios
    from switchsum_lab.simulation.conditions import parse_time

    wanted = options.scenario()
    scenarios.check_room(wanted, most_s=parse_time(options.longest))
    observer = _Observer(options.pcap, options.plot, options.trace)
    with waiting_for("the simulation"):
        results = scenarios.simulate(wanted, watch=observer.watch)
    observer.write()
    if options.as_json:
        print_json(_record(wanted, results))
    else:
        typer.echo(_text(wanted, results))
        if options.plot is not None:
            typer.echo(observer.drawing())
    if not all(one.is_complete for one in results):
        raise typer.Exit(1)


def _lanes(text: str) -> tuple[int, str]:
    per_frame, kind = 256, "int32"
    for part in text.split(","):
        if part in ("128", "256", "2048"):
            per_frame = int(part)
        elif part in ("int32", "int16", "int8"):
            kind = part
        else:
            raise UsageError(f"--lanes {text}: {part!r} must be 128, 256, 2048, int32, int16 or int8")
    return per_frame, kind


class _Observer:
    """Looks at links while the switches add."""

    def __init__(self, pcap: str | None, plot: str | None, trace: Path | None) -> None:
        name, _, file = (pcap or "").partition("=")
        self._pcap, self._file = name, Path(file or f"{name.replace('->', '-')}.pcap")
        self._plot, self._trace = plot, trace
        self._network: Network | None = None

    def watch(self, network: Network, way: str) -> None:
        """Note frames of the links that were asked for."""
        if way != "switches":
            return
        self._network = network
        for name, with_bytes in ((self._plot, False), (self._pcap or None, True)):
            if name is not None and not self._is_host(name):
                self._link(name).watch(with_bytes=with_bytes)
        for name in self._links_of_host():
            self._link(name).watch(with_bytes=True)
        if self._trace is not None and self._plot is None:
            for link in network.links.values():
                link.watch()

    def _is_host(self, name: str) -> bool:
        return any(link.startswith(f"{name}->") for link in self._names) and "->" not in name

    def _links_of_host(self) -> list[str]:
        """Return the links of the host whose window is drawn."""
        ends = [link.split("->") for link in self._names]
        return ["->".join(pair) for pair in ends if self._plot in pair and self._is_host(self._plot or "")]

    @property
    def _names(self) -> list[str]:
        assert self._network is not None
        return [*self._network.links]

    def _link(self, name: str) -> Any:
        assert self._network is not None
        if name not in self._network.links:
            some = ", ".join([*self._network.links][:4])
            raise UsageError(f"there is no link {name!r}: links have names like {some}")
        return self._network.links[name]

    def write(self) -> None:
        """Write the files that were asked for; raises LocalError."""
        from switchsum_lab.simulation import outputs

        if self._network is None:
            return
        try:
            if self._pcap:
                outputs.write_pcap(self._file, self._link(self._pcap).sent)
            if self._trace is not None:
                names = (self._links_of_host() or [self._plot]) if self._plot is not None else self._names
                outputs.write_trace(self._trace, {name: self._link(name) for name in names})
        except OSError as error:
            raise LocalError(f"{error.filename} cannot be written: {error.strerror}") from error

    def drawing(self) -> str:
        """Return the plot of a queue as text."""
        from switchsum_lab.simulation import outputs

        assert self._plot is not None
        if names := self._links_of_host():
            found = outputs.window([self._link(name) for name in names], self._plot)
            return outputs.drawn(f"Window of {self._plot} in rounds", found)
        return outputs.drawn(f"Queue of {self._plot} in bytes", self._link(self._plot).depth())


def _record(scenario: Scenario, results: list[Result]) -> dict[str, Any]:
    from switchsum_lab.simulation.scenario import ideals

    return {
        "simulated": True,
        "workers": scenario.workers,
        "jobs": scenario.jobs,
        "bytes": scenario.size,
        "seed": scenario.seed,
        "ideals_s": ideals(scenario),
        "results": [asdict(one) for one in results],
    }


def _text(scenario: Scenario, results: list[Result]) -> str:
    from switchsum_lab.simulation.scenario import IDEAL, ideals

    lines = [
        f"Simulated, not measured: {f'{scenario.jobs} jobs of ' * (scenario.jobs > 1)}{scenario.workers} workers, "
        f"{scenario.size:,} bytes each, "
        f"{' + '.join(f'{rate / 1e9:g}' for rate in scenario.rates_bps)} Gbit/s, seed {scenario.seed}"
    ]
    for one in results:
        says = _seconds(one.simulated_s) if one.is_complete else f"ended after {_seconds(one.simulated_s)}"
        right = {True: ", every sum right", False: ", SUMS WRONG", None: ""}[one.is_right]
        name = "switches add" if one.way == "switches" else one.way
        lines.append(f"{name:18} {says:>12}   {one.frames:,} frames, {one.repeats:,} repeats{right}")
        lines += [f"{'':18} {text}" for text in (*_of_jobs(one), *one.moved)]
        if not one.is_complete:
            lines.append(f"{'':18} {one.finished} of {len(scenario.hosts)} workers had finished")
    formulas = ideals(scenario)
    for name in ("ideal switches", *((IDEAL,) if IDEAL in scenario.against else ())):
        lines.append(f"{name:18} {_seconds(formulas[name]):>12}   closed formula: headers counted, delays not")
    first = results[0]
    lines += ["", f"Longest queues, and what these links carried while {'the switches added'}:"]
    lines += [
        f"  {link.name:18} {link.most_queued_bytes:>12,} bytes queued at most, {link.bytes:,} carried"
        + (f", {link.dropped:,} dropped" if link.dropped else "")
        + (f", {link.lost:,} lost" if link.lost else "")
        + (f", {link.marked:,} marked" if link.marked else "")
        for link in first.links[:_SHOWN_LINKS]
    ]
    return "\n".join(lines)


def _of_jobs(one: Result) -> Iterator[str]:
    """Yield what several jobs took, and why some have given up."""
    went = list(zip(one.jobs_s, one.gave_up, strict=True))
    if took := [seconds for seconds, why in went if why is None]:
        of_all = f"{len(went)} jobs, which took" if len(took) == len(went) else f"{len(took)} of {len(went)} jobs took"
        yield f"{of_all} {_seconds(min(took))} to {_seconds(max(took))}"
    yield from (
        f"job {number} gave up after {_seconds(seconds)}: {why}"
        for number, (seconds, why) in enumerate(went, 1)
        if why is not None
    )


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size or unit == "us":
            return f"{value / size:.4g} {unit}"
    return ""
