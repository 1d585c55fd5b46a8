"""The committed builds are those of the committed sources."""

from __future__ import annotations

import json
import re

import pytest

from switchsum import p4src
from switchsum_protocol.frame import LANE_BUILDS


def test_the_compiled_builds_are_current() -> None:
    assert p4src.compiled_digest() == p4src.source_digest(), "p4src has moved on: run make p4"


@pytest.mark.parametrize("lanes", LANE_BUILDS)
def test_a_build_has_its_lanes(lanes: int) -> None:
    program = p4src.load(lanes)
    document = json.loads(program.device_config)
    widths = {kind["name"]: sum(field[1] for field in kind["fields"]) for kind in document["header_types"]}
    assert widths["lanes_t"] == 32 * lanes
    assert "SwitchIngress.validate.admission.admission" in program.p4info


@pytest.mark.parametrize("lanes", LANE_BUILDS)
def test_the_words_of_the_slot_machines_table_cost_nothing(lanes: int) -> None:
    # p4c puts in what they stand for. A variable would be reset for every packet, and copied for every replica.
    words = re.findall(r"^    bool (\w+);", (p4src.SOURCES / "slot.p4").read_text(), re.MULTILINE)
    assert len(words) > 10
    document = json.loads(p4src.load(lanes).device_config)
    [scalars] = [kind["fields"] for kind in document["header_types"] if kind["name"] == "scalars_0"]
    assert {f"dispatch_cells_slot_{word}" for word in words} & {name for name, *_ in scalars} == set()


@pytest.mark.parametrize("lanes", LANE_BUILDS)
def test_short_names_are_short(lanes: int) -> None:
    # p4c makes an alias of the shortest unique end of a name; finsy refuses P4Info whose aliases have two dots.
    aliases = re.findall(r'alias: "([^"]+)"', p4src.load(lanes).p4info)
    assert aliases
    assert [alias for alias in aliases if alias.count(".") > 1] == []
