"""Rounds of a job, for tests of the P4 program."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from switchsum.testing.rig import SWITCH, Rig, cookie, sums, worker
from switchsum_protocol.frame import Kind

SLOTS = 1024
"""Of the switch, see p4src/config.p4."""
RNG = np.random.default_rng(5)

Lanes = npt.NDArray[np.int32]
Sums = npt.NDArray[np.int64]


def some_lanes(rig: Rig, bits: int = 28) -> Lanes:
    return RNG.integers(-(1 << bits), 1 << bits, rig.lanes_per_frame, dtype=np.int32)


def run_round(rig: Rig, number: int, **fields: int) -> Sums:
    """Let every rank contribute, check the results, and return their sum."""
    blocks = [some_lanes(rig) for _ in range(rig.workers)]
    for rank in range(rig.workers - 1):
        assert rig.contribute(rank, number, blocks[rank], **fields) == {}
    answers = rig.contribute(rig.workers - 1, number, blocks[-1], **fields)
    total: Sums = np.sum(blocks, axis=0, dtype=np.int64)
    assert sorted(answers) == [rank + 1 for rank in range(rig.workers)]
    for port, [packet] in answers.items():
        assert packet.header.kind == Kind.RESULT
        assert packet.header.rank == port - 1
        assert packet.header.cookie == cookie(port - 1)
        assert (packet.source, packet.destination) == (SWITCH, worker(port - 1))
        assert packet.header.number == number
        np.testing.assert_array_equal(sums(packet), total)
    return total


def run_rest(rig: Rig, number: int, given: dict[int, Lanes]) -> Sums:
    """Complete a round in which some have contributed; return its sum."""
    blocks = dict(given)
    for rank in range(rig.workers):
        if rank not in blocks:
            blocks[rank] = some_lanes(rig)
            answers = rig.contribute(rank, number, blocks[rank])
    total: Sums = np.sum(list(blocks.values()), axis=0, dtype=np.int64)
    for [packet] in answers.values():
        np.testing.assert_array_equal(sums(packet), total)
    return total
