"""Random sparse sums beside plain ones: `python -m checks.sparse_sums [--seed 7] [--jobs 100] [--first 0] [--job 12]`.

A job has 2 to 5 ranks in this process, some calls on arrays of two lengths, and perhaps a network that loses frames.
Densities, places, dtypes, operators, lanes and rows are drawn for each call, also which way is forced, and whether a
rank's arguments are wrong or differ.  Calls of a job often repeat the last one with other rows, so that what was
expected is right, or wrong.  Sums are made in numpy from what all ranks have: integers exactly, floats in float64.

The seed is the day's if none is given, and is printed.  A job that fails is printed with its number, and `--job` runs
it again.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from unittest.mock import patch

import ml_dtypes
import numpy as np
import numpy.typing as npt

from switchsum.testing.local import communicators
from switchsum_host.api import supports, ways
from switchsum_host.api.collectives import Way
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.sparse import SparseSum
from switchsum_host.api.ways import Cost, Facts
from switchsum_protocol.errors import OperationMismatch, SumOverflow, SwitchsumError, UsageError

Array = npt.NDArray[Any]

SPARSE, TOPK, BLOCKS, GATHERED = "allreduce_sparse", "allreduce_topk", "allreduce(block=)", "allgatherv"
FLOATS: Final = {name: np.dtype(name) for name in ("float32", "float16", ">f4")} | {
    "bfloat16": np.dtype(ml_dtypes.bfloat16)
}
INTEGERS: Final = {name: np.dtype(name) for name in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")}
EPS: Final = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
LANE_BITS: Final = {"int32": 32, "int16": 16, "int8": 8, "each": 24}
"""Bits of a value; of lanes with an exponent for each value, about as many as are kept."""
SIZES: Final = (1, 60, 700, 4096, 5000, 33_000, 70_000, 300_000)
"""Below and above where bitmaps come along, and pairs."""
DENSITIES: Final = (0.0, 1e-4, 1e-3, 0.01, 0.1, 0.13, 0.5, 0.98, 1.0)
PATTERNS: Final = ("random", "same", "shifted", "clustered", "one rank", "mixed")
MOST_VALUES: Final = 30_000
"""The switch of these jobs is written in Python, and takes a millisecond for some hundred values."""
CALLS: Final = 8
WRONG: Final = {SPARSE: ("index", "dtype", "keep"), TOPK: ("dtype", "keep"), BLOCKS: (), GATHERED: ()}
"""What a single rank may give that is refused, so that all ranks raise UsageError and go on."""
DIFFERS: Final = "differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A call of all ranks."""

    seed: tuple[int, ...]
    """Of rows and values."""
    call: str
    size: int
    dtype: str
    row: tuple[int, ...] = ()
    op: str = "sum"
    lanes: str = "int32"
    density: float = 0.01
    pattern: str = "random"
    keep: int | None = None
    block: int | str = 32
    way: Way | None = None
    """The way that is forced where ranks can go it; None: they choose."""
    wrong: str = ""
    """What one rank gives that is refused, or "differs": it calls something else."""
    is_repeated: bool = False
    """Whether indices come in no order, and some of them twice."""
    is_large: bool = False
    """Whether sums of integers may not fit."""
    in_background: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Calls of the same ranks."""

    number: int
    ranks: int
    loss: float
    cases: tuple[Case, ...]


def draw(seed: int, number: int) -> Job:
    """Return a job: the same for the same numbers."""
    random = np.random.default_rng([seed, number])
    sizes = [int(one) for one in random.choice(SIZES, 2)]
    cases: list[Case] = []
    for index in range(CALLS):
        case = _case(random, (seed, number, index), int(random.choice(sizes)))
        if cases and random.random() < 0.6:  # as calls of a training are
            last = cases[-1]
            density = min(case.density, MOST_VALUES / last.size) if random.random() < 0.3 else last.density
            wrong = case.wrong if case.wrong in (*WRONG[last.call], DIFFERS) else ""
            case = replace(last, seed=case.seed, wrong=wrong, way=case.way, density=density)
        cases.append(case)
    loss = float(random.choice([0.0, 0.0, 0.02]))
    return Job(number=number, ranks=int(random.integers(2, 6)), loss=loss, cases=tuple(cases))


def _case(random: np.random.Generator, seed: tuple[int, ...], size: int) -> Case:
    def one_of(*items: Any) -> Any:
        return items[int(random.integers(len(items)))]

    call = one_of(SPARSE, SPARSE, TOPK, BLOCKS, GATHERED)
    is_float = random.random() < 0.7
    row = one_of((), (), (), (3,), (2, 2)) if call in (SPARSE, GATHERED) else ()
    density = one_of(*DENSITIES)
    while size * density * max(1, int(np.prod(row))) > MOST_VALUES:
        density /= 10
    return Case(
        seed=seed,
        call=call,
        size=size,
        dtype=one_of(*FLOATS) if is_float else one_of(*INTEGERS),
        row=row,
        op=one_of("sum", "sum", "average") if is_float else "sum",
        lanes=one_of("int32", "int32", "int32", "int16", "int8", "each") if is_float else "int32",
        density=density,
        pattern=one_of(*PATTERNS),
        keep=one_of(None, None, 0, 5, 400) if row == () and call in (SPARSE, TOPK) else None,
        block=one_of(8, 32, 100, "auto"),
        way=one_of(None, None, *Way),
        wrong=one_of(*[""] * 12, *WRONG[call], DIFFERS),
        is_repeated=call == SPARSE and random.random() < 0.2,
        is_large=random.random() < 0.1,
        in_background=random.random() < 0.3,
    )


def rows_of(case: Case, rank: int, ranks: int) -> npt.NDArray[np.int64]:
    """Return the rows, or blocks, that a rank has, in order."""
    random, common = np.random.default_rng([*case.seed, rank]), np.random.default_rng([*case.seed, 1000])
    rows = _rows(case)
    count = min(rows, round(case.density * rows))
    match case.pattern:
        case "same":
            return np.sort(common.choice(rows, count, replace=False))
        case "shifted":
            return np.unique((common.choice(rows, count, replace=False) + rank // 2) % rows)
        case "clustered":
            return np.sort((np.arange(count) + int(common.integers(rows)) + rank * count // 3) % rows)
        case "one rank":
            count *= rank == int(common.integers(ranks))
        case "mixed":
            count = round(count * float(random.random()))
    return np.sort(random.choice(rows, count, replace=False))


def _rows(case: Case) -> int:
    if case.call != BLOCKS:
        return case.size
    return -(-case.size // (32 if case.block == "auto" else int(case.block)))


def dtype_of(case: Case) -> np.dtype[Any]:
    """Return the dtype that a call is made with."""
    found: np.dtype[Any] = (FLOATS | INTEGERS)[case.dtype]
    return found


def values_of(case: Case, rank: int, shape: tuple[int, ...]) -> Array:
    """Return values of a rank, none of them zero."""
    random, dtype = np.random.default_rng([*case.seed, rank, 1]), dtype_of(case)
    if case.dtype in FLOATS:
        return (random.standard_normal(shape) * 10 + 0.5).astype(dtype)
    limits = np.iinfo(dtype)
    most = int(limits.max) if case.is_large else min(int(limits.max) // 64, 1 << 40)
    drawn = random.integers(1, most, shape, np.uint64 if dtype.kind == "u" else np.int64, endpoint=True).astype(dtype)
    return drawn if dtype.kind == "u" else np.where(random.random(shape) < 0.5, drawn, -drawn).astype(dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a rank calls with."""

    indices: npt.NDArray[np.int64]
    values: Array
    array: Array
    """The same as a whole array."""
    k: int


def given(case: Case, rank: int, ranks: int) -> Given:
    """Return what a rank calls with."""
    dtype, rows = dtype_of(case), rows_of(case, rank, ranks)
    none = np.zeros(0, np.int64)
    if case.call == BLOCKS:
        has = np.zeros(_rows(case), bool)
        has[rows] = True
        size = 32 if case.block == "auto" else int(case.block)
        array = np.where(np.repeat(has, size)[: case.size], values_of(case, rank, (case.size,)), dtype.type(0))
        return Given(indices=none, values=none, array=array.astype(dtype), k=0)
    if case.call == TOPK:
        k = len(rows)
        array = values_of(case, rank, (case.size,)) if case.size <= MOST_VALUES else np.zeros(case.size, dtype)
        if case.size > MOST_VALUES:
            array[rows] = values_of(case, rank, (k,))
        return Given(indices=none, values=none, array=array, k=k)
    if case.is_repeated and len(rows):
        random = np.random.default_rng([*case.seed, rank, 2])
        rows = random.permutation(np.concatenate([rows, random.choice(rows, len(rows) // 3)]))
    return Given(indices=rows, values=values_of(case, rank, (len(rows), *case.row)), array=none, k=0)


def added(case: Case, one: Given) -> tuple[npt.NDArray[np.int64], Array]:
    """Return the rows that a rank adds, each once, and their values as Python's integers or in float64."""
    kind: Any = np.float64 if case.dtype in FLOATS else object
    if case.call == TOPK:
        exact = one.array.astype(np.float64 if case.dtype in FLOATS else object)
        order = np.argsort(-np.abs(exact), kind="stable")[: one.k]
        chosen = np.sort(order)
        return chosen, one.array[chosen].astype(kind)
    if case.call == BLOCKS:
        where = np.flatnonzero(one.array != 0)
        return where, one.array[where].astype(kind)
    rows = np.unique(one.indices)
    sums = np.zeros((len(rows), *case.row), kind)
    np.add.at(sums, np.searchsorted(rows, one.indices), one.values.astype(kind))
    if case.dtype in FLOATS and len(rows) < len(one.indices):
        sums = sums.astype(dtype_of(case)).astype(np.float64)  # rounded before they travel
    return rows, sums


def fits(case: Case, sums: Array) -> bool:
    """Tell whether sums of integers fit their dtype; those of floats do."""
    if case.dtype in FLOATS or not sums.size:
        return True
    limits = np.iinfo(dtype_of(case))
    return bool(limits.min <= sums.min() and sums.max() <= limits.max)


@contextmanager
def forced(way: Way | None) -> Iterator[None]:
    """Have all ranks of this process go a way, where they can."""

    def choose(facts: Facts) -> Cost:
        found = [one for one in ways.costs(facts) if one.way is way]
        return min(found, key=lambda one: one.bits(facts.frame_bits)) if found else ways.choose(facts)

    with patch.object(supports, "choose", choose):
        yield


def call(case: Case, one: Communicator, own: Given) -> Any:
    """Call what a case says; return what came of it."""
    values, size, op, lanes = own.values, case.size, case.op, case.lanes
    indices, keep, array, k = own.indices, case.keep, own.array.copy(), own.k
    match case.wrong if one.rank == case.seed[-1] % one.world_size else "":
        case "dtype":
            values, array = values.astype(np.complex64), array.astype(np.complex64)
        case "keep":
            keep, k = -1, -1
        case "index":
            indices = np.append(indices, size)
            values = np.append(values, np.ones((1, *case.row), values.dtype), axis=0)
        case "differs":
            return one.allreduce(np.ones(3, np.float32), label="another call")
    if case.call == GATHERED:
        return one.allgatherv(values)
    if case.call == SPARSE:
        if case.in_background:
            return one.allreduce_sparse_async(indices, values, size, keep=keep, op=op, lanes=lanes).wait()
        return one.allreduce_sparse(indices, values, size, keep=keep, op=op, lanes=lanes)
    if case.call == TOPK:
        if case.in_background:
            return one.allreduce_topk_async(array, k, keep=keep, op=op, lanes=lanes).wait()
        return one.allreduce_topk(array, k, keep=keep, op=op, lanes=lanes)
    if case.in_background:
        return one.allreduce_async(array, block=case.block, op=op, lanes=lanes).wait()
    return one.allreduce(array, block=case.block, op=op, lanes=lanes)


def expected_error(case: Case, sums: Array, alone: Sequence[Array]) -> type[SwitchsumError] | None:
    """Return which error all ranks raise; None: they return sums."""
    if case.wrong:
        return OperationMismatch if case.wrong == DIFFERS else UsageError
    if case.call != GATHERED and not (fits(case, sums) and all(fits(case, one) for one in alone)):
        return SumOverflow
    return None


def allowed(case: Case, largest: float, ranks: int) -> float:
    """Return how far a sum may be off: each value is rounded once, and so is the sum."""
    if case.dtype in INTEGERS:
        return 0.0
    full: int = max(1, (2 ** (LANE_BITS[case.lanes] - 1) - 1) // ranks)
    eps = EPS[dtype_of(case).newbyteorder("=").name]
    added_up = ranks * largest * (2.02 / full + eps)
    return added_up / ranks if case.op == "average" else added_up


def check(
    case: Case, results: Sequence[Any], rows: Array, sums: Array, parts: Sequence[Given], way: Way | None
) -> None:
    """Compare what all ranks have got with plain sums of the rows that some rank has; raises AssertionError."""
    ranks = len(results)
    if case.call == GATHERED:
        for result in results:
            for part, one in zip(result, parts, strict=True):
                assert part.dtype == one.values.dtype
                assert part.tobytes() == one.values.tobytes()
        return
    first = results[0]
    as_rows = [(one.indices, one.values) if isinstance(one, SparseSum) else (rows, one) for one in results]
    for indices, values in as_rows:
        assert values.dtype == first.values.dtype if isinstance(first, SparseSum) else first.dtype
        np.testing.assert_array_equal(indices, as_rows[0][0])
        assert values.tobytes() == as_rows[0][1].tobytes(), "ranks have other bits"
    exact = sums / ranks if case.op == "average" else sums
    total = np.zeros((case.size, *case.row), exact.dtype)
    total[rows] = exact
    found = first.to_dense() if isinstance(first, SparseSum) else first
    wide = found.astype(total.dtype)
    largest = float(max((abs(one).max() for one in [*_magnitudes(case, parts), np.zeros(1)] if one.size), default=0.0))
    most = allowed(case, largest, ranks)
    if case.keep is None:
        if isinstance(first, SparseSum):
            assert set(rows.tolist()) <= set(first.indices.tolist())
            assert len(first.indices) in (len(rows), case.size)
        off = np.abs(wide - total)
        assert not off.size or off.max() <= most, f"off by {off.max()}, not {most}"
    else:
        _check_kept(case, first, total, wide, most, largest, ranks)
    if way is Way.PAIRS and case.keep is None:
        narrow = exact.astype(np.float32).astype(dtype_of(case).newbyteorder("="))
        assert found[rows].astype(narrow.dtype).tobytes() == (narrow + narrow.dtype.type(0)).tobytes(), "not exact"


def _magnitudes(case: Case, parts: Sequence[Given]) -> Iterator[Array]:
    kind: Any = np.float64 if case.dtype in FLOATS else object
    for one in parts:
        yield np.abs((one.array if case.call in (TOPK, BLOCKS) else added(case, one)[1]).astype(kind))


def _check_kept(case: Case, first: Any, total: Array, wide: Array, most: float, largest: float, ranks: int) -> None:
    """Check that the largest sums were kept, which rough sums in lanes of 8 bits may have found, and are right."""
    where = first.indices if isinstance(first, SparseSum) else np.flatnonzero(wide != 0)
    keep = case.keep or 0
    assert len(where) <= keep
    off = np.abs(wide[where] - total[where])
    assert not off.size or off.max() <= most, f"off by {off.max()}, not {most}"
    left = np.abs(np.delete(total, where)).astype(np.float64)
    rough = 0.0 if case.dtype in INTEGERS else 4.0 * ranks * largest / (127 // ranks)
    if keep and len(where) == keep and left.size:
        assert float(np.abs(wide[where]).min()) >= left.max() - rough - 2 * most, "a larger sum was left out"


def run(job: Job, gone: Counter[str]) -> None:
    """Run a job; raises AssertionError for what is wrong. `gone` counts ways and errors."""
    made = communicators(job.ranks, loss=job.loss, seed=job.number)
    try:
        with ThreadPoolExecutor(job.ranks) as pool:
            for case in job.cases:
                try:
                    if not _run(case, made, pool, gone):
                        return
                except Exception as error:
                    raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
    finally:
        for one in made:
            one.close()


def _run(case: Case, made: Sequence[Communicator], pool: ThreadPoolExecutor, gone: Counter[str]) -> bool:
    """Run a call; return whether the communicators can go on."""
    ranks = len(made)
    parts = [given(case, rank, ranks) for rank in range(ranks)]
    rows, sums, alone = np.zeros(0, np.int64), np.zeros(0), list[Array]()
    if case.call != GATHERED:
        each = [added(case, one) for one in parts]
        rows, alone = np.unique(np.concatenate([own for own, _ in each])), [values for _, values in each]
        sums = np.zeros((len(rows), *case.row), np.float64 if case.dtype in FLOATS else object)
        for own, values in each:
            sums[np.searchsorted(rows, own)] += values
    before = [one.ways.copy() for one in made]

    def act(one: Communicator) -> Any:
        try:
            return call(case, one, parts[one.rank])
        except SwitchsumError as error:
            return error

    with forced(case.way):
        results = list(pool.map(act, made))
    wanted = expected_error(case, sums, alone)
    if wanted is not None or any(isinstance(one, BaseException) for one in results):
        assert {type(one) for one in results} == {wanted}, [type(one).__name__ for one in results]
        assert all((one.queue.error is None) == (wanted is not OperationMismatch) for one in made)
        gone[wanted.__name__ if wanted else ""] += 1
        return wanted is not OperationMismatch
    ended = [one.ways - earlier for one, earlier in zip(made, before, strict=True)]
    way = Way(int(np.flatnonzero(ended[0])[0])) if ended[0].any() else None
    for one in ended[1:]:
        np.testing.assert_array_equal(one, ended[0])
    gone[way.name.lower() if way is not None else case.call] += 1
    check(case, results, rows, sums, parts, way)
    return True


def main() -> None:
    """Run jobs, and print how many calls went which way."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=int(datetime.now(UTC).strftime("%Y%m%d")))
    options.add_argument("--jobs", type=int, default=100)
    options.add_argument("--first", type=int, default=0, help="number of the first job")
    options.add_argument("--job", type=int, help="only this one")
    chosen = options.parse_args()
    numbers = range(chosen.first, chosen.first + chosen.jobs) if chosen.job is None else [chosen.job]
    print(f"seed {chosen.seed}, jobs {numbers[0]} to {numbers[-1]}", flush=True)
    began, failed, gone = time.monotonic(), 0, Counter[str]()
    for number in numbers:
        try:
            run(draw(chosen.seed, number), gone)
        except Exception:
            failed += 1
            print(f"FAILED: --seed {chosen.seed} --job {number}\n{traceback.format_exc()}", flush=True)
    ends = ", ".join(f"{name} {count}" for name, count in gone.most_common())
    print(f"{len(numbers)} jobs in {time.monotonic() - began:.0f} s, {failed} failed; calls: {ends}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
