"""What all ranks must have alike in one call, beyond the array: one structure, one encoding, one digest.

A call has a record where something stands above it that ranks must agree in: a compressor, an outer step.  Its text is
part of the label of the call's first operation.  So it is in the digest of 32 bits that every frame has anyway, and no
frame and no round more is needed for it.  Errors show the text.

`said` writes a value as text that is the same on ranks for which the value is equal.  `digest_of` is for values that
are too long for a text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

DIGEST_BYTES: Final = 6
"""Length of the digests in texts."""


OPERATION: Final[Mapping[str, str]] = {
    "words": "it is how errors of this rank name the call",
    "dtype": "it follows from the caller's dtype and options",
    "size": "it follows from the shape",
    "exact": "it follows from dtype, operator, lanes, shape and the switch's frames",
    "part": "it follows from the kind of collective and the shape",
    "root": "it follows from the kind of collective, which names it",
    "gathers": "it follows from the kind of collective",
}
"""Fields of an `Operation` that are not in its text, and why they need not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What ranks must have alike in a call.  Two calls are the same if their `text` is."""

    title: str
    """In words: errors show it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """All that must be alike by name, also what the title does not say."""

    @property
    def text(self) -> str:
        """Return the title, and a digest of title and facts."""
        return f"{self.title} [{digest_of([self.title, self.facts])}]"

    def __str__(self) -> str:
        return self.text


def digest_of(value: Any) -> str:
    """Return a digest of a value, the same on ranks for which it is equal."""
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    _feed(found, value)
    return found.hexdigest()


def _feed(found: Any, value: Any) -> None:
    """Add a value to a digest, and where it begins and ends."""
    if isinstance(value, Mapping):
        found.update(b"{%d" % len(value))
        for name in sorted(value, key=str):
            _feed(found, [str(name), value[name]])
    elif isinstance(value, str | bytes):
        octets = value.encode() if isinstance(value, str) else value
        found.update(b"%s%d:" % (b"'" if isinstance(value, str) else b"b", len(octets)) + octets)
    elif isinstance(value, Sequence):
        found.update(b"[%d" % len(value))
        for one in value:
            _feed(found, one)
    elif isinstance(value, np.ndarray):
        _feed(found, [value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()])
    else:
        octets = said(value).encode()
        found.update(b"=%d:" % len(octets) + octets)


def said(value: Any) -> str:
    """Return a value as text, the same on ranks for which it is equal: an object's address is left out.

    >>> said(2.0), said({"b": (1, None), "a": np.float32(0.5)})
    ('2', '{a: 0.5, b: (1, None)}')
    """
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return repr(int(value))
    if isinstance(value, np.ndarray):
        return f"array {value.dtype}{list(value.shape)} [{digest_of(value)}]"
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {said(value[name])}' for name in sorted(value, key=str))}}}"
    if isinstance(value, list | tuple):
        ends = "[]" if isinstance(value, list) else "()"
        return ends[0] + ", ".join(map(said, value)) + ends[1]
    if getattr(type(value), "__repr__", None) is object.__repr__ or callable(value):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    return repr(value)


def call_of(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call with these arguments as text.

    >>> call_of("TopK", {"density": 0.5, "kept": None})
    'TopK(density=0.5, kept=None)'
    """
    return f"{name}({', '.join(f'{key}={said(value)}' for key, value in arguments.items())})"


class Announced:
    """A communicator whose first collective has a record in its label, so that ranks notice if theirs differ."""

    def __init__(self, comm: Any, record: Record) -> None:
        self._comm = comm
        self._label = record.text
        self.rank: int = comm.rank
        self.world_size: int = comm.world_size

    def __getattr__(self, name: str) -> Any:
        """Return what the communicator has; its collectives take the label."""
        found = getattr(self._comm, name)
        if name.removesuffix("_async") not in COLLECTIVES:
            return found

        def call(*arguments: Any, label: str = "", **options: Any) -> Any:
            return found(*arguments, label=self._next(label), **options)

        return call

    def _next(self, label: str) -> str:
        """Return what the next collective is called; `label` is what a compressor inside of this one calls it."""
        first, self._label = self._label, ""
        return ": ".join(filter(None, (first, label)))


COLLECTIVES: Final = frozenset({
    "allgather",
    "allgatherv",
    "allreduce",
    "allreduce_sparse",
    "allreduce_topk",
    "barrier",
    "broadcast",
    "reduce",
    "reduce_scatter",
})  # fmt: skip
"""Collectives that take a label."""
