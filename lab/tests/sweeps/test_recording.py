"""A recording has what was added, says which line is wrong, and is replayed with any number of workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from switchsum_lab.sweeps import replay, simulated
from switchsum_lab.sweeps.axes import Cell, Impossible
from switchsum_lab.sweeps.recording import Recorder, RecordingError, hook, load, path_of, read
from switchsum_protocol.errors import UsageError

ROOT = Path(__file__).parents[3]


def written(name: Path, *, ranks: int = 2, steps: int = 2) -> Path:
    for rank in range(ranks):
        with Recorder(name, rank=rank, world_size=ranks, block=256, top=0.01, about="made up") as recorder:
            for step in range(steps):
                for bucket, at_s in (("a", 0.0), ("b", 0.25)):
                    array = np.zeros(2000, np.float32)
                    array[[300 + rank, 1800 + step]] = (3, -4)
                    recorder.note(bucket, array, at_s=10 + step + at_s)
    return name


def test_a_recording_has_blocks_places_norms_and_times(tmp_path: Path) -> None:
    first, second = load(written(tmp_path / "run"))
    assert (first.rank, second.rank, first.about, [*first.steps()]) == (0, 1, "made up", [0, 1])
    assert [(call.step, call.bucket, call.at_s) for call in first.calls] == [
        (0, "a", 0.0),
        (0, "b", 0.25),
        (1, "a", 1.0),
        (1, "b", 1.25),
    ]
    call = second.calls[-1]
    assert (np.flatnonzero(call.blocks).tolist(), call.norm, call.values) == ([1, 7], 5.0, 2000)
    assert call.top.tolist() == [301, 1801]


@pytest.mark.parametrize(
    ("number", "change", "reason"),
    [
        (1, {"version": 2}, "line 1: its version is 2, and this version of switchsum reads 1"),
        (1, {"recording": "other"}, "line 1: this is no recording: its first line has no"),
        (3, {"blocks": "?"}, "line 3: "),
        (2, {"values": 20}, "line 2: its bitmap or its places do not fit 20 values"),
        (4, {"norm": None}, "line 4: "),
    ],
)
def test_a_recording_that_is_wrong_is_refused_by_its_line(
    tmp_path: Path, number: int, change: dict[str, Any], reason: str
) -> None:
    path = path_of(written(tmp_path / "run"), 0)
    lines = path.read_text().splitlines()
    lines[number - 1] = json.dumps({**json.loads(lines[number - 1]), **change})
    path.write_text("\n".join([*lines, ""]))
    with pytest.raises(RecordingError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, {reason}")
    with pytest.raises(Impossible, match="line"):
        simulated.check(Cell(recording=str(tmp_path / "run"), workers=2))


def test_a_line_that_is_cut_and_ranks_that_differ_are_refused(tmp_path: Path) -> None:
    name = written(tmp_path / "run")
    path = path_of(name, 1)
    text = path.read_text()
    path.write_text(text[: text.rindex('"norm"')])
    with pytest.raises(RecordingError, match=r"rank1.jsonl, line 5: "):
        load(name)
    path.write_text("\n".join(text.splitlines()[:-1]))
    with pytest.raises(RecordingError, match="has other calls than"):
        load(name)
    with pytest.raises(RecordingError, match="cannot be read"):
        load(tmp_path / "nothing")
    with pytest.raises(UsageError, match="a rank below world_size"):
        Recorder(tmp_path / "x", rank=2, world_size=2)


def test_a_replay_adds_what_was_recorded_and_waits_for_what_was_not_ready(tmp_path: Path) -> None:
    cell = Cell(recording=str(written(tmp_path / "run")), workers=4, rate_mbit=1000.0)
    simulated.check(cell)
    found = simulated.run(cell, 0)
    assert found.right
    assert 250 < found.ms < 251  # the second bucket was ready after 250 ms
    for rank, (place, last) in enumerate([(300, 1800), (301, 1800), (300, 1801), (301, 1801)]):
        array = replay.drawing(Cell(recording=cell.recording, collective="topk"), 0, 0)(rank)
        assert {place, last} <= set(np.flatnonzero(array).tolist())
    topk = simulated.run(Cell(recording=cell.recording, workers=3, collective="topk"), 0)
    assert topk.right
    fewer = replay.drawing(Cell(recording=cell.recording, density=0.0), 0, 0)(0)
    assert not fewer.any()


@pytest.mark.parametrize(
    ("change", "axis"), [({"step": 2}, "step"), ({"bytes": 8}, "bytes"), ({"overlap": "all"}, "overlap")]
)
def test_a_cell_that_contradicts_its_recording_is_impossible(tmp_path: Path, change: dict[str, Any], axis: str) -> None:
    cell = Cell(**{"recording": str(written(tmp_path / "run")), "workers": 2, **change})
    with pytest.raises(Impossible) as caught:
        simulated.check(cell)
    assert caught.value.axis == axis


@pytest.mark.parametrize("name", ["words", "gpt", "images"])
def test_the_recordings_of_the_repository_are_small_and_can_be_read(name: str) -> None:
    path = ROOT / "lab" / "papers" / "recordings" / name
    ranks = load(path)
    assert (len(ranks), len(ranks[0].steps())) == (4, 4)
    assert sum(path_of(path, rank).stat().st_size for rank in range(4)) < 5_000_000
    shares = [call.blocks.mean() for call in ranks[0].calls]
    assert (min(shares) < 0.5) == (name == "words")  # of embeddings few rows are used in a step


class Tensor:
    """Does what the hook asks of a tensor of PyTorch, which takes seconds to import."""

    def detach(self) -> Tensor:
        return self

    float = cpu = detach

    def numpy(self) -> Any:
        return np.array([0, 2], np.float32)


class Bucket:
    def index(self) -> int:
        return 3

    def buffer(self) -> Tensor:
        return Tensor()


def test_a_hook_notes_each_bucket_and_averages_as_before(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run", rank=0, world_size=1) as recorder:
        noting = hook(recorder, lambda state, bucket: (state, "averaged", bucket.index()))
        assert noting("state", Bucket()) == ("state", "averaged", 3)
    [call] = read(path_of(tmp_path / "run", 0)).calls
    assert (call.bucket, call.values, call.norm) == ("3", 2, 2.0)
