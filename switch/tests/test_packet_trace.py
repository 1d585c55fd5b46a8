"""Traces in the form of BMv2's packet_trace.proto."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format
from typer.testing import CliRunner

from switchsum.cli.app import application
from switchsum_switch.execution.packet_trace import PacketTrace, packet_traces
from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.execution.trace import Step

from .conftest import PROGRAMS


def stages(trace: object) -> list[str]:
    """Return the names of the stages that a packet entered, each of which it has left."""
    events = [event.pipeline_stage for event in trace.root.events]  # type: ignore[attr-defined]
    assert [event.direction for event in events] == [1, 2] * (len(events) // 2)
    return [event.stage_name for event in events[::2]]


def test_bytes_are_those_of_the_schema() -> None:
    """Encoded by hand after the schema's numbers: a reader that was made of it reads the same."""
    leaves = Step("frame", "", {"port": 3})
    leaves.steps = [Step("parser", "", {}), Step("send", "", {"port": 300, "frame": "aabbcc"})]
    [trace] = packet_traces(leaves, packet_id=5)
    parser = b"\x0a\x06parser\x10\x01", b"\x0a\x08deparser\x10\x03"
    events = b""
    for stage in parser:
        for direction in (b"\x18\x01", b"\x18\x02"):
            event = stage + direction
            inner = b"\x0a" + bytes([len(event)]) + event
            events += b"\x0a" + bytes([len(inner)]) + inner
    root = events + b"\x12\x05\x08\xac\x02\x10\x03"
    assert trace.SerializeToString() == b"\x0a\x04\x08\x05\x10\x03\x12" + bytes([len(root)]) + root
    dropped = Step("frame", "", {"port": 0}, [Step("drop", "", {})])
    [trace] = packet_traces(dropped)
    assert trace.SerializeToString() == b"\x0a\x00\x12\x02\x1a\x00"


def test_each_copy_has_a_trace_of_its_own() -> None:
    pipeline = Pipeline.load((PROGRAMS / "replication.json").read_bytes(), engine="interpreter")
    pipeline.multicast.set(3, [(7, 0), (8, 1)])
    sent, step = pipeline.trace(4, bytes([1, 3]) + b"rest")
    traces = packet_traces(step, packet_id=10)
    assert [trace.input.packet_id for trace in traces] == [10, 11]
    assert [(trace.root.transmit.egress_port, trace.root.transmit.packet_size) for trace in traces] == [
        (port, len(frame)) for port, frame in sent
    ]
    assert [stages(trace) for trace in traces] == [["parser", "ingress", "egress", "deparser"]] * 2


def test_the_command_writes_a_file_for_each(tmp_path: Path) -> None:
    entries = tmp_path / "entries.stf"
    entries.write_text("mc_mgrp_create 3\nmc_node_create 5 7\nmc_node_associate 3 0\n")
    words = ["trace", str(PROGRAMS / "replication.json"), "0103", "--port", "4", "--stf", str(entries)]
    words += ["--bmv2", str(tmp_path / "made")]
    assert CliRunner().invoke(application("trace"), words).exit_code == 0
    [path] = (tmp_path / "made").iterdir()
    assert path.name == "trace_0.txtpb"
    read = text_format.Parse(path.read_text(), PacketTrace())
    assert read.input.ingress_port == 4
    assert read.root.transmit.egress_port == 7
