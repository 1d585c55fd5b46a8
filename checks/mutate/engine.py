"""Statements of the worker's engine changed one at a time, which its tests must notice.

Kernels run as plain Python, so that a function's code is exchanged in place, in a process of its own.
"""

from __future__ import annotations

import ast
import functools
import itertools
import operator
import os
import signal
import time
import types
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest

from switchsum_host.engine import receiving, recovery, sending
from switchsum_host.engine.policies import losses, timer
from tests.host import (
    test_engine,
    test_engine_failures,
    test_engine_frames,
    test_receiving,
    test_recovery,
    test_rules,
    test_sending,
)

from .mutant import Mutant

MODULES: Final = (recovery, sending, receiving, losses, timer)
ENGINE_TESTS: Final = (test_engine, test_engine_failures, test_engine_frames)
TESTS: Final = (test_rules, test_recovery, test_sending, test_receiving, *ENGINE_TESTS)
MOST_S: Final = 0.1
"""Of processor time, that a test of the engine as a whole may take to be run for each change; nearly all take less."""
TIMEOUT_S: Final = 60
"""Of processor time. A change that lets a test run on for ever is noticed, too."""
OPPOSITE: Final[dict[type[ast.AST], type[Any]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}
CHANGED: Final = (
    *(ast.Compare, ast.BoolOp, ast.BinOp, ast.AugAssign, ast.Name),
    *(ast.Constant, ast.Expr, ast.Assign, ast.Continue, ast.If),
)
OTHER_NAMES: Final = {"min": "max", "max": "min"}
FETCHES: Final = ("if i + 2 < count", "if i + 1 < count", "row_list[i + 2]", "row_list[i + 1]", "fetch_ahead(")
"""In statements of `receiving.receive` that have what comes next fetched: without them it is there later."""
EQUAL: Final[dict[str, str]] = {
    "sending.begin_column: slot.considered = max(slot.considered, core.progress.oldest) -> nothing": (
        "operations that are over had no column for the slot, and there are fewer slots than records of operations"
    ),
    "sending.choose_block: slot.named = 1 -> slot.named = 2": "it is asked whether it is zero",
    "sending.contribute_blocked: if state.core[0].progress.blocked == 0: -> nothing": "slots are searched in vain",
    "sending._write_frame: frame[AT.reason] = 0 -> nothing": "rows hold zeros, or hellos and contributions with 0",
    "recovery._probe_slot: if ACTIONS[state.slots[index].phase, Event.TIMED_OUT] != Action.REPEAT: -> nothing": (
        "slots with a frame that is not answered wait"
    ),
    "recovery._probe_slot: return 0 -> return 1": "slots with a frame that is not answered wait",
    "recovery._oldest: first, oldest = (bound, np.int64(-1)) -> first, oldest = (bound, np.int64(-2))": (
        "it is asked whether it is negative"
    ),
    "recovery.probe: oldest = _oldest(state, bound, 1) -> oldest = _oldest(state, bound, 2)": "held is 0 or 1",
    "sending.sent: for place in range(core.sending.queued if count > 0 else 0): -> "
    "for place in range(core.sending.queued if count >= 0 else 0):": "each frame is moved to where it is",
    "sending.sent: for place in range(core.sending.queued if count > 0 else 0): -> "
    "for place in range(core.sending.queued if count > 0 else 1):": "the first frame is moved to where it is",
    "receiving._event_of: if slot.phase != Phase.WAITING: -> nothing": "the table counts all of them as FOREIGN",
    "receiving._take_result: core.progress.rounds += 1 -> core.progress.rounds -= 1": "it is asked whether it is zero",
    "receiving._take_result: core.progress.rounds += 1 -> core.progress.rounds += 2": "it is asked whether it is zero",
    "receiving._write_sums: slot.named = 1 -> slot.named = 2": "it is asked whether it is zero",
    "receiving._write_sums: bytes_at(operation.marks, operation.blocks)[slot.block] = 1 -> "
    "bytes_at(operation.marks, operation.blocks)[slot.block] = 2": "it is asked whether it is zero",
    "receiving._write_sums: if slot.block == NO_BLOCK: -> nothing": "results of rounds without a block have no lanes",
}
"""Changes that make no difference that a caller could see, and why."""


def mutants() -> Iterator[Mutant]:
    """Yield each change that makes a difference; raises AssertionError if EQUAL has one that is not there."""
    left = set(EQUAL)
    for module in MODULES:
        tree = ast.parse(Path(str(module.__file__)).read_text())
        for function in tree.body:
            if isinstance(function, ast.FunctionDef):
                for name, changed in changes(function):
                    full = f"{module.__name__.rpartition('.')[2]}.{function.name}: {name}"
                    left.discard(full)
                    if full not in EQUAL and not any(one in name.partition(" -> ")[0] for one in FETCHES):
                        noticed = functools.partial(is_noticed, module, changed)
                        yield Mutant(side="engine", name=full, is_noticed=noticed)
    assert not left, left


def changes(function: ast.FunctionDef) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield a function with one thing changed in it, and what that is."""
    places = [place for place, node in enumerate(ast.walk(function)) if isinstance(node, CHANGED)]
    for place in places:
        for edit in (_operator, _name, _number, _nothing):
            copy = deepcopy(function)
            nodes = list(ast.walk(copy))
            parents = {id(child): node for node in nodes for child in ast.iter_child_nodes(node)}
            statement = nodes[place]
            while statement is not copy and not isinstance(statement, ast.stmt):
                statement = parents.get(id(statement), copy)
            before = _text(statement)
            if statement is not copy and edit(nodes[place], parents[id(nodes[place])]):
                after = "nothing" if edit is _nothing else _text(statement)
                yield f"{before} -> {after}", copy


def _text(statement: ast.AST) -> str:
    """Return a statement in one line, without what is indented under it."""
    return ast.unparse(statement).splitlines()[0]


def _operator(node: ast.AST, _parent: ast.AST) -> bool:
    if isinstance(node, ast.Compare) and type(node.ops[-1]) in OPPOSITE:
        node.ops[-1] = OPPOSITE[type(node.ops[-1])]()
    elif isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign) and type(node.op) in OPPOSITE:
        node.op = OPPOSITE[type(node.op)]()
    else:
        return False
    return True


def _name(node: ast.AST, _parent: ast.AST) -> bool:
    if not isinstance(node, ast.Name) or node.id not in OTHER_NAMES:
        return False
    node.id = OTHER_NAMES[node.id]
    return True


def _number(node: ast.AST, parent: ast.AST) -> bool:
    if not isinstance(node, ast.Constant) or type(node.value) is not int or isinstance(parent, ast.Subscript):
        return False
    node.value += 1
    return True


def _nothing(node: ast.AST, parent: ast.AST) -> bool:
    """Leave a statement out, but not one that gives a variable its value."""
    is_call = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
    is_stored = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name)
    if not is_call and not is_stored and not isinstance(node, ast.AugAssign | ast.Continue | ast.If):
        return False
    for _, body in ast.iter_fields(parent):
        if isinstance(body, list) and node in body:
            body[body.index(node)] = ast.Pass()
            return True
    return False


def is_noticed(module: types.ModuleType, changed: ast.FunctionDef) -> bool:
    """Tell whether a test fails with a changed function."""
    chosen = cases()
    child = os.fork()
    if child == 0:
        try:
            _silence()
            exchange(module, changed)
            signal.setitimer(signal.ITIMER_PROF, TIMEOUT_S)
            for case in chosen:
                case()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] != 0


@functools.cache
def cases() -> list[Callable[[], object]]:
    """Return the tests that pass by themselves, without fixtures and quickly; the quickest first."""
    timed = []
    signal.signal(signal.SIGPROF, _give_up)
    for module, test in ((place, each) for place in TESTS for each in vars(place).values()):
        if getattr(test, "__name__", "").startswith("test_") and not hasattr(test, "hypothesis"):
            for values in _parameters(test):
                began = time.process_time()
                case = functools.partial(test, **values)
                signal.setitimer(signal.ITIMER_PROF, MOST_S if module in ENGINE_TESTS else TIMEOUT_S)
                try:
                    case()
                except (TypeError, TimeoutError, pytest.skip.Exception):
                    continue  # it has a fixture, takes too long, or is not for plain Python
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)
                timed.append((time.process_time() - began, case))
    return [case for _, case in sorted(timed, key=operator.itemgetter(0))]


def _give_up(*_: object) -> None:
    raise TimeoutError


def _parameters(test: Any) -> Iterator[dict[str, Any]]:
    """Yield the values of a test's parameters, as its marks have them."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    for chosen in itertools.product(*(mark.args[1] for mark in marks)):
        values: dict[str, Any] = {}
        for mark, value in zip(marks, chosen, strict=True):
            names = (
                [name.strip() for name in mark.args[0].split(",")] if isinstance(mark.args[0], str) else mark.args[0]
            )
            values |= zip(names, value if len(names) > 1 else [value], strict=True)
        yield values


def exchange(module: types.ModuleType, changed: ast.FunctionDef) -> None:
    """Give a function of a module other code."""
    made: dict[str, Callable[..., object]] = {}
    exec("from __future__ import annotations\n" + ast.unparse(changed), vars(module), made)
    getattr(module, changed.name).__code__ = made[changed.name].__code__


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
