"""`switchsum simulate`: an allreduce on any network, in virtual time."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from switchsum.cli.fields import takes
from switchsum.cli.output import print_json
from switchsum_lab.options import SimulateOptions
from switchsum_protocol.errors import LocalError, UsageError
from switchsum_switch.notices import waiting_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from switchsum_lab.simulation.network import Network
    from switchsum_lab.simulation.scenario import Result, Scenario

_SHOWN_LINKS = 5


@takes(SimulateOptions)
def simulate(options: SimulateOptions) -> None:
    """Simulate an allreduce: real P4 programs and workers on links of any rate, in virtual time.

    All printed figures are simulated.  The same options and seed give the same figures.
    """
    from switchsum_lab.simulation.conditions import parse_time

    most_s, wanted = parse_time(options.longest), options.scenario()
    from switchsum_lab.simulation import scenario as scenarios  # wrong words are refused before, in half of the time

    scenarios.check_size(wanted, most_s=most_s)
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
    from switchsum_lab.simulation.scenario import IDEAL, best_of_hosts, ideals

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
    if (best := best_of_hosts(results)) is not None and first.is_complete:
        factor = best.simulated_s / first.simulated_s
        lines.append(f"{'best of hosts':18} {best.way:>12}   switches are {factor:.3g} times as fast")
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
