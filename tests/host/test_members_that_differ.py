"""Ranks whose calls differ in any argument all hear of it; where arguments may differ, all have the same result.

The calls and their arguments are those that `Communicator` has: a new one fails here until it is said what its
arguments may be, and whether ranks must agree in them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchsum.testing.local import communicators
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.sparse import SparseSum
from switchsum_host.engine.operation import BITWISE, SKIP_ZEROS
from switchsum_protocol.errors import OperationMismatch, UsageError
from switchsum_protocol.frame import Operator

from .checks import failures, on_all

Array = npt.NDArray[Any]
Arguments = dict[str, Any]

NO_COLLECTIVES = {
    "begin_steps",
    "break_off",
    "checked",
    "close",
    "compute",
    "note_purpose",
    "note_wait",
    "now",
    "purpose_of",
    "reform",
    "refuse",
    "start",
    "statistics",
}
AGREED_BY_THE_CONTROLLER = {"quorum", "patience_s"}
"""Arguments of operations that go on without late ranks: tests/host/test_quorum.py."""
CALLS = {
    name: inspect.signature(call).parameters.keys() - {"self"} - AGREED_BY_THE_CONTROLLER
    for name, call in inspect.getmembers(Communicator, callable)
    if not name.startswith("_") and name not in NO_COLLECTIVES
}
OPERATORS = ["average", *(operator.name.lower() for operator in Operator)]
"""Of the aliases the average alone: another one says here which dtypes it takes (docs/operators.md)."""
STRUCTURE = np.dtype([("a", "i2"), ("b", "f8")])
FLOATS, NUMBERS = ["f4", "f2"], ["f4", "f2", "i4", "i1", "u4"]
ANY: list[Any] = [*NUMBERS, "f8", ">f4", "M8[s]", "M8[ms]", "V10", STRUCTURE, np.dtype([("b", "f8"), ("a", "i2")])]
SHAPES: list[tuple[int, ...]] = [(6,), (8,), (600,), (2, 300), (300, 2), (20, 30), (30, 20), (6, 1)]
AGREED: dict[str, list[Any]] = {
    "array": [(np.dtype(dtype), shape) for dtype in ANY for shape in SHAPES],
    "values": [(np.dtype(dtype), shape) for dtype in NUMBERS for shape in [(), (2,), (1,)]],
    "size": [10, 12, 700, 5000],
    "op": OPERATORS,
    "lanes": ["int32", "int16", "int8"],
    "narrow": [False, True],
    "saturate": [False, True],
    "block": [None, 32, 64, "auto"],
    "keep": [None, 2, 3],
    "root": [0, 1],
    "sizes": [False, True],
    "label": ["", "layer 1", "layer 2"],
}
FREE: dict[str, list[Any]] = {
    "indices": [(0, 1, 2), (9, 0, 4), (1, 1, 1)],
    "k": [0, 3, 1000],
    "density": [0.1, 1.0],
    "out": [False, True],
    "background": [False, True],
}


def is_good(name: str, given: Arguments) -> bool:
    """Whether no rank refuses these arguments."""
    dtype, shape = given.get("array") or given.get("values") or (np.dtype("f4"), ())
    is_float, op = dtype in [np.dtype(one) for one in FLOATS], given.get("op", "sum")
    if name.startswith(("broadcast", "allgather")):
        return True
    if dtype not in [np.dtype(one) for one in NUMBERS] or (op in BITWISE and dtype.kind not in "iu"):
        return False
    if op == "average" and not is_float:
        return False
    if given.get("lanes", "int32") != "int32" and not (is_float and op in ("sum", "average")):
        return False
    if op not in ("sum", "average") and "keep" in given:
        return False
    if given.get("block") is not None and op not in SKIP_ZEROS:
        return False
    return given.get("keep") is None or (len(shape) == 0 or "array" in given)


@st.composite
def calls(draw: st.DrawFn, name: str = "") -> tuple[str, Arguments]:
    """Draw a call that no rank refuses, or its form that does not block."""
    name = name or draw(st.sampled_from(sorted(name.removesuffix("_async") for name in CALLS)))
    name = draw(st.sampled_from([one for one in CALLS if one.removesuffix("_async") == name]))
    options = sorted(CALLS[name] - {draw(st.sampled_from(["k", "density"]))})
    given = {one: draw(st.sampled_from((AGREED | FREE)[one])) for one in options}
    while not is_good(name, given):
        changed = draw(st.sampled_from(options))
        given[changed] = draw(st.sampled_from((AGREED | FREE)[changed]))
    return name, given


def called(communicator: Communicator, name: str, given: Arguments, zeros: bool = False) -> Any:
    """Call it, and wait for the result."""
    arguments = dict(given)
    if "array" in given:
        dtype, shape = given["array"]
        arguments["array"] = np.ones(shape, "i1").view("V1").astype("V10") if dtype == "V10" else np.ones(shape, dtype)
        if zeros:
            arguments["array"][...] = np.zeros((), dtype)
    if "values" in given:
        dtype, shape = given["values"]
        arguments["values"] = np.full((3, *shape), not zeros, dtype)
        arguments["indices"] = np.array(given["indices"])
    if "out" in given:
        dtype, shape = given["array"]
        parts = (communicator.world_size, *shape) if "gather" in name else (shape[0] // 2, *shape[1:])
        arguments["out"] = np.empty(parts, dtype) if given["out"] else None
    if "sizes" in given:
        arguments["sizes"] = [len(arguments["array"])] * communicator.world_size if given["sizes"] else None
    result = getattr(communicator, name)(**arguments)
    return result.wait() if name.endswith("_async") else result


def test_every_call_and_argument_is_known_here() -> None:
    assert set().union(*CALLS.values()) == (AGREED | FREE).keys()


def check_mismatch(both: list[Callable[[Communicator], object]]) -> None:
    ranks = communicators(2)
    try:
        for call in (lambda one: both[one.rank](one), Communicator.barrier):
            assert [type(error) for error in failures(ranks, call)] == [OperationMismatch] * 2
    finally:
        for communicator in ranks:
            communicator.close()


def others(name: str, given: Arguments, option: str) -> list[Arguments]:
    """Return the arguments that differ in one option, or in one property of the array, and are refused by no rank."""
    argument = option.split(maxsplit=1)[0]
    found = []
    for value in AGREED[argument]:
        if value == given[argument] or not is_good(name, given | {argument: value}):
            continue
        if argument in ARRAYS:
            (dtype, shape), (other_dtype, other_shape) = given[argument], value
            differ = (dtype != other_dtype, shape != other_shape, np.prod(shape) != np.prod(other_shape))
            if differ != ARRAYS[argument].get(option):
                continue
        found.append(given | {argument: value})
    return found


ARRAYS: dict[str, dict[str, tuple[bool, bool, bool]]] = {
    "array": {
        "array dtype": (True, False, False),
        "array shape": (False, True, False),
        "array size": (False, True, True),
    },
    "values": {"values dtype": (True, False, False), "values shape": (False, True, True)},
}
"""Whether dtype, shape and size differ."""


def differences() -> Iterator[tuple[str, str]]:
    """Yield each call and each property in which two of it may not differ."""
    for name in sorted({name.removesuffix("_async") for name in CALLS}):
        for argument in sorted(CALLS[name] & AGREED.keys()):
            for option in ARRAYS.get(argument, [argument]):
                if (name, option) != ("allgatherv", "array size"):  # lengths may differ there
                    yield name, option


@pytest.mark.parametrize(("name", "option"), list(differences()))
@given(data=st.data())
@settings(max_examples=6)
def test_calls_that_differ_in_one_argument_are_a_mismatch_on_all_ranks(
    name: str, option: str, data: st.DataObject
) -> None:
    name, given = data.draw(calls(name).filter(lambda call: others(call[0], call[1], option)))
    other, zeros = data.draw(st.sampled_from(others(name, given, option))), data.draw(st.booleans())
    check_mismatch([lambda one: called(one, name, given), lambda one: called(one, name, other, zeros)])


@given(calls(), calls())
@settings(max_examples=50)
def test_other_calls_are_a_mismatch_on_all_ranks(call: tuple[str, Arguments], other: tuple[str, Arguments]) -> None:
    if call[0].removesuffix("_async") != other[0].removesuffix("_async"):
        check_mismatch([lambda one: called(one, *call), lambda one: called(one, *other)])


@given(calls(), st.data())
@settings(max_examples=100)
def test_what_may_differ_is_accepted(call: tuple[str, Arguments], data: st.DataObject) -> None:
    name, given = call
    other = given | {one: data.draw(st.sampled_from(FREE[one])) for one in given.keys() & FREE.keys()}
    names = [one for one in CALLS if one.removesuffix("_async") == name.removesuffix("_async")]
    name_there = data.draw(st.sampled_from(names))
    ranks = communicators(2)

    def result(communicator: Communicator) -> Any:
        if communicator.rank == 0:
            return called(communicator, name, given)
        return called(
            communicator, name_there, {key: other[key] for key in other.keys() & CALLS[name_there]}, zeros=True
        )

    here, there = on_all(ranks, result)
    if isinstance(here, SparseSum):
        here, there = here.to_dense(), there.to_dense()
    if isinstance(here, list):
        here, there = (np.concatenate([part.reshape(-1).view(np.uint8) for part in one]) for one in (here, there))
    if not name.startswith("reduce") and name.removesuffix("_async") != "barrier":
        assert here.tobytes() == there.tobytes()
    for communicator in ranks:
        communicator.close()


@pytest.mark.parametrize("name", ["allgather", "broadcast"])
@pytest.mark.parametrize("dtype", ["V0", np.dtype([])], ids=str)
def test_dtypes_without_bytes_are_refused_and_nothing_breaks(name: str, dtype: Any) -> None:
    ranks = communicators(2)
    errors = failures(ranks, lambda one: getattr(one, name)(np.zeros(3, dtype)))
    assert [type(error) for error in errors] == [UsageError] * 2
    on_all(ranks, Communicator.barrier)
    for communicator in ranks:
        communicator.close()


def test_errors_name_the_callers_dtype_and_call() -> None:
    for call, text in {
        "allgather": "allgather of float32[4] (call 1",
        "broadcast": "broadcast from rank 0 of float32[4] (call 1",
    }.items():
        ranks = communicators(2)
        size = {0: 4, 1: 5}
        first, _ = failures(ranks, lambda one: getattr(one, call)(np.ones(size[one.rank], np.float32)))  # noqa: B023
        assert text in str(first)
        for communicator in ranks:
            communicator.close()


def test_a_library_that_refuses_its_arguments_ends_the_others_call() -> None:
    ranks = communicators(2)

    def call(communicator: Communicator) -> None:
        with communicator.checked():
            if communicator.rank == 1:
                raise UsageError("not so")
        communicator.allreduce(np.ones(3, np.float32))

    assert [type(error) for error in failures(ranks, call)] == [OperationMismatch, UsageError]
    for communicator in ranks:
        communicator.close()
