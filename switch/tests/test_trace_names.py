"""Traces name metadata as the program's keys do, which is how its source names it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.execution.trace import Tracer

from .conftest import PROGRAMS

BENCH = Path(__file__).parents[2] / "checks" / "bench" / "p4"


@pytest.mark.parametrize(
    ("path", "name", "shown"),
    [
        (BENCH / "router.json", "scalars.metadata_t.next_hop", "m.next_hop"),
        (BENCH / "firewall.json", "scalars.metadata_t.source_port", "m.source_port"),
        (PROGRAMS / "translated.json", "scalars.user_metadata_t.group", "m.group"),
        (PROGRAMS / "translated.json", "scalars.user_metadata_t.other", "m.other"),
        (PROGRAMS / "lives.json", "scalars.metadata_t.kept", "metadata_t.kept"),  # it has no key of metadata
        (PROGRAMS / "keys.json", "gone.narrow", "gone.narrow"),
    ],
)
def test_structs_of_metadata_have_the_names_of_keys(path: Path, name: str, shown: str) -> None:
    """p4c calls the field `scalars.metadata_t.next_hop`, and the key `m.next_hop`."""
    program = Pipeline.load(path.read_bytes(), engine="interpreter")._program
    assert Tracer(program, 0, b"")._shown(name) == shown


def test_a_trace_has_these_names() -> None:
    document = json.loads((BENCH / "router.json").read_text())
    state = document["parsers"][0]["parse_states"][0]
    target = {"type": "field", "value": ["scalars", "metadata_t.next_hop"]}
    state["parser_ops"].insert(0, {"op": "set", "parameters": [target, {"type": "hexstr", "value": "0x7"}]})
    trace = Pipeline.load(json.dumps(document), engine="interpreter").trace(1, bytes(64))[1]
    assert any(step.text.startswith("m.next_hop = ") for step in trace.find("set"))
