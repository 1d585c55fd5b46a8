"""Spans that kernels note, as trace events."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from switchsum_protocol.errors import LocalError
from switchsum_switch.process.runtime_directory import PROFILE_VARIABLE
from switchsum_switch.process.trace import NO_SPANS, Span, Trace, is_traced, note
from switchsum_switch.process.trace_files import merge


def written(trace: Trace, directory: Path) -> list[dict[str, Any]]:
    trace.write()
    target = directory / "trace"
    merge(directory, target)
    events: list[dict[str, Any]] = json.loads(target.read_text())["traceEvents"]
    return events


def test_spans_and_calls_become_events_counted_from_the_first(tmp_path: Path) -> None:
    trace = Trace("rank 3", tmp_path)
    trace.called("allreduce", 10.0, 10.5)
    note(trace.spans, Span.RESULTS, 10.25, 10.375, 7, 5)
    note(trace.spans, Span.WAIT, 10.375, 10.5, 0, 0)
    names, *spans = [
        event for event in written(trace, tmp_path) if event["ph"] == "X" or event["name"] == "process_name"
    ]
    assert names["args"] == {"name": "rank 3"}
    assert [(span["name"], span["ts"], span["dur"]) for span in spans] == [
        ("allreduce", 0.0, pytest.approx(500_000)),
        ("unpack, pack", pytest.approx(250_000), pytest.approx(125_000)),
        ("wait", pytest.approx(375_000), pytest.approx(125_000)),
    ]
    assert spans[1]["args"] == {"frames": 7, "rounds": 5}


def test_what_finds_no_room_is_counted(tmp_path: Path) -> None:
    trace = Trace("switch", tmp_path, capacity=2)
    for number in range(5):
        note(trace.spans, Span.PROGRAM, number, number + 0.5, number, 1)
    events = written(trace, tmp_path)
    assert [event["args"]["frames in"] for event in events if event["name"] == "program"] == [0, 1]
    assert [event["name"] for event in events if event["ph"] == "i"] == ["3 further spans were left out"]


def test_nothing_is_noted_unless_somebody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROFILE_VARIABLE, raising=False)
    assert Trace.wanted("rank 0") is None
    assert not is_traced(NO_SPANS)
    monkeypatch.setenv(PROFILE_VARIABLE, str(tmp_path))
    trace = Trace.wanted("rank 0")
    assert trace is not None
    assert is_traced(trace.spans)


def test_several_processes_are_one_trace(tmp_path: Path) -> None:
    for pid, start in ((1, 500.0), (2, 300.0)):
        (tmp_path / f"{pid}.json").write_text(json.dumps([{"ph": "X", "pid": pid, "ts": start, "dur": 1.0}]))
    assert merge(tmp_path, tmp_path / "trace") == 2
    events = json.loads((tmp_path / "trace").read_text())["traceEvents"]
    assert [(event["pid"], event["ts"]) for event in events] == [(1, 200.0), (2, 0.0)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_is_full_costs_the_profile_and_no_more(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / f"{os.getpid()}.json").symlink_to("/dev/full")
    Trace("rank 0", tmp_path).write()
    assert capfd.readouterr().err == "switchsum: rank 0 is not in the profile: No space left on device\n"
    assert not list(tmp_path.iterdir())
    Trace("rank 1", tmp_path / "gone").write()
    (tmp_path / "1.json").write_text('[{"ts": 1')
    Trace("rank 2", tmp_path).write()
    assert merge(tmp_path, tmp_path / "profile") == 3
    with pytest.raises(LocalError, match="/dev/full cannot be written: No space left on device"):
        merge(tmp_path, Path("/dev/full"))
