"""Registers and counters of a program as numpy knows arrays, and digests with names for their values."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ..state.digests import Digest
from ..state.state import Counter, Register
from .values import number_of

Values = npt.NDArray[Any]


class RegisterView:
    """The cells of a register array.

    Cells are read and written by index; `register[:]` and `numpy.asarray(register)` are copies, of uint64 (int64 if the
    program declares `int<W>`), or of Python's integers if cells have more than 64 bits.

    Example:
        >>> switch.registers["ingress.last"][3] = 7  # doctest: +SKIP
        >>> switch.registers["ingress.last"][:].sum()  # doctest: +SKIP
        7

    """

    def __init__(self, register: Register, *, signed: bool = False) -> None:
        """Show `register`; `signed`: its cells are int<W>."""
        self.register = register
        self.name = register.name
        self.signed = signed

    def __len__(self) -> int:
        """Return how many cells there are."""
        return self.register.size

    def __getitem__(self, index: int | slice) -> Any:
        """Return a cell's value, or an array of several; raises IndexError for an index that is out of range."""
        if isinstance(index, slice):
            return np.array(list(map(self._shown, self.register.read_many(index))), self.dtype)
        return self._shown(self.register.read(self._at(index)))

    def __setitem__(self, index: int | slice, value: Any) -> None:
        """Write a cell, or several; raises IndexError, and ValueError for a value that does not fit."""
        places = list(range(len(self))[index]) if isinstance(index, slice) else [self._at(index)]
        values = [value] * len(places) if np.ndim(value) == 0 else list(value)
        if len(values) != len(places):
            raise ValueError(f"register {self.name}: {len(values)} values for {len(places)} cells")
        what = f"register {self.name}"
        numbers = [number_of(one, self.register.width, what, signed=self.signed) for one in values]
        self.register.write_many(dict(zip(places, numbers, strict=True)))

    def __iter__(self) -> Iterator[int]:
        """Yield the values, all of the same moment."""
        return map(self._shown, self.register.read_many(slice(None)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        """Return a copy of all values."""
        return np.asarray(self[:], dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the arrays: uint64, int64, or object for cells of more than 64 bits."""
        if self.register.width > 64:
            return np.dtype(object)
        return np.dtype(np.int64 if self.signed else np.uint64)

    def __repr__(self) -> str:
        """Show the first values."""
        kind = "int" if self.signed else "bit"
        return f"<register {self.name} of {len(self)} {kind}<{self.register.width}>: {self[:8].tolist()}{_dots(self)}>"

    def _shown(self, value: int) -> int:
        return value - (1 << self.register.width) if self.signed and value >> (self.register.width - 1) else value

    def _at(self, index: int) -> int:
        return place_of("register", self.name, index, len(self))


class CounterView:
    """The cells of a counter array: `counter.packets` and `counter.bytes` are copies as arrays of uint64.

    Example:
        >>> switch.counters["ingress.seen"].packets[2]  # doctest: +SKIP
        1
        >>> switch.counters["ingress.seen"][2]  # doctest: +SKIP
        (1, 64)

    """

    def __init__(self, counter: Counter) -> None:
        """Show `counter`."""
        self.counter = counter
        self.name = counter.name

    @property
    def packets(self) -> npt.NDArray[np.uint64]:
        """Packets by index."""
        return self.counter.read_all()[:, 0]

    @property
    def bytes(self) -> npt.NDArray[np.uint64]:
        """Bytes by index."""
        return self.counter.read_all()[:, 1]

    def __len__(self) -> int:
        """Return how many cells there are."""
        return self.counter.size

    def __getitem__(self, index: int) -> tuple[int, int]:
        """Return packets and bytes of a cell; raises IndexError for an index that is out of range."""
        return self.counter.read(place_of("counter", self.name, index, len(self)))

    def __setitem__(self, index: int, counts: tuple[int, int]) -> None:
        """Set packets and bytes of a cell; raises IndexError."""
        self.counter.write(place_of("counter", self.name, index, len(self)), *counts)

    def clear(self) -> None:
        """Set all cells to 0."""
        self.counter.clear()

    def __repr__(self) -> str:
        """Show the first counts of packets."""
        return f"<counter {self.name} of {len(self)}: packets {self.packets[:8].tolist()}{_dots(self)}>"


class DigestView:
    """The records of a digest: values by name, or as a tuple.

    Example:
        >>> [heavy] = switch.digests["heavy_t"].take()  # doctest: +SKIP
        >>> heavy.count, heavy == (0x0A000001, 0x0A000002, 5)  # doctest: +SKIP
        (5, True)

    """

    def __init__(self, digest: Digest, names: Sequence[str] = ()) -> None:
        """Show `digest`; `names`: those of its values, from P4Info."""
        self.digest = digest
        self.name = digest.name
        known = names if len(names) == len(digest.widths) else [""] * len(digest.widths)
        self._record = cast("Any", namedtuple("Record", known, rename=True))
        self.names: tuple[str, ...] = self._record.__match_args__
        """Names of the values; one without a name, or whose name Python or another value has, is called `_0`."""

    def take(self) -> list[Any]:
        """Return the records since the last call, the oldest first, and forget them.

        Returns:
            A named tuple for each record.  Names come from the P4Info; without it values are called `_0`, `_1`.

        """
        return [self._record(*values) for values in self.digest.take()]

    @property
    def lost(self) -> int:
        """How many records were lost because nobody took those before them."""
        return self.digest.lost

    def __len__(self) -> int:
        """Return how many records wait."""
        return self.digest.waiting

    def __repr__(self) -> str:
        """Say what the records have, and how many wait."""
        return f"<digest {self.name} ({', '.join(self.names)}): {len(self)} records wait>"


def place_of(what: str, name: str, index: int, size: int) -> int:
    """Return an index from 0 on; -1 is the last cell, as in a list.  Raises IndexError or TypeError."""
    if not hasattr(index, "__index__"):
        raise TypeError(f"a cell of {what} {name} has a number, not {index!r}")
    if not -size <= index < size:
        cells = f"{size} cells, 0 to {size - 1}" if size else "no cells"
        raise IndexError(f"{what} {name} has {cells}, none of index {index}")
    return int(index) % size


def _dots(view: RegisterView | CounterView) -> str:
    return "..." if len(view) > 8 else ""
