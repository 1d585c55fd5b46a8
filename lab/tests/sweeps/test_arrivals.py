"""Jobs that arrive one after the other: how long each takes from its arrival on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from switchsum_lab.sweeps import arrivals, simulated
from switchsum_lab.sweeps.axes import Cell, Impossible
from switchsum_lab.sweeps.checks import check
from switchsum_lab.sweeps.inputs import digest_of
from switchsum_protocol.errors import UsageError

CELL = Cell(workers=4, jobs=2, topology="leaf-spine,2,1,4", bytes=400_000, rate_mbit=1000.0)


def file(tmp_path: Path, *times: str) -> str:
    path = tmp_path / f"{'-'.join(times)}.txt"
    path.write_text("# when jobs come\n\n" + "\n".join(times) + "\n")
    return str(path)


def test_a_file_has_a_time_for_each_job_and_a_poisson_process_is_drawn(tmp_path: Path) -> None:
    assert arrivals.times(file(tmp_path, "0us", "1.5ms"), 2, seed=0) == [0.0, 1.5e-3]
    drawn = arrivals.times("poisson:200us", 5001, seed=2)
    assert drawn == sorted(drawn) == arrivals.times("poisson:200us", 5001, seed=2)
    assert drawn[-1] / 5000 == pytest.approx(200e-6, rel=0.1)
    for wrong in ("nowhere.txt", "poisson:soon", file(tmp_path, "soon"), file(tmp_path, "0us")):
        with pytest.raises(UsageError, match=r"arrivals|written like"):
            arrivals.times(wrong, 2, seed=0)


@pytest.mark.parametrize("protocol", ["switchsum", "ring", "tree"])
def test_a_job_that_comes_when_the_other_has_gone_has_the_links_for_itself(tmp_path: Path, protocol: str) -> None:
    together, apart, near = (
        simulated.run(replace(CELL, protocol=protocol, arrivals=file(tmp_path, "0us", when)), 0)
        for when in ("0us", "100ms", "1ms")
    )
    assert together.ms == pytest.approx(together.slowest_ms, rel=0.2)
    assert apart.ms < near.ms < together.ms
    assert apart.ms == pytest.approx(apart.slowest_ms, rel=0.05)
    plain = simulated.run(replace(CELL, protocol=protocol), 0)
    assert plain.slowest_ms is None
    assert plain.ms == pytest.approx(together.slowest_ms)


def test_a_changed_file_is_another_cell(tmp_path: Path) -> None:
    path = file(tmp_path, "0us", "1ms")
    cell = replace(CELL, arrivals=path)
    before = digest_of(cell)
    Path(path).write_text("0us\n2ms\n")
    assert digest_of(cell) != before


@pytest.mark.parametrize(
    ("axis", "change"),
    [
        ("arrivals", {"jobs": 1, "arrivals": "FILE"}),
        ("arrivals", {"arrivals": "poisson:1ms", "protocol": "switchml", "topology": None}),
        ("arrivals", {"arrivals": "poisson:1ms", "shared_slots": 64}),
        ("arrivals", {"arrivals": "poisson:1ms", "links": "shm"}),
        ("late_ranks", {"arrivals": "poisson:1ms", "late_ranks": "one:1ms"}),
    ],
)
def test_what_has_no_arrivals_is_refused(tmp_path: Path, axis: str, change: dict[str, Any]) -> None:
    if change["arrivals"] == "FILE":
        change = {**change, "arrivals": file(tmp_path, "0us", "1ms")}
    with pytest.raises(Impossible) as refused:
        check(replace(CELL, **change))
    assert refused.value.axis in (axis, "topology", "jobs")
