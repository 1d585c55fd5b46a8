"""A figure counts for what its run has read, and a figure that something else has decided is marked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from switchsum.cli.app import application
from switchsum_lab.protocols import seam
from switchsum_lab.sweeps import inputs
from switchsum_lab.sweeps.axes import Cell
from switchsum_lab.sweeps.outcome import Outcome, marks
from switchsum_lab.sweeps.plotting import Picture, curves
from switchsum_lab.sweeps.results import Results
from switchsum_protocol.errors import UsageError

TOPOLOGY = "switches: [s1]\nhosts: [h1, h2]\nlinks:\n  - [h1, s1]\n  - [h2, s1]\n"


@pytest.fixture
def protocol(tmp_path: Path) -> Path:
    """Return the folder of a protocol of one's own."""
    return shutil.copytree(seam.BASELINES / "ring", tmp_path / "mine")


def test_each_file_that_a_cell_names_counts_and_no_other(tmp_path: Path, protocol: Path) -> None:
    (tmp_path / "net.yaml").write_text(TOPOLOGY)
    for rank in (0, 1):
        (tmp_path / f"words.rank{rank}.jsonl").write_text("{}\n")
    cell = Cell(protocol=str(protocol), topology=str(tmp_path / "net.yaml"), recording=str(tmp_path / "words"))
    read = [protocol / name for name in ("host.py", "program.p4", "program.json", "program.p4info.txtpb")]
    read += [tmp_path / name for name in ("net.yaml", "words.rank0.jsonl", "words.rank1.jsonl")]
    before = inputs.digest_of(cell)
    for path in read:
        was = path.read_bytes()
        path.write_bytes(was + b" ")
        assert inputs.digest_of(cell) != before, path
        path.write_bytes(was)
    (protocol / "README.md").write_text("another")
    (protocol / "one-results").mkdir()
    (protocol / "one-results" / "runs.jsonl").write_text("{}")
    (tmp_path / "other.yaml").write_text("")
    assert inputs.digest_of(cell) == before


def test_each_package_that_decides_a_figure_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "decides").mkdir()
    for name, text in (("__init__.py", ""), ("engine.py", "WINDOW = 8"), ("plotting.py", "COLOUR = 1")):
        (tmp_path / "decides" / name).write_text(text)

    def code(*packages: str) -> str:
        monkeypatch.setattr(inputs, "CODE", packages)
        inputs.code.cache_clear()
        return inputs.code()

    try:
        for package in inputs.CODE:
            assert [*inputs._sources(package)], package
        before = code("decides")
        (tmp_path / "decides" / "plotting.py").write_text("COLOUR = 2")
        assert code("decides") == before
        (tmp_path / "decides" / "engine.py").write_text("WINDOW = 9")
        assert code("decides") != before
    finally:
        inputs.code.cache_clear()


def sweep(*words: object) -> Result:
    return CliRunner().invoke(application("sweep"), ["sweep", *map(str, words)], catch_exceptions=False)


def test_a_changed_host_runs_again_and_its_earlier_figures_are_marked(tmp_path: Path, protocol: Path) -> None:
    file, out = tmp_path / "one.yaml", tmp_path / "out"
    file.write_text(f"workers: 2\nprotocol: {protocol}\nbytes: 8kB\nrate: 1gbit\n")
    assert sweep(file, "--out", out).exit_code == 0
    assert "1 of these runs already" in sweep(file, "--out", out).stderr
    host = protocol / "host.py"
    host.write_text(host.read_text() + "\n# another window\n")
    with pytest.raises(UsageError, match="are of earlier code, or of files that have changed since"):
        curves(Results.read(out), Picture(x="workers"))
    assert [*curves(Results.read(out), Picture(x="workers", keeps_old=True))[None]] == ["earlier"]
    again = sweep(file, "--out", out, "--json")
    assert "1 run of earlier code or files, which count for nothing here" in again.stderr
    assert "already" not in again.stderr
    assert [(row["runs"], row["marks"]) for row in json.loads(again.stdout)["cells"]] == [(1, "")]
    both = sweep(file, "--out", out, "--json", "--keep-old")
    assert [(row["runs"], row["marks"]) for row in json.loads(both.stdout)["cells"]] == [(1, ""), (1, "earlier")]
    assert [*curves(Results.read(out), Picture(x="workers", keeps_old=True))[None]] == ["earlier", ""]


def test_runs_of_whom_nobody_noted_what_they_read_are_earlier_ones(tmp_path: Path) -> None:
    line = {"format": 1, "cell": {}, "repetition": 0, "sitting": 0, "simulated": True, "wall_s": 1.0}
    (tmp_path / "runs.jsonl").write_text(json.dumps({**line, "ms": 1.0, "mb_per_s": 1.0}) + "\n")
    [run] = Results.read(tmp_path).runs
    assert not Results.read(tmp_path).is_current(run)
    assert not Results.read(tmp_path).done()


@pytest.mark.parametrize(
    ("cell", "outcome", "found"),
    [
        (Cell(links="veth"), Outcome(ms=1000.0, mb_per_s=1.0, frames=1000, repeats=20), []),
        (Cell(links="veth"), Outcome(ms=1000.0, mb_per_s=1.0, frames=1000, repeats=21), ["repeats"]),
        (Cell(links="veth", calls=2), Outcome(ms=1000.0, mb_per_s=1.0, frames=1000, repeats=40), []),
        (Cell(links="veth", loss=0.01), Outcome(ms=1000.0, mb_per_s=1.0, frames=1000, repeats=900), []),
        (Cell(), Outcome(ms=1000.0, mb_per_s=1.0, frames=2000, repeats=21), ["repeats"]),
        (Cell(links="veth"), Outcome(ms=1000.0, mb_per_s=1.0, cpu_s=1.8), []),
        (Cell(links="veth"), Outcome(ms=1000.0, mb_per_s=1.0, cpu_s=1.81), ["cores"]),
        (Cell(links="veth", rate_mbit=100.0), Outcome(ms=89.0, mb_per_s=1.0, sent_mb=1.12), []),
        (Cell(links="veth", rate_mbit=100.0), Outcome(ms=88.0, mb_per_s=1.0, sent_mb=1.12), ["bucket"]),
        (Cell(rate_mbit=100.0), Outcome(ms=88.0, mb_per_s=1.0, sent_mb=1.12), []),
    ],
)
def test_a_figure_that_time_outs_or_processors_have_decided_is_marked(
    cell: Cell, outcome: Outcome, found: list[str]
) -> None:
    assert marks(cell, outcome, 2) == found
