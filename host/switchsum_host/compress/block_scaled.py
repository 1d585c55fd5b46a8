"""All values in narrow lanes, in steps of their own small block: heavy tails cost nothing outside of it.

Lanes of 8 and 16 bits share an exponent in each frame, of hundreds of values, and one large value among them leaves
few steps for the others.  Here ranks first agree on a scale for each small block (`small_blocks`). Each value is then
divided by its scale and sent in a lane. It is less than 1 either way, so all frames have one exponent and lose nothing
by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import FLOAT_FORMATS
from switchsum_protocol.lane_scales import FRACTION_BITS, full_scale
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.kernels.floats import restore_floats, usual_floats
from switchsum_switch.kernels.mixing import turned_at

from .base import Begun, Communicates, Compressor, CompressorState, Exchanged, Floats, Part, Steps, name_of
from .small_blocks import Scales, agree, factors_of, turn_of, units_of

VALUE_BITS: Final = {name: FLOAT_FORMATS[name].value_bits for name in ("int8", "int16")}
"""Bits of a value, by lane format, for the lanes that have few steps."""
_BELOW_ONE: Final = 1 - 2.0**-24
"""The largest quotient: 1 would give its frame the next exponent, which leaves half of the steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay(Begun):
    """Quotients that are being added."""

    block: int
    quotients: Floats
    scales: Scales
    ranks: int

    def finish(self) -> Floats:
        """Return the average."""
        multiply(self.quotients, self.block, units_of(self.scales, self.ranks), self.mean)
        return self.mean


class BlockScaled(Compressor):
    """Sends every value in steps of its own small block, in lanes of 8 or 16 bits.

    Values are rounded at random, so that the mean is right.  "int8" takes 1 byte a value up and 2 down, "int16" 2 each
    way, and both take one more byte for each block.
    """

    ranks_may_differ: ClassVar[Mapping[str, str]] = {
        "steps": "each rank rounds by itself, and its values are right in the mean",
    }

    def __init__(self, lanes: str = "int8", block: int = 64, seed: int = 0) -> None:
        """Choose lanes and blocks; the same on all ranks.

        Args:
            lanes: "int8" or "int16".
            block: How many values share a scale.
            seed: Number that rounding starts from.

        Raises:
            UsageError: Other lanes, or a block without values.

        Note:
            A block's scale is never below a 2**31th of the largest value that is exchanged together.

        Example:
            >>> import numpy as np
            >>> from switchsum_host.compress import BlockScaled
            >>> from switchsum.testing import on_ranks
            >>> gradient = np.full(64, 0.5, np.float32)
            >>> mean = on_ranks(2, lambda comm: BlockScaled("int16").exchange(comm, "layer", gradient).mean)[0]
            >>> bool(np.allclose(mean, 0.5, rtol=1e-3))
            True

        """
        if lanes not in VALUE_BITS:
            raise UsageError(f"lanes must be int8 or int16, not {lanes!r}: others need no scale")
        if block < 1:
            raise UsageError(f"a block has at least one value, not {block}")
        self._lanes = lanes
        self._block = block
        self._seed = seed
        self._steps = Steps()

    def _exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        made = self._divided(comm, parts, values)
        own = np.empty(values.size, np.float32)
        multiply(made.quotients, self._block, units_of(made.scales, 1), own)
        comm.allreduce(made.quotients, lanes=self._lanes)
        return Exchanged(own=own, mean=made.finish())

    def _begin_parts(self, comm: Any, parts: Sequence[Part], values: Floats) -> Begun:
        """Exchange a bucket: when this returns the scales are agreed on, and the values are under way."""
        made = self._divided(comm, parts, values)
        handles = (comm.allreduce_async(made.quotients, lanes=self._lanes),)
        return replace(made, handles=handles)

    def _divided(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> _UnderWay:
        """Agree on scales, and divide this rank's values by them."""
        scales = agree(comm, values, self._block)
        step = self._steps.count(parts)
        seed = int(np.random.default_rng([self._seed, step, *name_of(parts)]).integers(1 << 32))
        steps = full_scale(comm.world_size, VALUE_BITS[self._lanes])
        return _UnderWay(
            mean=np.empty(values.size, np.float32),
            block=self._block,
            quotients=quotients_of(values, self._block, scales, steps, seed, turn_of(comm.rank, comm.world_size)),
            scales=scales,
            ranks=comm.world_size,
        )

    def _state(self) -> CompressorState:
        return {"steps": self._steps}

    def _restore(self, state: CompressorState) -> None:
        self._steps = Steps(state["steps"])


def quotients_of(values: Floats, block: int, scales: Scales, steps: int, seed: int, turn: int) -> Floats:
    """Return values over their blocks' scales, rounded at random to whole numbers of ``1 / steps``; see `turn_of`."""
    quotients = np.empty(values.size, np.float32)
    divide(values, block, factors_of(float(steps << FRACTION_BITS), scales), steps, seed, turn, quotients)
    return quotients


@kernel
def divide(values: Floats, block: int, factors: Floats, steps: int, seed: int, turn: int, quotients: Floats) -> None:
    """Write each value times its block's factor, which gives ``2**-FRACTION_BITS`` of steps, as whole steps over all.

    Of 127 steps the lanes' own rounding leaves every one as it is; of thousands it may take a step off one in hundreds.
    """
    mode = usual_floats()
    whole, most = np.float32(steps), np.float32(_BELOW_ONE)
    for index in range(len(factors)):
        # Slices, so that the loop runs several values at a time.
        start, end = index * block, min((index + 1) * block, values.size)
        part, to, factor = values[start:end], quotients[start:end], factors[index]
        if factor == 0:  # the values may be no numbers
            to[:] = 0
            continue
        for i in range(part.size):
            fixed = np.int32(np.rint(np.float32(part[i] * factor)))
            drawn = np.uint32(turned_at(seed, start + i, turn) >> np.uint32(32 - FRACTION_BITS))
            rounded = np.int32(np.int32(fixed + np.int32(drawn)) >> np.int32(FRACTION_BITS))
            quotient = np.float32(np.float32(rounded) / whole)
            quotient = quotient if quotient < most else most
            to[i] = quotient if quotient > -most else -most
    restore_floats(mode)


@kernel
def multiply(quotients: Floats, block: int, units: Floats, values: Floats) -> None:
    """Write quotients times their blocks' units; without a number for a unit they are NaN."""
    mode = usual_floats()
    for index in range(len(units)):
        start, end = index * block, min((index + 1) * block, values.size)
        part, to, unit = quotients[start:end], values[start:end], units[index]
        for i in range(part.size):
            to[i] = part[i] * unit
    restore_floats(mode)
