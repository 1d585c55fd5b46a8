"""What one rank does in a row of the table, and what it should have got; as a process, it takes orders line by line.

All ranks can compute what every rank adds.  So each compares its results with sums made in numpy, and hands on its bits
and how far they are off.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist

import switchsum
import switchsum.torch
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.missed import QuorumSum
from switchsum_host.api.quorum import Agreed
from switchsum_protocol.errors import SwitchsumError, WorkerLost

from .columns import COMMUNICATOR, DENSE, LATER, MANY, OUTER, SAME, WHOLE
from .groups import Beside, leave, take
from .orders import INJURED, STEPS, Order

EVERY: Final = 2
RATE: Final = 0.1
"""Of the inner optimizer."""
TERMS: Final[dict[str, Any]] = {"quorum": 0.5, "patience_s": 0.02}
LATE_S: Final = 0.2
SHAPES: Final = ((24, 40), (1, 993), (32, 32), (3, 7), (1, 1), (64, 65))
"""Also below, at and above the blocks that compressors have."""
DTYPES: Final = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
LONGER: Final = 100
LONGER_FOR_MANY: Final = 4
"""How many times as long an array is as what a rank has of it."""
SMALL: Final = (-8, 7)
"""Values that lanes of 4 bits hold."""
BITS: Final = {"int32": 32, "int16": 16, "int8": 8, "each": 9}
"""Bits of a value in lanes; of those with an exponent for each value, as many as are kept at least."""


def shape_of(order: Order) -> tuple[int, int]:
    """Return the shape of a row's arrays; what is cut into fragments has a row for each of them."""
    shapes = [shape for shape in SHAPES if order.row["fragments"] == WHOLE or shape[0] > 1]
    return shapes[order.number % len(shapes)]


def values_of(order: Order, member: int, step: int) -> Any:
    """Return what a member adds in a step, in float64: what all have in common, and noise."""
    rows, columns = shape_of(order)
    common = np.outer(1.5 + np.sin(np.arange(rows)), 1.5 + np.cos(np.arange(columns)))
    noise = np.random.default_rng([order.number, member, step]).standard_normal((rows, columns))
    values = common + 0.2 * noise
    if order.row["dtype"] == "int8":
        return np.clip(np.rint(values), *SMALL)
    return np.rint(100 * values) if order.row["dtype"].startswith("int") else values


def in_dtype(order: Order, member: int, step: int) -> Any:
    """Return the same as the caller has it."""
    name = order.row["dtype"]
    if name == "bfloat16":
        return torch.tensor(values_of(order, member, step)).to(torch.bfloat16).float().numpy()
    return values_of(order, member, step).astype(name)


def allowed(order: Order, added: Sequence[Any]) -> float:
    """Return how far a sum of these arrays may be off: each is rounded once, and so is the sum."""
    if order.row["dtype"].startswith("int"):
        return 0.0
    largest, lanes = float(np.abs(added).max()), order.row["lanes"]
    full = max(1, (2 ** (BITS[lanes] - 1) - 1) // len(added))
    is_half = order.row["dtype"] == "bfloat16" and order.row["group"] != COMMUNICATOR  # numpy has no such arrays
    eps = 2.0**-8 if is_half else 2.0**-10 if order.row["dtype"] == "float16" else 2.0**-23
    return float(len(added) * (2.02 * largest / full + eps * largest))


class Watched:
    """Notes operations with a quorum that go on without a rank, as they also do where a machine is slow."""

    def __init__(self, quorums: Any) -> None:
        self.went_on = False
        self._world_size, self._agree = quorums._comm.world_size, quorums.agree
        quorums.agree = self.agree

    def agree(self, *arguments: Any, **options: Any) -> Agreed:
        """Do what `Quorums.agree` does."""
        agreed: Agreed = self._agree(*arguments, **options)
        self.went_on |= len(agreed.ranks) < self._world_size
        return agreed


class Results:
    """What a rank has got, by the number of the step, and how far it is off."""

    def __init__(self, beside: Beside | None = None) -> None:
        self.beside = beside
        self.bits: dict[int, str] = {}
        self.off = 0.0
        """Error of sums, as a share of what is allowed."""
        self.got: list[Any] = []
        self.exact: list[Any] = []
        self.watched: Watched | None = None

    def note(self, step: int, array: Any) -> None:
        """Keep the bits of a result."""
        self.bits[step] = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]

    def compare_sum(self, order: Order, array: Any, added: Sequence[Any]) -> None:
        """Compare a sum with what it is of."""
        off = float(
            np.abs(np.asarray(array, np.float64) - np.sum([one.astype(np.float64) for one in added], axis=0)).max()
        )
        limit = allowed(order, added)
        self.off = max(self.off, off / limit if limit else float(off > 0) * 99)

    def error(self) -> float | None:
        """Return the relative error of averages together; None: there is nothing to compare with."""
        if not self.exact:
            return None
        got, exact = np.sum(self.got, axis=0), np.sum(self.exact, axis=0)
        return float(np.linalg.norm(got - exact) / np.linalg.norm(exact))


def play(order: Order, group: Any, kept: dict[str, Any], beside: Beside | None = None) -> dict[str, Any]:
    """Take part in one job of a row; return what came of it."""
    results, report = Results(beside), {"lost": -1}
    try:
        report |= _played(order, group, kept, results)
        if beside is not None:
            report["beside"] = beside.finish()
    except Exception:
        return report | {"foreign": traceback.format_exc()}
    finally:
        if not isinstance(group, Communicator):  # one may have been formed anew
            leave(group)
    return report


def _played(order: Order, group: Any, kept: dict[str, Any], results: Results) -> dict[str, Any]:
    """Take the steps of a row; return what came of them."""
    if group is None:
        return {"outside": True}
    report = {"lost": -1}
    try:
        try:
            _steps(order, group, kept, results, range(STEPS))
        except WorkerLost as error:
            report["lost"] = order.members[error.rank]
            if order.row["event"] != "killed" or order.row["step"] in OUTER or not isinstance(group, Communicator):
                raise
            group = group.reform()
            left = tuple(one for one in order.members if one != INJURED)
            again = replace(order, members=left, rank=left.index(order.member))
            results = Results()
            _steps(again, group, kept, results, range(STEPS, 2 * STEPS))
    except SwitchsumError as error:
        return report | {"raised": type(error).__name__, "text": str(error)}
    finally:
        if isinstance(group, Communicator):
            leave(group)
    went_on = results.watched is not None and results.watched.went_on
    return report | {"bits": results.bits, "off": results.off, "error": results.error(), "went_on": went_on}


def _steps(order: Order, group: Any, kept: dict[str, Any], results: Results, steps: range) -> None:
    way = order.row["step"]
    kind = (
        _allreduces if way == "allreduce" else _quorum if way == "quorum" else _averages if way == "average" else _outer
    )
    kind(order, group, kept, results, steps)


def _before(order: Order, step: int, results: Results) -> None:
    """Do what the event is, before a step."""
    if results.beside is not None:
        results.beside.begin()
    if order.member != INJURED or step != 1 or order.turn:
        return
    if order.row["event"] == "late":
        time.sleep(LATE_S)
    if order.row["event"] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


def _options(order: Order) -> dict[str, Any]:
    return {"lanes": order.row["lanes"], **({"narrow": True} if order.row["dtype"] == "float64" else {})}


def _allreduces(order: Order, group: Any, kept: dict[str, Any], results: Results, steps: range) -> None:
    for step in steps:
        _before(order, step, results)
        added = [in_dtype(order, member, step) for member in order.members]
        if order.row["rows"] == DENSE:
            array = _sum(order, group, added[order.rank].copy())
        else:
            added, array = _sparse_sum(order, group, added, step)
        results.note(step, array)
        results.compare_sum(order, array, added)


def _sparse_sum(order: Order, group: Communicator, values: Sequence[Any], step: int) -> tuple[list[Any], Any]:
    """Add values at places of a longer array; return the longer arrays and their sum."""
    size = values[0].size * (LONGER_FOR_MANY if order.row["rows"] == MANY else LONGER)
    longer, own = [np.zeros(size, one.dtype) for one in values], np.zeros(0, np.int64)
    for rank, one in enumerate(values):
        seed = [order.number, step, 0 if order.row["rows"] == SAME else order.members[rank]]
        places = np.random.default_rng(seed).choice(size, one.size, replace=False)
        longer[rank][places] = one.reshape(-1)
        own = places if rank == order.rank else own
    total = group.allreduce_sparse(own, values[order.rank].reshape(-1), size, lanes=order.row["lanes"])
    return longer, total.to_dense()


def _sum(order: Order, group: Any, array: Any) -> Any:
    """Return the sum of the arrays of all ranks, as whoever has such a group asks for it."""
    if isinstance(group, Communicator):
        return group.allreduce(array, **_options(order))
    tensor = torch.from_numpy(array)
    if order.row["dtype"] == "bfloat16":
        tensor = tensor.to(torch.bfloat16)
    with switchsum.torch.lanes(order.row["lanes"]):
        dist.all_reduce(tensor, group=group)
    return tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def _quorum(order: Order, group: Any, kept: dict[str, Any], results: Results, steps: range) -> None:
    added = [in_dtype(order, member, 0) for member in order.members]

    def note(one: Any) -> None:
        if one.count:
            results.note(one.number, one.array)
            results.compare_sum(order, one.array, [added[rank] for rank in one.ranks])

    calls = 0
    while len(results.bits) < len(steps):
        _before(order, calls, results)
        calls += 1
        total: QuorumSum = group.allreduce(added[order.rank].copy(), **_options(order) | TERMS)
        for missed in total.missed:
            note(missed)
        note(total)
        if not total.count:
            return
    for missed in group.quorums.end():
        note(missed)


def _how(order: Order) -> str | None:
    name, lanes = order.row["compressor"], order.row["lanes"]
    return None if name == "none" else name if lanes == "int32" else f"{name}+{lanes}"


def _averages(order: Order, group: Any, kept: dict[str, Any], results: Results, steps: range) -> None:
    average = switchsum.torch.Average(_how(order), group)
    if "average" in kept:
        average.load_state_dict(kept["average"])
    for step in steps:
        _before(order, step, results)
        if step == 1 and order.row["event"] == "checkpoint" and order.member == INJURED:
            kept["old"] = average.state_dict()
        added = [in_dtype(order, member, step) for member in order.members]
        tensor = torch.tensor(added[order.rank]).to(DTYPES[order.row["dtype"]])
        average([tensor], names=["weight"])
        got = tensor.float().numpy()
        results.note(step, got)
        results.got.append(got.astype(np.float64))
        results.exact.append(np.mean([one.astype(np.float64) for one in added], axis=0))
    kept["average"] = kept.pop("old", None) or average.state_dict()


def _model(order: Order) -> Any:
    """Return a model that is one matrix of zeros."""
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.zeros(shape_of(order), dtype=DTYPES[order.row["dtype"]]))
    return model


def _outer(order: Order, group: Any, kept: dict[str, Any], results: Results, steps: range) -> None:
    way = order.row["step"]
    model = kept.get("model") or _model(order)
    inner = torch.optim.SGD(model.parameters(), lr=RATE)
    kind: Callable[..., Any] = switchsum.torch.LocalSGD if way == "LocalSGD" else switchsum.torch.DiLoCo
    terms = TERMS if way == "DiLoCo with quorum" else {}
    named = order.row["fragments"]
    pieces = {} if way == "LocalSGD" else {"fragments": int(named[0]), **({"delay": 1} if named == LATER else {})}
    trained = kind(model, inner, every=EVERY, how=_how(order), group=group, **pieces, **terms)
    if trained._quorum is not None:
        results.watched = Watched(trained._quorum.communicator.quorums)
    if "outer" in kept:
        trained.load_state_dict(kept["outer"])
    last = trained.step + len(steps)
    while trained.step < last:
        step = trained.step
        _before(order, step, results)
        if step == EVERY and order.row["event"] == "checkpoint" and order.member == INJURED:
            kept["old"] = trained.state_dict()
        model.weight.grad = torch.tensor(in_dtype(order, order.member, step)).to(model.weight.dtype)
        inner.step()
    trained.finish()
    results.note(0, model.weight.detach().float().numpy())
    if order.row["event"] in ("none", "replaced", "newcomer", "checkpoint") and not order.turn:
        results.got.append(model.weight.detach().double().numpy())
        results.exact.append(_trained(order, trained))
    kept["model"], kept["outer"] = model, kept.pop("old", None) or trained.state_dict()


class _Fragment:
    """Rows of a model that take their outer steps together, in numpy."""

    def __init__(self, rows: slice, offset: int) -> None:
        self.rows, self.offset = rows, offset
        self.latest, self.due = 0, -1
        self.velocity: Any = None
        self.mean: Any = None
        self.begun_at: dict[int, Any] = {}

    def begin(self, outer: Any, own: dict[int, Any], step: int, delay: int) -> None:
        """Average what ranks have learned."""
        self.begun_at = {member: values[self.rows].copy() for member, values in own.items()}
        self.mean = np.mean([outer[self.rows] - values for values in self.begun_at.values()], axis=0)
        self.latest, self.due = step, step + delay

    def apply(self, outer: Any, own: dict[int, Any], way: str) -> None:
        """Take the outer step; what a rank has learned meanwhile stays."""
        self.due, mean = -1, self.mean
        if way == "LocalSGD":
            outer[self.rows] -= mean
        else:
            self.velocity = mean if self.velocity is None else 0.9 * self.velocity + mean
            outer[self.rows] -= 0.7 * (mean + 0.9 * self.velocity)
        for member, values in own.items():
            values[self.rows] += outer[self.rows] - self.begun_at[member]


def _trained(order: Order, trained: Any) -> Any:
    """Return the model that a training without compression and rounding ends with.

    Which rows are a fragment is taken from the training; when it takes its steps, and which, is not.
    """
    way, outer = order.row["step"], np.zeros(shape_of(order))
    delay, count = int(order.row["fragments"] == LATER), len(trained.fragments)
    own = {member: outer.copy() for member in order.members}
    fragments = [
        _Fragment(one.pieces[0].rows or slice(None), (number + 1) * EVERY // count)
        for number, one in enumerate(trained.fragments)
    ]
    for step in range(1, STEPS + 1):
        for member in order.members:
            own[member] -= RATE * in_dtype(order, member, step - 1).astype(np.float64)
        for one in [one for one in fragments if one.due == step]:
            one.apply(outer, own, way)
        for one in [one for one in fragments if step >= one.offset and (step - one.offset) % EVERY == 0]:
            one.begin(outer, own, step, delay)
            if not delay:
                one.apply(outer, own, way)
    for one in fragments:
        if one.due < 0 and one.latest < STEPS:
            one.begin(outer, own, STEPS, 0)
        if one.due >= 0:
            one.apply(outer, own, way)
    return outer


def main() -> None:
    """Serve until standard input ends."""
    torch.set_num_threads(1)
    print(json.dumps({"ready": True}), flush=True)
    kept: dict[str, Any] = {}
    latest = -1
    for line in sys.stdin:
        words = json.loads(line)
        order = Order(**{**words, "members": tuple(words["members"])})
        if not order.turn or order.number != latest:  # a newcomer was in no job of this row
            kept = {}
        latest = order.number
        try:
            membership = take(order)
        except SwitchsumError as error:
            report: dict[str, Any] = {"raised": type(error).__name__, "text": f"connect: {error}"}
        else:
            report = play(membership.order, membership.group, kept, membership.beside)
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
