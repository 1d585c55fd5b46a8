"""docs/wire.json: another program can read frames by it, and its golden frames are what the P4 program does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from switchsum.testing.embedded import Embedded
from switchsum_lab.conform.document import FACTS, facts_as_json
from switchsum_lab.conform.facts import read_facts
from switchsum_lab.conform.play import difference
from switchsum_lab.conform.rules import RULES
from switchsum_protocol import slot_rules
from switchsum_protocol.frame import Header, Kind
from switchsum_switch.execution.pipeline import EngineName
from switchsum_switch.wires.headers import LOWER_BYTES

DOCUMENT = json.loads((Path(__file__).parents[3] / "docs" / "wire.json").read_text())


def decoded(frame: bytes) -> dict[str, int]:
    """Read a frame's header by nothing but the document."""
    start = DOCUMENT["lower_bytes"]
    places = {field["name"]: (start + field["offset"], field["bytes"]) for field in DOCUMENT["fields"]}
    return {name: int.from_bytes(frame[at : at + size], "big") for name, (at, size) in places.items()}


def frames() -> list[bytes]:
    exchanges = DOCUMENT["golden"]["exchanges"]
    return [bytes.fromhex(each["frame"]) for exchange in exchanges for each in (exchange, *exchange["answers"])]


def test_headers_can_be_read_by_the_document() -> None:
    for frame in frames():
        header = Header.unpack(frame[LOWER_BYTES:])
        assert decoded(frame) == {name: int(getattr(header, name)) for name in decoded(frame)}
    assert sum(field["bytes"] for field in DOCUMENT["fields"]) == DOCUMENT["header_bytes"]


def test_golden_frames_have_every_answer_and_no_answer_at_all() -> None:
    exchanges = DOCUMENT["golden"]["exchanges"]
    kinds = {decoded(bytes.fromhex(answer["frame"]))["kind"] for one in exchanges for answer in one["answers"]}
    assert kinds == {Kind.RESULT, Kind.HELD, Kind.REJECT}
    rows = {f"row {number}" for number in (3, 4, 5, 7, 8, 9, 10, 11)}
    assert rows <= {exchange["rule"] for exchange in exchanges}
    assert [] in [exchange["answers"] for exchange in exchanges]


def switch(engine: EngineName) -> Embedded:
    """Return our program with the job of the golden frames, as the document says it."""
    made, facts = Embedded(FACTS.lanes, engine), FACTS
    here = facts.switch
    made.set_default("SwitchIngress.identity", "SwitchIngress.identify", (here.mac, here.ip, here.port, 0xFFFF))
    made.set_group(1, [(rank + 1, rank) for rank in range(len(facts.members))])
    for rank, member in enumerate(facts.members):
        one = member.address
        place = (one.mac, one.ip, one.port, member.cookie)
        made.insert("SwitchEgress.result_address", (facts.job, rank), "SwitchEgress.address", place)
        made.insert(
            "SwitchIngress.validate.admission.admission",
            (facts.job, facts.tree, rank, facts.epoch, one.ip, one.port, rank + 1),
            "SwitchIngress.validate.admission.admit",
            (1 << rank, 0b11, facts.first_slot, facts.slot_count, 1, member.cookie),
        )
    return made


@pytest.mark.parametrize("engine", ["interpreter", pytest.param("native", marks=pytest.mark.slow)])
def test_the_program_answers_golden_frames_as_the_document_says(engine: EngineName) -> None:
    made = switch(engine)
    for exchange in DOCUMENT["golden"]["exchanges"]:
        expected: dict[int, list[bytes]] = {}
        for answer in exchange["answers"]:
            expected.setdefault(answer["rank"], []).append(bytes.fromhex(answer["frame"]))
        came: dict[int, list[bytes]] = {}
        for port, frame in made.process(exchange["rank"] + 1, bytes.fromhex(exchange["frame"])):
            came.setdefault(port - 1, []).append(frame)
        assert difference(expected, came) is None, exchange["rule"]


def test_the_facts_of_golden_frames_are_a_file_of_facts(tmp_path: Path) -> None:
    written: Any = DOCUMENT["golden"]["facts"]
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(written))
    assert read_facts(path) == FACTS
    assert written == facts_as_json(FACTS)


def test_the_rules_have_each_row_of_a_member_that_the_definition_has() -> None:
    rows = re.findall(r"^ +(\d+) \|", str(slot_rules.__doc__), re.MULTILINE)
    assert [f"row {row}" for row in rows] == [rule for rule in RULES if rule.startswith("row")]
    assert DOCUMENT["rules"] == RULES
