"""`switchsum simulate`: what it prints, what it writes, what it refuses, and what an interrupt leaves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from switchsum.cli.app import application
from switchsum_lab.options import SimulateOptions
from switchsum_lab.simulation import scenario
from switchsum_lab.simulation.world import World
from switchsum_lab.sweeps import simulated
from switchsum_lab.sweeps.axes import Cell, Impossible
from switchsum_protocol.errors import SwitchsumError, UsageError

SMALL = ["simulate", "--topology", "star,2", "--bytes", "40KB", "--rate", "1gbit"]


def simulate(*options: str) -> Any:
    return CliRunner().invoke(application("simulate"), [*SMALL, *options], catch_exceptions=False)


def test_figures_are_called_simulated_and_are_the_same_each_time() -> None:
    first = simulate("--against", "ring,ideal-ring", "--loss", "0.001", "--density", "0.5")
    assert first.exit_code == 0
    assert first.stdout.startswith("Simulated, not measured: 2 workers, 40,000 bytes each")
    assert "every sum right" in first.stdout
    assert simulate("--against", "ring,ideal-ring", "--loss", "0.001", "--density", "0.5").stdout == first.stdout


def test_programs_get_json_and_other_tools_their_files(tmp_path: Path) -> None:
    pcap, trace = tmp_path / "link.pcap", tmp_path / "trace.json"
    found = simulate("--json", "--pcap", f"h1->s1={pcap}", "--trace", str(trace), "--plot", "s1->h2")
    record = json.loads(found.stdout)
    assert record["simulated"] is True
    [result] = record["results"]
    assert result["is_complete"]
    assert result["is_right"]
    [up] = [link for link in result["links"] if link["name"] == "h1->s1"]
    frames, rest = divmod(pcap.stat().st_size - 24 - up["bytes"], 16)  # a header of the file, and of each frame
    assert rest == 0
    assert frames > 40
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "C", "X"}


def test_a_capture_has_its_frames_beside_a_trace_of_all_links(tmp_path: Path) -> None:
    alone, beside = tmp_path / "alone.pcap", tmp_path / "beside.pcap"
    simulate("--pcap", f"h1->s1={alone}")
    simulate("--pcap", f"h1->s1={beside}", "--trace", str(tmp_path / "trace.json"))
    assert beside.read_bytes() == alone.read_bytes()


def test_a_queue_is_drawn() -> None:
    found = simulate("--plot", "h1->s1")
    assert "Queue of h1->s1 in bytes (simulated)" in found.stdout
    assert re.search(r"\| *####", found.stdout)  # it grows while the window doubles


def test_a_window_is_drawn_too_and_processors_may_cost_what_was_measured() -> None:
    found = simulate("--plot", "h1", "--frame-cost", "measured", "--rate", "100gbit", "--window", "16")
    assert "Window of h1 in rounds (simulated), 16 at most" in found.stdout
    [took] = re.findall(r"switches add +([\d.]+) us", found.stdout)
    assert float(took) > 40_000 / 1024 * 2 * (90 + 1024) * 0.5e-3  # its processor bounds it


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--rate", "0gbit"], "a rate is written like 10gbit"),
        (["--topology", "nowhere.yaml"], "nowhere.yaml is neither a file"),
        (["--workers", "3"], "a topology of 2 hosts"),
        (["--bytes", "500TB"], "GB of memory"),
        (["--bytes", "1GB", "--longest", "1s"], "h of one core"),
        (["--against", "telepathy"], "not telepathy"),
        (["--topology", "star,6", "--against", "ring,halving-doubling"], "power of two of hosts, not 6"),
        (["--density", "2"], "a density must be 0 to 1"),
        (["--lanes", "77"], "'77' must be"),
        (["--plot", "h1->h2"], "there is no link 'h1->h2'"),
        (["--queue", "0f"], "takes no frame"),
        (["--frame-cost", "soon"], "a time is written like 5us"),
        (["--window", "5000"], "to 1024, not 5000"),
        (["--topology", "star,40"], "32"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_the_reason(options: list[str], says: str) -> None:
    with pytest.raises(SwitchsumError, match=says):
        simulate(*options)


@pytest.mark.parametrize(
    ("links", "says"),
    [
        ("{between: [h1, s1]}, {between: [h2, s2]}", "island: nothing connects"),
        ("{between: [h1, s1], mbit: 0}, {between: [h2, s1]}, {between: [s1, s2]}", "more than 0 Mbit/s, not 0"),
        ("{between: [h1, h2]}, {between: [h1, s1]}, {between: [s1, s2]}", "hosts do not forward"),
    ],
)
def test_a_file_that_has_no_network_is_refused(tmp_path: Path, links: str, says: str) -> None:
    file = tmp_path / "network.yaml"
    file.write_text(f"switches: [s1, s2]\nhosts: [h1, h2]\nmbit: 100\nlinks: [{links}]\n")
    with pytest.raises(SwitchsumError, match=says):
        simulate("--topology", str(file))


def test_an_interrupt_leaves_the_results_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    run = World.run

    def interrupted(self: World, until_s: float | None = None, **options: Any) -> Any:
        run(self, 100e-6, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(World, "run", interrupted)
    found = simulate("--against", "ring")
    assert found.exit_code == 1
    assert "ended after 100 us" in found.stdout
    assert "0 of 2 workers had finished" in found.stdout


def test_many_workers_share_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "OWN_ARRAYS_BYTES", 1000)
    assert "every sum right" in simulate().stdout


def test_workers_without_a_topology_are_a_star() -> None:
    small = ["--bytes", "4KB", "--json"]
    for command in (["--workers", "3"], ["--topology", "star,3"]):
        done = CliRunner().invoke(application("simulate"), ["simulate", *command, *small], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert json.loads(done.output)["workers"] == 3
    with pytest.raises(UsageError, match="--workers 8, which means a star"):
        CliRunner().invoke(application("simulate"), ["simulate"], catch_exceptions=False)


def test_a_rate_is_that_of_links_to_which_a_file_gives_none(tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    links = "links:\n  - {between: [h1, s1]}\n  - {between: [h2, s1], mbit: 100}\n"
    path.write_text(f"switches: [s1]\nhosts: [h1, h2]\nmbit: 1000\n{links}")

    def rates(rate: str | None = None) -> list[float]:
        wanted = SimulateOptions(topology=str(path), size="40KB", rate=rate)
        return [cable.mbit for cable in wanted.scenario().planned.cables]

    assert rates() == [1000.0, 100.0]
    assert rates("10gbit") == [10_000.0, 100.0]
    path.write_text(path.read_text().replace("[h1, s1]}", "[h1, s1], mbit: 50}"))
    with pytest.raises(SwitchsumError, match=r"each link has an `mbit` of its own.*: leave it out"):
        rates("10gbit")
    with pytest.raises(Impossible, match="leave it out") as refused:
        simulated.check(Cell(topology=str(path), workers=2, rate_mbit=10.0))
    assert refused.value.axis == "rate_mbit"


def test_ranks_wait_for_a_failed_switch_as_long_as_asked() -> None:
    options = ["simulate", "--topology", "leaf-spine,2,2,2", "--bytes", "1MB", "--rate", "1gbit", "--json"]
    options += ["--fail", "s1@2ms", "--switch-timeout"]
    with pytest.raises(SwitchsumError, match="no answer from the switch for 1 s"):
        CliRunner().invoke(application("simulate"), [*options, "1s"], catch_exceptions=False)
    found = CliRunner().invoke(application("simulate"), [*options, "30s"], catch_exceptions=False)
    [result] = json.loads(found.stdout)["results"]
    assert result["is_complete"]
    assert result["simulated_s"] > 1
    with pytest.raises(UsageError, match="--switch-timeout needs --fail"):
        simulate("--switch-timeout", "1s")
