"""Input of extraordinary size: long frames, full tables, a million entries."""

from __future__ import annotations

import json
import random

import pytest

from switchsum_switch import ProgramError, Switch, TableFull
from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.messages.matches import Exact
from switchsum_switch.state.tables import Entry

from .conftest import PROGRAMS
from .test_switch_api import FORWARDER, FRAME, STATION, files

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("name", "said"),
    [("psa_ingress_input_metadata", "PSA, the Portable"), ("pna_main_input_metadata", "PNA, the Portable")],
)
def test_programs_for_other_architectures_are_refused_by_name(name: str, said: str) -> None:
    """And not by the first thing in their JSON that v1model does not have, such as a field without a width."""
    document = json.loads((FORWARDER / "solution.json").read_text())
    [standard] = [one for one in document["headers"] if one["name"] == "standard_metadata"]
    own = {**standard, "name": name, "id": 99}
    document["headers"].append(own)
    Switch(json.dumps(document), engine="interpreter")  # a program of v1model may have such a name
    document["headers"].remove(standard)
    document["header_types"][0]["fields"].append([])
    with pytest.raises(ProgramError, match=f"it is for {said}"):
        Switch(json.dumps(document), engine="interpreter")


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_frames_of_any_length_go_through_whole(engine: EngineName) -> None:
    switch = Switch.from_file(*files("solution", FORWARDER), engine=engine)
    switch.tables["stations"].insert({STATION: FRAME[:6]}, "forward", port=3)
    for size in (0, 1, 13, 14, 65_535, 65_536, 70_001, 1 << 20):
        frame = (FRAME[:14] + random.Random(size).randbytes(max(0, size - 14)))[:size]
        expected = [(3, frame)] if size >= 14 else []
        assert switch.process(1, frame) == expected, size


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_copies_and_clones_of_long_frames_are_whole(engine: EngineName) -> None:
    pipeline = Pipeline.load((PROGRAMS / "lives.json").read_bytes(), engine=engine)
    pipeline.clones.set(7, [(2, 21), (4, 22)])
    body = random.Random(1).randbytes(65_536)
    sent = pipeline.process(3, bytes([1, 7, 5]) + body)
    assert [(port, frame.endswith(body)) for port, frame in sent] == [(2, True), (4, True), (1, True)]


def test_a_full_table_takes_an_entry_again_when_one_has_gone() -> None:
    switch = Switch.from_file(*files("solution", FORWARDER), engine="native")
    table = switch.tables["stations"]
    for number in range(table.table.spec.size):
        table.insert({STATION: number}, "forward", port=number % 512)
    with pytest.raises(TableFull, match=rf"is full \({table.table.spec.size} entries\)"):
        table.insert({STATION: 1 << 40}, "drop")
    assert switch.process(1, bytes(14)) == [(0, bytes(14))]
    table.delete({STATION: 5})
    table.insert({STATION: 1 << 40}, "forward", port=9)
    assert switch.process(1, (1 << 40).to_bytes(6, "big") + bytes(8))[0][0] == 9
    assert len(table) == table.table.spec.size


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_million_entries() -> None:
    document = json.loads((FORWARDER / "solution.json").read_text())
    for pipeline in document["pipelines"]:
        for table in pipeline["tables"]:
            table["max_size"] = MILLION
    loaded = Pipeline.load(json.dumps(document))
    table = loaded.tables["SwitchIngress.stations"]
    for number in range(MILLION):
        entry = Entry(match=(Exact(number * 77_777),), action="SwitchIngress.forward", params=(number % 500,))
        table.insert(entry)
    draw = random.Random(3)
    for number in [0, MILLION - 1, *(draw.randrange(MILLION) for _ in range(500))]:
        frame = (number * 77_777).to_bytes(6, "big") + bytes(8)
        assert loaded.process(510, frame) == [(number % 500, frame)]
        missing = (number * 77_777 + 1).to_bytes(6, "big") + bytes(8)
        assert loaded.process(510, missing) == []
