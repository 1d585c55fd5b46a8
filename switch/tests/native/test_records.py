"""Records as kernels see them: the layout, and the numbers of enumerations."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from switchsum_host.engine.state import CORE, Core, Count, Phase
from switchsum_protocol.frame import Flag
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.kernels.records import Float64, Int64, Record, Table, UInt8, UInt32, dtype_of, table


class Sample(Record):
    """A record with a field of each type."""

    phase: UInt8
    wide: Int64
    narrow: UInt32
    ratio: Float64
    counts: Annotated[npt.NDArray[np.int64], "i8", 3]
    rows: Annotated[npt.NDArray[np.uint8], "u1", 2, 5]


def test_the_layout_is_that_of_c() -> None:
    dtype: Any = dtype_of(Sample)
    assert {name: field[1] for name, field in dtype.fields.items()} == {
        "phase": 0,
        "wide": 8,
        "narrow": 16,
        "ratio": 24,
        "counts": 32,
        "rows": 56,
    }
    assert dtype["rows"].shape == (2, 5)
    assert dtype["counts"].base == np.int64
    assert dtype.itemsize == 72
    assert tuple(Core.__annotations__) == CORE.names


@kernel
def use_members(samples: Table[Sample], index: int) -> int:
    """Use members of enumerations in all ways that kernels need."""
    sample = samples[index]
    sample.counts[Count.HELD] += Count.REJECTED
    sample.phase = Phase.WAITING if sample.wide else Phase.BLOCKED
    sample.phase |= Flag.REPEAT
    sample.rows[1, Count.HELD] = Flag.PAYLOAD if sample.phase & Flag.REPEAT else 0
    chosen = sample.phase if sample.phase in (Phase.IDLE, Phase.BLOCKED) else Phase.BLOCKED
    if sample.phase & (Flag.REPEAT | Flag.MARK) == 0:
        return Phase.IDLE
    return min(chosen, Count.FORGED) if sample.phase != Phase.WAITING else sample.narrow


def test_members_of_enumerations_are_numbers_to_kernels() -> None:
    samples = table(np.zeros(2, dtype_of(Sample)))
    samples["wide"] = 7
    assert use_members(samples, 1) == min(int(Phase.BLOCKED), int(Count.FORGED))
    assert samples["counts"].tolist() == [[0, 0, 0], [0, int(Count.REJECTED), 0]]
    assert samples["phase"].tolist() == [0, int(Phase.WAITING) | int(Flag.REPEAT)]
    assert samples["rows"][1, 1, Count.HELD] == int(Flag.PAYLOAD)
