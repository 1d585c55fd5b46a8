"""Records of trainings say what was trained on which network, and what bounds a step."""

from __future__ import annotations

from typing import Any

import pytest

from checks.bench.jobs import over_bridge, over_switch
from checks.bench.train import BUSY, FEWER_BYTES, SETUPS, WAYS, Setup, bound, records_of
from switchsum_lab.sweeps.star import UNLIMITED


def result(ms: float, *, up: float = 1e6, down: float = 1e6, busy: float = 0.5) -> dict[str, Any]:
    return {"steps": [ms] * 3, "ms": ms, "bytes": up, "bytes down": down, BUSY: busy, "lanes": 2048, "score": 0.0}


def test_networks_beyond_the_ordinary_one_stand_in_the_names_of_their_records() -> None:
    assert [setup.name for setup in SETUPS] == ["", "mtu9000.", "8workers.", "8workers.mtu9000."]
    setup = Setup(workers=8, mtu=9000)
    ours = {f"layers-small.{way}": result(100) for way in (*WAYS, *FEWER_BYTES)}
    theirs = {"layers-small.plain": result(300), "layers-small.bf16": result(150)}
    found = {item.name: item for item in records_of(setup, "200mbit", ours, theirs)}
    assert set(found) == {
        f"train.200mbit.8workers.mtu9000.layers-small{way}"
        for way in ("", ".bf16", ".int16", *(f".{name}" for name in FEWER_BYTES))
    }
    assert found["train.200mbit.8workers.mtu9000.layers-small.int8"].ratio == pytest.approx(3)
    assert found["train.200mbit.8workers.mtu9000.layers-small.bf16"].ratio == pytest.approx(1.5)


def test_the_fuller_direction_of_a_link_counts_and_what_works_most_comes_first() -> None:
    assert bound(result(100, up=1e6, down=2e6, busy=0.5), "200mbit") == "link 80%, processors 50%"
    assert bound(result(100, up=2e6, down=1e6, busy=0.9), "200mbit") == "processors 90%, link 80%"
    assert bound(result(100, busy=0.9), UNLIMITED) == "processors 90%"


def test_both_sides_train_on_the_same_network() -> None:
    ours, theirs = over_switch(8, "1gbit", ["rank"], mtu=9000), over_bridge(8, "1gbit", ["rank"], mtu=9000)
    assert ours[ours.index("-n") + 1] == theirs[theirs.index("gloo") + 1] == "8"
    assert ours[ours.index("--mtu") + 1] == "9000"
    assert theirs[theirs.index("gloo") + 1 :][1:3] == ["1gbit", "9000"]
    assert ours[-1] == theirs[-1] == "rank"
    assert "--links" not in over_switch(8, UNLIMITED, ["rank"])
