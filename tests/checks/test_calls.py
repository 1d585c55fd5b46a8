"""What `make bench-small` says of whole calls, by what two ranks have found."""

from __future__ import annotations

from typing import Any

import pytest

from checks.bench import calls
from checks.bench.calls_worker import LARGE_BYTES, LINK_BYTES
from checks.bench.records import exceeded

QUICK: dict[str, Any] = {
    "entered": [10.0, 20.0],
    "left": [10.0001, 20.00005],
    "pings": [2e-5, 1e-5],
    "calls": [0.03, 0.02],
    "copies": [0.01, 0.02],
    "grown": [0, 4096],
}
ON_LINKS: dict[str, Any] = {"frames": [4e-7, 5e-7], "datagrams": [2e-6, 3e-6], "seconds": [0.087, 0.1], "repeats": 0}


def by_name(records: list[Any]) -> dict[str, float]:
    return {one.name.removeprefix("calls."): one.value for one in records}


def test_a_small_call_lasts_until_the_last_rank_has_left() -> None:
    late = QUICK | {"entered": [9.0, 20.00001], "left": [10.0002, 20.00007]}
    found = by_name(calls.shared([QUICK, late]))
    assert found["small"] == pytest.approx(6)
    assert found["large"] == pytest.approx(2)
    assert found["memory"] == 0


def test_no_memory_is_shown_where_the_kernel_does_not_tell() -> None:
    assert "memory" not in by_name(calls.shared([QUICK | {"grown": []}] * 2))


def test_frames_and_repeats_are_of_both_ranks() -> None:
    found = by_name(calls.linked([ON_LINKS, ON_LINKS | {"frames": [3e-7], "repeats": LINK_BYTES // 1024}]))
    assert found["frames"] == pytest.approx(0.15)
    assert found["repeats"] == pytest.approx(1 / 3, rel=0.01)
    assert found["line"] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("name", "slow"),
    [
        ("small", QUICK | {"left": [10.1, 20.1]}),
        ("large", QUICK | {"calls": [0.2]}),
        ("memory", QUICK | {"grown": [LARGE_BYTES]}),
    ],
)
def test_a_slow_call_exceeds_its_limit(name: str, slow: dict[str, Any]) -> None:
    assert exceeded(calls.shared([QUICK, QUICK]), calls.LIMITS) == []
    assert [text.split(":")[0] for text in exceeded(calls.shared([slow, slow]), calls.LIMITS)] == [f"calls.{name}"]


@pytest.mark.parametrize(("name", "slow"), [("frames", {"frames": [2e-6]}), ("repeats", {"repeats": 5000})])
def test_a_slow_frame_exceeds_its_limit(name: str, slow: dict[str, Any]) -> None:
    assert exceeded(calls.linked([ON_LINKS] * 2), calls.LIMITS) == []
    assert [text.split(":")[0] for text in exceeded(calls.linked([ON_LINKS | slow] * 2), calls.LIMITS)] == [
        f"calls.{name}"
    ]
