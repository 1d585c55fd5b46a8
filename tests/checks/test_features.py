"""Features that meet features: the array covers what it says, the judge sees what is wrong, and rows are right."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")

import torch.distributed as dist

from checks.features import covering, groups, judging, playing
from checks.features.columns import COLUMNS, RULES, is_possible
from checks.features.covering import cover, possible_rows
from checks.features.judging import Judge
from checks.features.orders import Order
from checks.features.playing import Fleet, orders_of, play_in_memory
from checks.features.rank import SHAPES
from support.timing import patience
from switchsum.torch.compression import METHODS
from switchsum.torch.fragments import Fragment
from switchsum_host.compress import thc

ROOT = Path(__file__).resolve().parents[2]
SECONDS = float(os.environ.get("SWITCHSUM_FEATURES_S", "30"))
PLAIN = {
    "link": "memory",
    "topology": "star",
    "lanes": "int32",
    "compressor": "none",
    "step": "allreduce",
    "group": "communicator",
    "fragments": "1",
    "rows": "all",
    "event": "none",
    "sharing": "own",
    "loss": "0",
    "dtype": "float32",
}


def report(**facts: Any) -> dict[str, Any]:
    return {"lost": -1, "bits": {0: "a"}, "off": 0.5, "error": None, "went_on": False} | facts


def refused(name: str, text: str = "why", lost: int = -1) -> dict[str, Any]:
    return {"raised": name, "text": text, "lost": lost}


def test_every_three_values_that_can_meet_do() -> None:
    columns = {"a": "01", "b": "012", "c": "01", "d": "0123"}
    rows = possible_rows({name: tuple(values) for name, values in columns.items()}, lambda row: row["a"] <= row["c"])
    taken = cover(rows, 7)
    triples = [{some for row in table for some in combinations(row.items(), 3)} for table in (rows, taken)]
    assert triples[0] == triples[1]
    assert len(taken) < len(rows)
    assert cover(rows, 7) == taken
    assert cover(rows, 8) != taken


def test_rows_that_are_looked_at_in_parts_cover_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = possible_rows({name: tuple("0123") for name in "abcd"}, lambda row: True)
    whole = len(cover(rows, 7))
    monkeypatch.setattr(covering, "AT_ONCE", 40)
    taken = cover(rows, 7)
    assert {some for row in taken for some in combinations(row.items(), 3)} == {
        some for row in rows for some in combinations(row.items(), 3)
    }
    assert whole <= len(taken) < 2 * whole


def test_the_columns_have_every_compressor_and_every_rule_rules_something_out() -> None:
    assert {name.partition(":")[0] for name in COLUMNS["compressor"]} == {"none", *METHODS}
    assert is_possible(PLAIN)
    drawn = random.Random(0)
    few = [{name: drawn.choice(values) for name, values in COLUMNS.items()} for _ in range(5000)]
    assert [why for why, rule in RULES.items() if not any(rule(row) for row in few)] == []


@pytest.mark.parametrize(
    ("event", "jobs", "found"),
    [
        ("none", [[report(), report()]], ""),
        ("none", [[report(), report(bits={0: "b"})]], "different bits"),
        ("none", [[report(off=1.5)]], "as far off as rounding"),
        ("none", [[report(error=0.3), report(error=0.1)]], "averages are off by 0.3"),
        ("none", [[report(error=0.3, went_on=True), report(error=0.1)]], ""),
        ("none", [[report(went_on=True), report(bits={0: "b"})]], "different bits"),
        ("none", [[refused("OperationMismatch"), report()]], "some ranks raise"),
        ("none", [[refused("OperationMismatch")] * 2], "all ranks raise OperationMismatch"),
        ("none", [[report(), {"killed": True}]], "ended by themselves"),
        ("none", [[{"foreign": "Traceback\nKeyError: 3\n"}, report()]], "KeyError: 3"),
        ("checkpoint", [[report()], [refused("OperationMismatch")] * 2], ""),
        ("checkpoint", [[report()], [refused("OperationMismatch"), refused("WorkerLost")]], "some ranks raise"),
        ("killed", [[report(lost=1), {"killed": True}]], ""),
        ("killed", [[report(lost=1), report()]], "ended by themselves"),
        ("none", [[report(), report(), {"outside": True, "beside": 0}]], ""),
        ("none", [[report(beside=0), report(), {"outside": True, "beside": 3}]], "3 values of the group beside"),
    ],
)
def test_the_judge_sees_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, event: str, jobs: list[list[dict[str, Any]]], found: str
) -> None:
    monkeypatch.setattr(judging, "play_in_memory", lambda *_: [[report(error=0.1)]])
    faults = "; ".join(Judge().faults(PLAIN | {"event": event}, 0, jobs))
    assert found in faults
    assert bool(faults) == bool(found)


def test_a_lost_rank_has_to_be_named() -> None:
    row, killed = PLAIN | {"event": "killed", "step": "DiLoCo"}, {"killed": True}
    assert Judge().faults(row, 0, [[refused("WorkerLost", lost=1), killed]]) == []
    assert "said to be {0}" in Judge().faults(row, 0, [[refused("WorkerLost", lost=0), killed]])[0]


def test_a_group_of_pytorchs_is_not_formed_anew() -> None:
    reports = [refused("WorkerLost", lost=1), {"killed": True}, {"outside": True}]
    row = PLAIN | {"event": "killed", "link": "shm", "group": "some"}
    assert Judge().faults(row, 0, [reports]) == []
    assert "all ranks raise WorkerLost" in Judge().faults(row | {"group": "communicator"}, 0, [reports])[0]


def test_sums_of_the_group_beside_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended:
        def wait(self) -> None: ...

    off = iter([0, 0, 1, 0])

    def add(tensor: Any, **_: Any) -> Ended:
        tensor *= 4  # ranks 0 and 2 add 1 and 3 times as much
        tensor -= 2 * (tensor[0] // 4)
        tensor[5] += next(off)
        return Ended()

    monkeypatch.setattr(dist, "all_reduce", add)
    beside = groups.Beside(None, groups.OTHERS, 0)
    beside.begin()
    assert beside.finish() == 1


def test_an_event_makes_a_second_job_with_those_who_take_part_then() -> None:
    def members(event: str) -> list[tuple[int, ...]]:
        return [orders[0].members for orders in orders_of(PLAIN | {"event": event}, 5)]

    assert (members("none"), members("replaced")) == ([(0, 1, 2)], [(0, 1, 2)] * 2)
    assert members("newcomer") == [(0, 1, 2), (0, 1, 2, 3)]
    third = orders_of(PLAIN, 5)[0][2]
    assert (type(third), third.member) == (Order, 2)


class Stub:
    """A rank's process that has nothing to do."""

    ended: list[int] = []  # noqa: RUF012 - of the test that replaces it

    def __init__(self, *_: Any) -> None:
        self.process = SimpleNamespace(poll=lambda: None)
        self.reports: SimpleQueue[Any] = SimpleQueue()
        self.reports.put({"ready": True})

    def order(self, order: Order) -> None:
        self.rank = order.rank
        self.reports.put({"turn": order.turn})

    def end(self) -> None:
        self.ended.append(self.rank)


def test_a_rank_that_is_replaced_is_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "RankProcess", Stub)
    monkeypatch.setattr(Stub, "ended", [])
    fleet: Any = SimpleNamespace(controller="", scratch="", wires=[], link_of=lambda *_: "shm:x")
    for event in ("newcomer", "replaced"):
        processes = playing.Processes(fleet)
        for orders in orders_of(PLAIN | {"event": event, "link": "shm"}, 5):
            reports = processes._play_job(orders, "job")
            assert reports == [{"turn": orders[0].turn}] * len(orders)
        assert Stub.ended == [1] * (event == "replaced")


def test_a_compressor_whose_ranks_rotate_differently_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    row = PLAIN | {"compressor": "thc", "step": "average"}
    judge, words, turns = Judge(), thc._Plan.words, iter(range(1, 1000))
    assert judge.faults(row, 0, play_in_memory(row, 0)) == []

    def turned(plan: Any, values: Any, bits: int) -> Any:
        return words(replace(plan, seed=plan.seed + next(turns)), values, bits)

    monkeypatch.setattr(thc._Plan, "words", turned)
    assert "averages are off by" in "; ".join(judge.faults(row, 0, play_in_memory(row, 0)))


@pytest.mark.parametrize("fragments", COLUMNS["fragments"])
def test_what_a_training_in_fragments_ends_with_is_rebuilt(fragments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = PLAIN | {"step": "DiLoCo", "fragments": fragments}
    ((first, *_),) = play_in_memory(row, 0)
    assert first["error"] < 1e-5
    apply = Fragment.apply

    def late(fragment: Fragment) -> None:
        """Take the outer step with averages of which one value is another."""
        assert fragment.under_way is not None
        fragment.under_way.work.wait()
        fragment.under_way.means[0].view(-1)[0] += 1.0
        apply(fragment)

    monkeypatch.setattr(Fragment, "apply", late)
    ((first, *_),) = play_in_memory(row, 0)
    assert first["error"] > 1e-3


def test_small_integers_fit_lanes_of_4_bits() -> None:
    row = PLAIN | {"lanes": "int4", "dtype": "int8"}
    assert is_possible(row)
    for number in range(len(SHAPES)):
        assert Judge().faults(row, number, play_in_memory(row, number)) == []


def test_links_lead_where_the_topology_says() -> None:
    fleet = object.__new__(Fleet)
    fleet._commands = {name: ["--udp", f"{name}:1", "--shm", f"/{name}"] for name in ("root", "leaf0", "leaf1")}
    links = {name: fleet.link_of(PLAIN | {"link": "udp", "topology": name}, 1) for name in COLUMNS["topology"]}
    assert links == {
        "star": "udp:root:1",
        "racks": "udp:leaf1:1",
        "rails": "udp:leaf0:1,udp:leaf1:1",
        "cables": "udp:root:1,udp:root:1%127.0.0.2",
    }
    assert fleet.link_of(PLAIN | {"link": "shm"}, 0) == "shm:/root"
    wires = {name: fleet.link_of(PLAIN | {"link": "veth", "topology": name}, 1) for name in COLUMNS["topology"]}
    assert wires == {
        "star": "packet:sum0",
        "racks": "packet:sum3",
        "rails": "packet:sum2,packet:sum3",
        "cables": "packet:sum0,packet:sum1",
    }


@pytest.mark.timeout(600)
def test_features_that_meet_are_right_or_refused_by_all() -> None:
    """A part of `make features`, with another seed each time; SWITCHSUM_FEATURES_S has it go on for longer."""
    seed = random.SystemRandom().randrange(10**6)
    command = [sys.executable, "-m", "checks.features", "--seed", str(seed), "--seconds", str(SECONDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience(300), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
