"""Tables of the pages that are sweeps have the records that the pages show."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from checks.bench import allreduce, links, loss, scaling, swept, udp, veth
from checks.bench.choice import Choice
from checks.bench.compare import Run
from checks.bench.records import RESULTS
from switchsum_lab.sweeps.axes import OURS, Cell
from switchsum_lab.sweeps.outcome import Outcome
from switchsum_lab.sweeps.sweep_file import load
from switchsum_protocol.errors import LocalError

NAMES = {
    "allreduce": r"allreduce\.shm\.",
    "links": r"allreduce\.\d+[gm]bit\.(?!.*tcp$)",
    "loss": r"loss\.stretch\.",
    "scaling": r"scaling\.",
    "udp": r"allreduce\.udp\.",
    "veth": r"allreduce\.veth\.",
}
"""What the names of a part's records begin with."""


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let every program be there, and every run take 10 ms at no loss; returns the parts that were measured."""
    parts: list[str] = []

    def measure(part: str, choice: Choice) -> dict[Cell, list[Run]]:
        parts.append(part)
        outcome = Outcome.of(0.01, 1_000_000, cpu_s=0.03, worker_cpu_s=0.02, memory_mb=50)
        sweep = swept.narrowed(load(swept.SWEEPS / f"{part}.yaml"), choice)
        return {cell: [swept.run_of(replace(outcome, ms=10 + 100 * cell.loss))] * 7 for cell in sweep.cells}

    monkeypatch.setattr(swept, "check", lambda cell: None)
    monkeypatch.setattr(swept, "measure", measure)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(links, "tcp_stream", lambda rate, mtu: links.of_ring(rate, mtu, 2))
    return parts


def test_every_record_of_the_pages_is_one_of_its_sweep(measured: list[str]) -> None:
    published = {row["name"] for row in json.loads(RESULTS.read_text())}
    found = {part.__name__.rpartition(".")[2]: part.run(Choice()) for part in (allreduce, udp, scaling, veth, links)}
    found["loss"] = [*loss.stretch()]
    assert sorted(measured) == sorted(found) == sorted(path.stem for path in swept.SWEEPS.glob("*.yaml"))
    for part, records in found.items():
        of_part = {name for name in published if re.match(NAMES[part], name)}
        assert of_part
        assert of_part <= {record.name for record in records}
    [one] = [record for record in found["udp"] if record.name == "allreduce.udp.20MB.4workers.256"]
    assert one.value == pytest.approx(2000)
    assert one.more["CPU s/GB"] == pytest.approx(1.5 * one.more["of it a worker's"])
    [one] = [record for record in found["allreduce"] if record.name == "allreduce.shm.100MB.4workers.2048"]
    assert one.more["memory beside"] == 0.5
    assert one.more["x gloo"] == one.more["x Open MPI"] == 1
    at_5_percent = {record.name: record.value for record in found["loss"]}["loss.stretch.50permille.4workers.256"]
    assert at_5_percent == pytest.approx(1.5)


def test_a_choice_narrows_a_sweep_down_and_one_without_cells_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swept, "check", lambda cell: None)
    sweep = load(swept.SWEEPS / "links.yaml")
    chosen = Choice(workers=(4,), sizes=(4, 10_000_000), lanes=(2048,), rates=("1gbit",), peers=("gloo",), runs=3)
    narrow = swept.narrowed(sweep, chosen)
    assert narrow.repetitions == 3
    assert sorted((cell.protocol, cell.lanes, cell.bytes, cell.calls) for cell in narrow.cells) == [
        ("gloo", "2048", 4, 200),
        ("gloo", "2048", 10_000_000, 1),
        (OURS, "2048", 4, 200),
        (OURS, "2048", 10_000_000, 1),
        (OURS, "2048,int16", 10_000_000, 1),
    ]
    with pytest.raises(LocalError, match=r"links\.yaml has no such cell"):
        swept.narrowed(sweep, Choice(workers=(5,)))


def test_a_choice_of_lanes_leaves_rivals_in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swept, "check", lambda cell: None)
    chosen = Choice(workers=(8,), sizes=(100_000_000,), lanes=(2048,), peers=("gloo",))
    narrow = swept.narrowed(load(swept.SWEEPS / "allreduce.yaml"), chosen)
    assert sorted((cell.protocol, cell.lanes) for cell in narrow.cells) == [("gloo", "256"), (OURS, "2048")]
