"""Registers and counters of a program as numpy knows arrays: by index, by slice, as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .state import Counter, Register
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
            return np.array([self._read(each) for each in range(len(self))[index]], self.dtype)
        return self._read(self._at(index))

    def __setitem__(self, index: int | slice, value: Any) -> None:
        """Write a cell, or several; raises IndexError, and ValueError for a value that does not fit."""
        places = list(range(len(self))[index]) if isinstance(index, slice) else [self._at(index)]
        values = [value] * len(places) if np.ndim(value) == 0 else list(value)
        if len(values) != len(places):
            raise ValueError(f"register {self.name}: {len(values)} values for {len(places)} cells")
        what = f"register {self.name}"
        numbers = [number_of(one, self.register.width, what, signed=self.signed) for one in values]
        for place, number in zip(places, numbers, strict=True):
            self.register.write(place, number)

    def __iter__(self) -> Iterator[int]:
        """Yield the values."""
        return map(self._read, range(len(self)))

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

    def _read(self, index: int) -> int:
        value = self.register.read(index)
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
        for index in range(len(self)):
            self.counter.write(index, 0, 0)

    def __repr__(self) -> str:
        """Show the first counts of packets."""
        return f"<counter {self.name} of {len(self)}: packets {self.packets[:8].tolist()}{_dots(self)}>"


def place_of(what: str, name: str, index: int, size: int) -> int:
    """Return an index from 0 on; -1 is the last cell, as in a list.  Raises IndexError with what there is."""
    if not -size <= index < size:
        cells = f"{size} cells, 0 to {size - 1}" if size else "no cells"
        raise IndexError(f"{what} {name} has {cells}, none of index {index}")
    return int(index) % size


def _dots(view: RegisterView | CounterView) -> str:
    return "..." if len(view) > 8 else ""
