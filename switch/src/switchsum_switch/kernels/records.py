"""A structured record said once: a class with annotated fields, of which its dtype is made and by which mypy looks.

Kernels take structured arrays and read `slots[index].phase`; numba knows the fields from the dtype.  The classes are
for readers and mypy alone: nothing makes an instance of one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from .plain import PLAIN

Int64 = Annotated[int, "i8"]
UInt32 = Annotated[int, "u4"]
UInt8 = Annotated[int, "u1"]
Float64 = Annotated[float, "f8"]
"""Types of fields: the type in a kernel, and how it is stored.

A field that is an array is annotated with dtype and shape, a field that is a record with its class.
"""
_KNOWN: Final = {"Int64": ("i8",), "UInt32": ("u4",), "UInt8": ("u1",), "Float64": ("f8",)}
"""Types that nearly all annotations name. To evaluate annotations takes a hundred times as long."""


class Record:
    """Base of the classes of records; Python, outside kernels, reads a field as `record["name"]`."""

    def __getitem__(self, name: str) -> Any: ...

    def __setitem__(self, name: str, value: Any) -> None: ...


R_co = TypeVar("R_co", bound=Record, covariant=True)

if TYPE_CHECKING:

    class Table(npt.NDArray[Any], Generic[R_co]):
        """A structured array of records of a class."""

        @overload  # type: ignore[override]
        def __getitem__(self, index: int | np.integer[Any]) -> R_co: ...
        @overload
        def __getitem__(self, index: Any) -> Any: ...
        def __getitem__(self, index: Any) -> Any: ...

else:
    Table = np.ndarray


def dtype_of(record: type[Record]) -> np.dtype[Any]:
    """Return the dtype of a record, whose fields lie as C's compilers would have them.

    Its module has `from __future__ import annotations`, so that fields are texts here, most of them one of four.
    """
    scope = vars(sys.modules[record.__module__])
    fields: list[Any] = []
    for name, text in record.__annotations__.items():
        if text in _KNOWN:
            fields.append((name, *_KNOWN[text]))
            continue
        found = eval(text, scope)
        if isinstance(found, type):  # a record in a record
            fields.append((name, dtype_of(found)))
        else:
            kind, *shape = found.__metadata__
            fields.append((name, kind, tuple(shape)) if shape else (name, kind))
    return np.dtype(fields, align=True)


def table(array: npt.NDArray[Any]) -> Any:
    """Return a structured array as kernels take it in this process."""
    if not PLAIN:
        return array
    from .plain import Entries  # noqa: PLC0415

    return array.view(Entries)
