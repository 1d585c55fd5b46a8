"""Measures what compression does to each layer: bytes that were not sent, and errors of averages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from switchsum_host.api.sparse import AUTO_BLOCK
from switchsum_host.compress.base import Part, split
from switchsum_host.engine.operation import EACH, FLOAT_LANES, INT4

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStatistics:
    """What came of one parameter's gradients; bytes are this rank's, without frames' headers."""

    values: int
    exchanges: int
    whole_bytes: int
    """Bytes that float32 would have taken."""
    sent_bytes: float
    """Bytes that went to the switch. A bucket's bytes are divided by the values that arrived in each parameter."""
    arrived: float | None
    """Share of the averages that were not zero, in exchanges that were checked; None: none was."""
    error: float | None
    """L2 norm of the averages' error over that of the exact ones, likewise."""

    @property
    def saved(self) -> float:
        """The share of bytes that was not sent."""
        return 1 - self.sent_bytes / max(1, self.whole_bytes)


class Layers(dict[str, LayerStatistics]):
    """Statistics by parameter; as text a table."""

    def __str__(self) -> str:
        width = max([len(name) for name in self], default=5)
        lines = [f"{'layer':{width}}     values   kB whole    kB sent  saved  arrived    error"]
        for name, one in self.items():
            arrived = "" if one.arrived is None else f"{one.arrived:.1%}"
            error = "" if one.error is None else f"{one.error:.1e}"
            sizes = f"{one.values:10,} {one.whole_bytes / 1e3:10,.1f} {one.sent_bytes / 1e3:10,.1f}"
            lines.append(f"{name:{width}} {sizes} {one.saved:6.1%} {arrived:>8} {error:>8}")
        return "\n".join(lines)


class Counted:
    """A communicator that counts the bytes which it is given."""

    def __init__(self, communicator: Any) -> None:
        self._communicator = communicator
        self._payload = 0
        self._in_blocks: list[tuple[npt.NDArray[Any], int, int]] = []
        """Arrays of which only some blocks travel, values in a block, and bytes of a value."""

    @property
    def payload(self) -> int:
        """Bytes so far; those of small blocks once their sums are there, which tell the blocks that travelled."""
        return self._payload + sum(_bytes_of_blocks(*one) for one in self._in_blocks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._communicator, name)

    def allreduce(self, array: npt.NDArray[Any], op: str = "sum", **options: Any) -> Any:
        """See `Communicator`."""
        self._payload += _payload(array, options)
        return self._communicator.allreduce(array, op, **options)

    def allreduce_async(self, array: npt.NDArray[Any], op: str = "sum", **options: Any) -> Any:
        """See `Communicator`."""
        block = options.get("block")
        if block is None:
            self._payload += _payload(array, options)
        else:
            size = block if isinstance(block, int) and block > 0 else AUTO_BLOCK
            self._in_blocks.append((array, size, _payload(array, options) // max(1, array.size)))
        return self._communicator.allreduce_async(array, op, **options)

    def allreduce_sparse(self, *arguments: Any, **options: Any) -> Any:
        """See `Communicator`; bytes are what it has sent meanwhile, headers and all.

        Repeats do not count, as they do not in other calls: how many there are depends on how late other ranks are.
        """
        before = self._communicator.statistics()
        total = self._communicator.allreduce_sparse(*arguments, **options)
        after = self._communicator.statistics()
        frames, repeats = after.frames_sent - before.frames_sent, after.repeats - before.repeats
        self._payload += (after.bytes_sent - before.bytes_sent) * (frames - repeats) // max(1, frames)
        return total


def _payload(array: npt.NDArray[Any], options: dict[str, Any]) -> int:
    """Return the bytes that an array travels as."""
    if options.get("lanes") == INT4:
        return -(-array.size // 2)
    is_narrow = array.dtype.kind not in "iub" and options.get("lanes", "int32") != "int32"
    if not is_narrow:
        return array.nbytes
    return array.size * (FLOAT_LANES[options["lanes"]].value_bits // 8 + (options["lanes"] == EACH))


def _bytes_of_blocks(array: npt.NDArray[Any], block: int, value_bytes: int) -> int:
    """Return the bytes that an array's blocks which are not zero travel as, and a bit for each of all."""
    flat = array.reshape(-1)
    firsts = np.arange(0, flat.size, block)
    wanted = int(np.count_nonzero(np.logical_or.reduceat(flat != 0, firsts))) if flat.size else 0
    return min(flat.size, wanted * block) * value_bytes + -(-firsts.size // 8)


@dataclass(slots=True)
class _Sums:
    """What has added up of one parameter."""

    values: int = 0
    exchanges: int = 0
    density: float = 1.0
    """Share of values that arrived when it was last checked."""
    sent: float = 0.0
    checked: int = 0
    arrived: int = 0
    error: float = 0.0
    exact: float = 0.0


@dataclass(slots=True)
class Measured:
    """Adds up what hooks tell it."""

    every: int = 0
    """One in so many exchanges of a bucket is checked, the first among them; 0: none."""
    _sums: dict[str, _Sums] = field(default_factory=dict)

    def is_due(self, parts: Sequence[Part]) -> bool:
        """Return whether the next exchange of a bucket is checked: the same on all ranks."""
        first = self._sums.get(parts[0].key, _Sums())
        return self.every > 0 and first.exchanges % self.every == 0

    def note(self, parts: Sequence[Part], payload: int, mean: Floats, exact: Floats | None) -> None:
        """Take an exchange into account, with the exact averages if it is checked."""
        if exact is not None:
            for (part, values), (_, wanted) in zip(split(parts, mean), split(parts, exact), strict=True):
                sums = self._sums.setdefault(part.key, _Sums())
                arrived = int(np.count_nonzero(values))
                sums.density = arrived / max(1, part.size)
                sums.checked += 1
                sums.arrived += arrived
                sums.error += float(np.square(values - wanted, dtype=np.float64).sum())
                sums.exact += float(np.square(wanted, dtype=np.float64).sum())
        own = [(self._sums.setdefault(part.key, _Sums()), part.size) for part in parts]
        total = sum(sums.density * size for sums, size in own)
        for sums, size in own:
            sums.values = size
            sums.exchanges += 1
            sums.sent += payload * sums.density * size / total if total else payload / len(own)

    def layers(self) -> Layers:
        """Return what has added up."""
        return Layers({key: _statistics(sums) for key, sums in self._sums.items()})


def _statistics(sums: _Sums) -> LayerStatistics:
    is_checked = sums.checked > 0
    error = (sums.error / sums.exact) ** 0.5 if sums.exact > 0 else 0.0
    return LayerStatistics(
        values=sums.values,
        exchanges=sums.exchanges,
        whole_bytes=4 * sums.values * sums.exchanges,
        sent_bytes=sums.sent,
        arrived=sums.arrived / (sums.checked * max(1, sums.values)) if is_checked else None,
        error=error if is_checked else None,
    )
