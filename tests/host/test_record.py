"""What ranks must have alike: every field is compared, or says why it need not be."""

from __future__ import annotations

import gc
import inspect
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from switchsum_host.api.collectives import Options
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.record import COLLECTIVES, OPERATION, Record, digest_of, said
from switchsum_host.connect import RANKS_MAY_DIFFER, connect
from switchsum_host.engine.config import EngineConfig
from switchsum_host.engine.operation import Operation
from switchsum_protocol import member_rpc, speaks
from switchsum_protocol.agreement_rpc import AgreeRequest, Terms
from switchsum_protocol.member_rpc import JoinRequest

PLAIN: dict[str, Any] = {
    "kind": "allreduce",
    "dtype_name": "float32",
    "dtype": np.dtype("f4"),
    "size": 6,
    "shape": (6,),
}
OTHERS: dict[str, Any] = {
    "kind": "reduce to rank 0",
    "operator": "max",
    "lanes": "int16",
    "dtype_name": "float16",
    "shape": (2, 3),
    "options": ("narrow",),
    "label": "layer 1",
}
"""Another value of each field that is compared."""


ENGINE: dict[str, str] = {
    **dict.fromkeys(
        (
            "world_size",
            "job",
            "epoch",
            "lanes_per_frame",
            "window_slots",
            "first_slot",
            "shares_slots",
            "first_shared_slot",
            "first_number",
            "growth_bytes",
            "trees",
        ),
        "the controller decides it and tells all ranks the same",
    ),
    **dict.fromkeys(("rank", "own", "cookie", "switch", "places"), "the controller tells each rank its own"),
    **dict.fromkeys(("timeout_s", "switch_timeout_s", "checksum", "seed"), "an argument of connect: RANKS_MAY_DIFFER"),
    **dict.fromkeys(
        (
            "probe_initial_s",
            "probe_min_s",
            "granularity_s",
            "probe_max_s",
            "mark_gain",
            "first_window",
            "loss_cut",
            "reorder_threshold",
        ),
        "it decides when a rank sends, and never what is added",
    ),
}
"""Why ranks need not compare fields of the engine's configuration."""


def test_every_field_of_an_engines_configuration_says_why_ranks_need_not_compare_it() -> None:
    assert {one.name for one in fields(EngineConfig)} == ENGINE.keys()
    arguments = {name for name, why in ENGINE.items() if "RANKS_MAY_DIFFER" in why}
    assert arguments <= RANKS_MAY_DIFFER.keys()


@pytest.mark.parametrize("name", [one.name for one in fields(Operation) if one.init])
def test_every_field_of_an_operation_is_in_its_text_or_says_why_not(name: str) -> None:
    assert (name in OTHERS) != (name in OPERATION), "say which: is it compared, or why need it not be?"
    assert all(OPERATION.values())
    if name in OTHERS:
        assert Operation(**PLAIN | {name: OTHERS[name]}).text != Operation(**PLAIN).text


def test_plain_calls_have_the_digests_that_they_had() -> None:
    """So frames have the same bytes, and the wire version stays."""
    made = Operation.of(np.zeros(6, np.float32))
    other = Operation.of(np.zeros((2, 3), np.int64), "reduce to rank 1", operator="max", label="layer 1")
    assert (made.text, other.text) == (
        "allreduce sum int32 float32 (6,) ",
        "reduce to rank 1 max int32 int64 (2, 3) layer 1",
    )
    assert [zlib.crc32(one.text.encode()) for one in (made, other)] == [2936934517, 578575192]


def test_every_option_of_a_reduction_is_in_the_operation() -> None:
    kept = {"operator", "lanes", "label"}
    assert set(Options._fields) == kept | {"narrow", "saturate"}
    assert Options(narrow=True, saturate=True).switches == ("narrow", "saturate")
    assert kept < {one.name for one in fields(Operation)}


def test_every_argument_of_connect_is_compared_by_the_controller_or_says_why_not() -> None:
    assert inspect.signature(connect).parameters.keys() - {"job", "world_size"} == RANKS_MAY_DIFFER.keys()
    assert all(RANKS_MAY_DIFFER.values())


def test_every_term_of_a_quorum_is_compared() -> None:
    terms, own = {one.name for one in fields(Terms)}, {"job", "nonce", "after", "begun", "is_whole", "wait_s"}
    assert {one.name for one in fields(AgreeRequest)} == terms | own
    base = Terms(quorum=0.5, patience_s=1.0)
    others: dict[str, Any] = {"quorum": 0.6, "patience_s": 2.0, "keep": 5, "gives_model": True, "model": "arrays"}
    assert others.keys() == terms
    for name, value in others.items():
        assert replace(base, **{name: value}) != base


def test_all_collectives_that_take_a_label_are_announced() -> None:
    taking = {
        name.removesuffix("_async")
        for name, call in inspect.getmembers(Communicator, callable)
        if not name.startswith("_") and "label" in inspect.signature(call).parameters
    }
    assert taking == COLLECTIVES


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        ([1, 23], [12, 3]),
        (["a", "bc"], ["ab", "c"]),
        ({"a": 1}, {"b": 1}),
        ({"a": [1]}, {"a": [1, 1]}),
        ([[], [1]], [[1], []]),
        (np.zeros(3), np.zeros(3, np.float32)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.array([0.0]), np.array([-0.0])),
        (b"1", 1),
    ],
)
def test_values_that_differ_have_other_digests(one: Any, other: Any) -> None:
    assert digest_of(one) == digest_of(one)
    assert digest_of(one) != digest_of(other)


def test_records_are_the_same_whatever_kind_of_number_and_order_they_were_given() -> None:
    assert said(0.5) == said(np.float32(0.5)) == said(np.float64(0.5))
    assert Record(title="x", facts={"a": 1, "b": 2.0}).text == Record(title="x", facts={"b": 2, "a": np.int64(1)}).text
    assert Record(title="x", facts={"a": 1}).text != Record(title="x", facts={"a": 2}).text
    assert said(np.random.default_rng) == "default_rng"
    assert "0x" not in said([object(), Record, lambda: 0])


def test_members_and_controllers_of_other_messages_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, fields), *_ = speaks._fields_in(member_rpc)
    assert (first, fields[:3]) == ("JoinRequest", ["job: str", "rank: int", "world_size: int"])
    before = speaks.speaks()
    speaks.speaks.cache_clear()
    assert speaks.speaks() == before == JoinRequest(job="a", rank=0, world_size=1).wire_digest
    monkeypatch.setattr(speaks, "RECORDS", 99)
    speaks.speaks.cache_clear()
    assert speaks.speaks() != before
    monkeypatch.undo()
    speaks.speaks.cache_clear()


def test_many_members_may_join_at_once() -> None:
    """All threads of a new controller ask what it speaks when all ranks join; a collection lets another thread run."""
    threads = 8
    together, threshold = threading.Barrier(threads), gc.get_threshold()

    def let_others_run(*_: object) -> None:
        time.sleep(0)

    def ask() -> str:
        together.wait()
        return speaks.speaks()

    gc.callbacks.append(let_others_run)
    gc.set_threshold(50)
    try:
        for _ in range(5):
            speaks.speaks.cache_clear()
            with ThreadPoolExecutor(threads) as pool:
                assert len({one.result() for one in [pool.submit(ask) for _ in range(threads)]}) == 1
    finally:
        gc.callbacks.remove(let_others_run)
        gc.set_threshold(*threshold)
