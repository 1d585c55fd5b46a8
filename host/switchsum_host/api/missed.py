"""What ranks get that were absent from operations: the results that they lack, or the model.

Members keep the latest results (`Kept`).  A rank that lacks some of them gets these before the next operation begins,
in broadcasts of the first rank that lacks none.  One that lacks more than are kept gets the model, if the program has
said what that is, and all results that are kept: it may be the one who gives them to others next time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import UsageError

from ..engine.operation import described
from .collectives import check_written
from .record import Record

FIRST_BYTES: Final = 1000
"""Bytes of the broadcast that says what follows, or how long that is: one frame of most switches."""

NAMED: Final = {"bfloat16": ml_dtypes.bfloat16}
"""Dtypes of others, which numpy's files do not know."""
Values = npt.NDArray[Any]


class Broadcasts(Protocol):
    """A communicator of those who take part."""

    rank: int

    def broadcast(self, array: Values, root: int = 0, *, label: str = "") -> object:
        """Give all ranks the root's array."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSum:
    """The result of an operation that may have gone on without some ranks; the same bits on all that have it."""

    array: Values
    number: int
    """Of the operation, from 1 on; those of a communicator count all that had a quorum."""
    ranks: tuple[int, ...]
    """Who took part. None: other ranks have called `Quorums.end`, and nothing was added."""
    missed: tuple[QuorumSum, ...] = ()
    """Results of the operations before this one that went on without this rank, in their order."""
    was_given_model: bool = False
    """This rank lacked more results than are kept.  The arrays of `Quorums.share` have what they have on the others."""

    @property
    def count(self) -> int:
        """How many ranks took part."""
        return len(self.ranks)


class Model(Protocol):
    """What a rank must have to go on with the others, when it lacks more results than are kept."""

    def give(self) -> list[Values]:
        """Return it, as it is with all results that this rank has been given."""
        ...

    def take(self, arrays: list[Values]) -> None:
        """Go on from what another rank has given."""
        ...

    @property
    def record(self) -> Record:
        """What all ranks must have alike in it."""
        ...


@dataclass(frozen=True, slots=True)
class SharedArrays:
    """A model that is some arrays, in place."""

    arrays: tuple[Values, ...]

    def __post_init__(self) -> None:
        for one in self.arrays:
            check_written("share", one)

    @property
    def record(self) -> Record:
        """Dtypes and shapes of the arrays."""
        size = sum(one.size for one in self.arrays)
        return Record(
            title=f"{len(self.arrays)} arrays of {size} values",
            facts={"arrays": [(described(one.dtype), one.shape) for one in self.arrays]},
        )

    def give(self) -> list[Values]:
        """Return the arrays."""
        return list(self.arrays)

    def take(self, arrays: list[Values]) -> None:
        """Overwrite the arrays; raises UsageError where another rank has others."""
        if [_fact(one) for one in self.arrays] != [_fact(one) for one in arrays]:
            raise UsageError("ranks have given other arrays to quorums.share: all give the same, in the same order")
        for own, given in zip(self.arrays, arrays, strict=True):
            own[...] = given


class Kept:
    """What one rank keeps for those who are absent."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._results: dict[int, QuorumSum] = {}
        self.model: Model | None = None
        """What a rank gets that lacks more results than are kept; None: it is lost.  The same on all ranks."""

    def keep(self, result: QuorumSum, most: int) -> None:
        """Keep a result, and forget the ones before the latest `most`."""
        self._results[result.number] = result
        for number in [number for number in self._results if number <= result.number - most]:
            del self._results[number]

    def catch_up(
        self, comm: Broadcasts, ranks: Sequence[int], behind: Mapping[int, int], number: int, most: int
    ) -> tuple[tuple[QuorumSum, ...], bool]:
        """Give ranks that are behind what they lack; return the results that this one lacked, or that it got the model.

        `behind` has the latest results of ranks that take part in the operation with this number and lack some.  All
        comes from the first rank that lacks none.  The others hear it, too, for all have to call the same.
        """
        if not behind:
            return (), False
        too_late = {rank for rank, after in behind.items() if number - 1 - after > most}
        root = next(place for place, rank in enumerate(ranks) if rank not in behind)
        own = [self._results[one] for one in sorted(self._results) if one > min(behind.values())]
        model = self.model.give() if self.model is not None and too_late and comm.rank == root else []
        results, arrays = _tell(comm, own, model, root)
        is_too_late, missed, after = self._rank in too_late, [], behind.get(self._rank, number)
        for given in results:
            known = self._results.get(given.number)
            comm.broadcast((known or given).array, root, label="a result that some ranks lack")
            if known is None:
                self.keep(replace(given, array=given.array.copy()), most)
            if given.number > after and not is_too_late:  # also one that came before the others were lost
                missed.append(given if known is None else replace(known, array=known.array.copy()))
        for array in arrays:
            comm.broadcast(array, root, label="the model, for ranks that are too late")
        if is_too_late and self.model is not None:
            self.model.take(arrays)
        return tuple(missed), is_too_late


def _fact(array: Values) -> list[Any]:
    return [_written(array.dtype), list(array.shape)]


def _space(fact: list[Any]) -> Values:
    dtype, shape = fact
    return np.zeros([int(size) for size in shape], _read(dtype))


def _written(dtype: np.dtype[Any]) -> Any:
    """Return a dtype as JSON takes it: a name, or where that does not say all, what numpy's files have."""
    if dtype.names is None and dtype.isnative and dtype.name in np.sctypeDict | NAMED:
        return dtype.name
    return np.lib.format.dtype_to_descr(dtype)


def _read(written: Any) -> np.dtype[Any]:
    """Read a dtype."""
    return np.dtype(written) if isinstance(written, str) else np.lib.format.descr_to_dtype(_fields(written))


def _fields(written: list[Any]) -> Any:
    """Return fields with tuples where JSON has lists; names may be pairs of title and name."""
    return [
        tuple(
            _fields(one) if place == 1 and isinstance(one, list) else tuple(one) if isinstance(one, list) else one
            for place, one in enumerate(field)
        )
        for field in written
    ]


def _tell(
    comm: Broadcasts, results: list[QuorumSum], model: list[Values], root: int
) -> tuple[list[QuorumSum], list[Values]]:
    """Return which results and arrays follow from the root: there its own, on other ranks space for them."""
    if comm.rank == root:
        facts = [[one.number, list(one.ranks), *_fact(one.array)] for one in results]
        text = json.dumps([facts, [_fact(one) for one in model]]).encode()
        _hear(comm, text, root)
        return results, model
    facts, arrays = json.loads(_hear(comm, b"", root))
    spaces = [QuorumSum(number=number, ranks=tuple(ranks), array=_space(fact)) for number, ranks, *fact in facts]
    return spaces, [_space(fact) for fact in arrays]


def _hear(comm: Broadcasts, text: bytes, root: int) -> bytes:
    """Return the root's text on all ranks; one that is long comes after a first frame, which says how long it is."""
    label = "what some ranks lack"
    first = np.zeros(FIRST_BYTES, np.uint8)
    if len(text) <= FIRST_BYTES:
        first[: len(text)] = np.frombuffer(text, np.uint8)
    else:
        said = b"%d" % len(text)
        first[: len(said)] = np.frombuffer(said, np.uint8)
    comm.broadcast(first, root, label=label)
    heard = first.tobytes().rstrip(b"\0")
    if heard.isdigit():
        rest = np.zeros(int(heard), np.uint8)
        rest[: len(text)] = np.frombuffer(text, np.uint8)
        comm.broadcast(rest, root, label=label)
        heard = rest.tobytes()
    return heard
