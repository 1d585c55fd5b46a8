"""What a communicator has done so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..engine.state import Count
from .collectives import Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Counters of one communicator since it was made.  Bytes are those of whole frames, Ethernet header included."""

    collectives: int
    """Collectives that have finished."""
    collective_s: float
    """Seconds spent inside collectives and waiting for them."""
    rounds: int
    """Rounds in the switch whose result has come."""
    frames_sent: int
    """Contributions, repeats included."""
    bytes_sent: int
    """Bytes of these contributions."""
    frames_received: int
    """Frames that have come."""
    bytes_received: int
    """Bytes of these frames."""
    repeats: int
    """Contributions that were sent again."""
    held: int
    """Repeats to which the switch answered that it waits for others."""
    duplicate_frames: int
    """Results of a slot's last round that came once more."""
    stale_frames: int
    """Results of rounds before that."""
    foreign_frames: int
    """Frames that were not for this member, not from its switch, or about no round of its own."""
    broken_frames: int
    """Frames whose lengths, version or kind were wrong."""
    forged_frames: int
    """Frames with another cookie than this member's."""
    unexpected_frames: int
    """Results that contradict what was contributed."""
    blocked: int
    """Contributions that waited because the transport still read an earlier one from their place."""
    overflows: int
    """Rounds of integers in which a partial sum overflowed, so that the block was added again in halves."""
    marked: int
    """Results that said that congestion was met on the way."""
    withheld: int
    """Contributions that waited because the window was full."""
    taken: int
    """Results of the job's fallback that came while another job had the shared slot."""

    sparse_rows: int
    """Rows (values, or blocks) that this rank had in sparse allreduces and in those with small blocks."""
    sparse_union_rows: int
    """Rows that some rank had: what travelled of them."""
    sparse_all_rows: int
    """Rows of those arrays; over it, the two above are the densities of this rank and of the union."""
    sparse_same: int
    """Such allreduces in which all ranks had the same rows, so that their values travelled at once."""
    sparse_pairs: int
    """Those in which each rank got the places and values of all others, and added them itself."""
    sparse_places: int
    """Those in which ranks got each other's places first, and the switch added the values of the union."""
    sparse_bitmaps: int
    """Those in which a bit for each row said which rows some rank had."""
    sparse_whole: int
    """Those in which a rank had nearly all rows, so that all were added."""

    @classmethod
    def of(
        cls,
        counts: npt.NDArray[np.int64],
        supports: npt.NDArray[np.int64],
        ways: npt.NDArray[np.int64],
        *,
        collectives: int,
        collective_s: float,
    ) -> Statistics:
        """Read an engine's counters, and those of `Communicator.supports` and `Communicator.ways`."""
        values, ways_gone = counts.tolist(), ways.tolist()
        return cls(
            collectives=collectives,
            collective_s=collective_s,
            rounds=values[Count.ROUNDS],
            frames_sent=values[Count.FRAMES_SENT],
            bytes_sent=values[Count.BYTES_SENT],
            frames_received=values[Count.FRAMES_RECEIVED],
            bytes_received=values[Count.BYTES_RECEIVED],
            repeats=values[Count.OVERTAKEN] + values[Count.PROBES] + values[Count.RECALLED],
            held=values[Count.HELD],
            duplicate_frames=values[Count.DUPLICATE],
            stale_frames=values[Count.STALE],
            foreign_frames=values[Count.FOREIGN],
            broken_frames=values[Count.BROKEN],
            forged_frames=values[Count.FORGED],
            unexpected_frames=values[Count.UNEXPECTED],
            blocked=values[Count.BLOCKED],
            overflows=values[Count.OVERFLOWS],
            marked=values[Count.MARKED],
            withheld=values[Count.WITHHELD],
            taken=values[Count.TAKEN],
            sparse_rows=int(supports[0]),
            sparse_union_rows=int(supports[1]),
            sparse_all_rows=int(supports[2]),
            sparse_same=ways_gone[Way.SAME],
            sparse_pairs=ways_gone[Way.PAIRS],
            sparse_places=ways_gone[Way.PLACES],
            sparse_bitmaps=ways_gone[Way.BITMAPS],
            sparse_whole=ways_gone[Way.ALL],
        )
