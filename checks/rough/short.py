"""Fixed cells with bounds: a test simulates all of them, in ten seconds of a core.

`bounds_of` says what a kind must hold, and `OWN` what some cells must hold instead.  A cell of the long run that falls
is put into `CELLS`, as its line has it (`Cell.read`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from .bound import mean_tries
from .cells import Cell, Trouble
from .drawing import BURST_BYTES, LATENCY_S, TROUBLES
from .running import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a cell must hold."""

    share: float
    """Least share of the bound."""
    repeats: float
    """Most repeats for each contribution."""
    recovery: float | None = None
    """Most time-outs beyond the bound, where something goes wrong for a time; the share says nothing then."""

    def missed(self, found: Outcome) -> str:
        """Return what a cell has not held, or nothing."""
        if found.error:
            return found.error
        says = []
        if self.recovery is None and found.share < self.share:
            says.append(f"share of the bound {found.share:.3f}, not {self.share:g}")
        if self.recovery is not None and found.recovery > self.recovery:
            says.append(f"{found.recovery:.2f} time-outs beyond the bound, not {self.recovery:g}")
        if found.repeats > self.repeats:
            says.append(f"{found.repeats:.3f} repeats for each contribution, not {self.repeats:.3f}")
        return ", ".join(says)


SHARE: Final = 0.8
SHARES: Final[Mapping[str, float]] = {
    "loss": 0.6,
    "loss+queue": 0.6,
    "twice": 0.6,
    "loss 30 %": 0.0,
}
"""Least share of the bound, by kind; `SHARE` for other kinds.  With 30 % loss a sum is to end, with few repeats."""
CROWDED: Final = 0.5
"""Least share of the bound where jobs ask for more shared slots than there are: those that find them taken wait."""
REPEATS: Final = 0.01
"""Most repeats for each contribution, where nothing is lost, late or wrong, beside what slow start sends too much."""
TRIES: Final = 2.0
"""Most repeats for each time that a round has to be sent again on average (`bound.mean_tries`)."""
WINDOWS: Final = 3.0
"""Most repeats of a whole window when something goes wrong."""
RECOVERY: Final = 3.0
"""Most time-outs until a sum goes on after something went wrong."""


def bounds_of(cell: Cell) -> Bounds:
    """Return what a cell must hold, whether it is fixed or drawn."""
    again = mean_tries(max(cell.loss, cell.late), 2 * cell.hops, cell.hosts) - 1
    repeats = REPEATS + TRIES * again + WINDOWS * len(cell.troubles) * min(1.0, cell.slots / cell.blocks)
    repeats += cell.overshoot / cell.blocks
    has_trouble = cell.kind in TROUBLES and bool(cell.troubles)
    return Bounds(
        share=SHARES.get(cell.kind, SHARE) if cell.fits_slots else CROWDED,
        repeats=repeats,
        recovery=RECOVERY if has_trouble else None,
    )


def _tc(rate_bps: float, hosts: int, lanes: int, slots: int = 256, blocks: int = 1500) -> Cell:
    """Return a sum on the links of `switchsum run --links veth --rate`."""
    queue = int(rate_bps / 8 * LATENCY_S) + BURST_BYTES
    return Cell(
        kind="tc",
        rate_bps=rate_bps,
        hosts=hosts,
        lanes=lanes,
        slots=slots,
        blocks=blocks,
        trip_s=1e-4,
        queue_bytes=queue,
        host_queue_bytes=queue,
        bucket_bytes=BURST_BYTES,
    )


_JUMBO: Final = 2048
_FRAME: Final = 1114
"""Bytes of a frame of 256 lanes."""

CELLS: Final[Mapping[str, Cell]] = {
    # Nothing is wrong.
    "slow-jumbo": Cell(kind="plain", hosts=6, rate_bps=1.6e6, lanes=_JUMBO, trip_s=2e-3, slots=64, blocks=400),
    "slow-far": Cell(kind="plain", rate_bps=10e6, trip_s=0.1, slots=256, blocks=2000),
    "slow-trunk": Cell(kind="plain", shape="racks", rate_bps=3e6, host_times=10, slots=256, blocks=1200),
    "very-slow": Cell(kind="plain", hosts=2, rate_bps=1e6, lanes=_JUMBO, trip_s=2e-3, slots=256, blocks=800),
    "very-fast": Cell(kind="plain", rate_bps=100e9, trip_s=10e-6, slots=256, blocks=4000),
    "satellite": Cell(kind="plain", rate_bps=1e9, trip_s=0.6, slots=256, blocks=6000),
    "three-levels": Cell(
        kind="plain", shape="three levels", hosts=8, rate_bps=100e6, trip_s=0.03, slots=256, blocks=2000
    ),
    "two-spines": Cell(
        kind="plain", shape="two spines", rate_bps=10e9, host_times=2, trip_s=50e-6, slots=256, blocks=3000
    ),
    "few-slots": Cell(kind="plain", rate_bps=40e6, trip_s=0.06, slots=8, blocks=250),
    # Queues.
    "four-frames": Cell(
        kind="queue", rate_bps=100e6, slots=64, blocks=1500, queue_bytes=4 * _FRAME, host_queue_bytes=4 * _FRAME
    ),
    "hundredfold": Cell(
        kind="queue", shape="racks", rate_bps=100e6, host_times=100, slots=256, blocks=1500, queue_bytes=10 * _FRAME
    ),
    "tenfold": Cell(
        kind="queue",
        shape="racks",
        hosts=6,
        rate_bps=14.5e6,
        host_times=10,
        slots=256,
        blocks=1500,
        queue_bytes=200_000,
    ),
    "jobs-with-short-queues": Cell(
        kind="jobs",
        shape="two spines",
        jobs=2,
        rate_bps=1.2e9,
        host_times=10,
        trip_s=0.0166,
        lanes=_JUMBO,
        slots=256,
        blocks=1500,
        queue_bytes=82_820,
    ),
    "marks": Cell(
        kind="mark",
        shape="racks",
        rate_bps=1e9,
        host_times=10,
        slots=256,
        blocks=3000,
        queue_bytes=128_000,
        mark_bytes=32_000,
    ),
    "tc-100": _tc(100e6, 4, 256),
    "tc-100-jumbo": _tc(100e6, 8, _JUMBO, slots=128, blocks=1000),
    "tc-5-jumbo": _tc(5e6, 4, _JUMBO, blocks=1000),
    "tc-2-empty": replace(_tc(2e6, 4, 256, blocks=450), spent_blocks=320),
    # Token buckets, late frames.
    "paused": Cell(
        kind="pause",
        shape="racks",
        hosts=6,
        rate_bps=1e6,
        host_times=2,
        trip_s=4e-6,
        lanes=_JUMBO,
        slots=4,
        blocks=120,
        troubles=(Trouble("host", 0.13, 13.0),),
    ),
    "large-bucket": Cell(
        kind="bucket", shape="racks", rate_bps=50e6, host_times=10, slots=256, blocks=2000, bucket_bytes=BURST_BYTES
    ),
    "bucket-late": Cell(
        kind="bucket+late", rate_bps=100e6, slots=128, blocks=2000, bucket_bytes=BURST_BYTES, late=1e-3, late_by_s=0.02
    ),
    "late": Cell(kind="late", rate_bps=1e9, slots=128, blocks=4000, late=1e-3, late_by_s=5e-3),
    "very-late": Cell(kind="late", shape="racks", rate_bps=20e6, slots=128, blocks=1500, late=1e-3, late_by_s=0.1),
    # Hosts that differ, jobs side by side, other values.
    "slow-host": Cell(kind="slow host", rate_bps=50e6, slow_times=10, trip_s=2e-3, slots=256, blocks=1500),
    "far-host": Cell(kind="far host", rate_bps=50e6, far_s=0.04, trip_s=1e-3, slots=256, blocks=2000),
    "jobs-with-few-slots": Cell(
        kind="jobs",
        shape="two spines",
        jobs=3,
        rate_bps=2.5e6,
        host_times=10,
        trip_s=7e-3,
        lanes=_JUMBO,
        slots=4,
        blocks=100,
    ),
    "two-jobs": Cell(
        kind="jobs",
        shape="two spines",
        jobs=2,
        rate_bps=100e6,
        host_times=10,
        slots=128,
        blocks=1000,
        queue_bytes=60_000,
    ),
    # A job may have four in flight over the fallback until it knows the path: with no more than that, 0.13.
    "shared-far": Cell(
        kind="shared slots", jobs=4, rate_bps=4.87e9, trip_s=0.0407, slots=256, shared_slots=256, blocks=3125
    ),
    "shared-parts": Cell(
        kind="shared slots", jobs=2, rate_bps=50e6, trip_s=0.019, slots=32, shared_slots=64, blocks=826
    ),
    "shared-slots": Cell(
        kind="shared slots", jobs=2, rate_bps=1e9, trip_s=2e-5, slots=64, shared_slots=64, blocks=1500
    ),
    # Fallen in long runs: a first time-out came before a full frame was timed, and repeats went on for ever.
    "full-frames-behind-short-ones": Cell(
        kind="plain", rate_bps=19.3e6, trip_s=1.7e-3, lanes=_JUMBO, slots=32, blocks=128, seed=59832
    ),
    "a-window-of-eight": Cell(
        kind="plain",
        shape="two spines",
        hosts=8,
        rate_bps=30.5e6,
        trip_s=1.66e-3,
        lanes=_JUMBO,
        slots=8,
        blocks=101,
        seed=38900,
    ),
    "far-behind-three-levels": Cell(
        kind="far host",
        shape="three levels",
        hosts=8,
        rate_bps=1.336e9,
        host_times=100,
        trip_s=1.8e-4,
        far_s=0.1025,
        slots=256,
        blocks=2083,
        seed=18227,
    ),
    # Thirty repeats for a contribution: link and queue hold nine frames of a window of 256.
    "flood": Cell(
        kind="queue",
        hosts=6,
        rate_bps=4.54e6,
        trip_s=0.0105,
        slots=256,
        blocks=1024,
        queue_bytes=4456,
        host_queue_bytes=4456,
        seed=42229,
    ),
    # Fallen in long runs: a window far below what the link holds left at once, and most of it was lost each time.
    # A path that holds many frames, before a queue of ten: two for each result overflow it in slow start (0.65, 2.1).
    "full-path": Cell(
        kind="queue",
        hosts=6,
        rate_bps=151e6,
        trip_s=0.0048,
        slots=256,
        blocks=1381,
        queue_bytes=10 * _FRAME,
        host_queue_bytes=10 * _FRAME,
    ),
    "burst-far": Cell(
        kind="queue",
        hosts=2,
        rate_bps=1.252e9,
        trip_s=0.0966,
        slots=256,
        blocks=3794,
        queue_bytes=4456,
        host_queue_bytes=4456,
        seed=38960,
    ),
    "burst-in-racks": Cell(
        kind="queue",
        shape="racks",
        rate_bps=29.3e9,
        host_times=100,
        trip_s=0.3287,
        slots=256,
        blocks=3132,
        queue_bytes=4456,
        host_queue_bytes=4456,
        seed=60192,
    ),
    "burst-with-losses": Cell(
        kind="loss+queue",
        hosts=6,
        rate_bps=8.549e9,
        trip_s=0.0124,
        slots=256,
        blocks=5011,
        queue_bytes=4456,
        host_queue_bytes=4456,
        loss=7.5e-4,
        seed=60000,
    ),
    "overflow": Cell(
        kind="queue",
        shape="racks",
        rate_bps=382e6,
        host_times=100,
        trip_s=8.07e-4,
        slots=256,
        blocks=1024,
        queue_bytes=11140,
        host_queue_bytes=11140,
        seed=10300,
    ),
    # A burst was marked on a link that has room: a window that grows by one in each round trip leaves 0.22 to 0.27.
    "marks-far": Cell(
        kind="mark",
        shape="racks",
        rate_bps=16.51e9,
        host_times=2,
        trip_s=0.1013,
        lanes=_JUMBO,
        slots=256,
        blocks=3125,
        queue_bytes=33_128,
        host_queue_bytes=33_128,
        mark_bytes=8282,
        seed=40755,
    ),
    # A window that goes on growing where a queue stands: 0.66 repeats.
    "standing": Cell(
        kind="queue",
        shape="racks",
        hosts=8,
        rate_bps=7.05347169928171e6,
        host_times=10,
        trip_s=9.261011724123865e-05,
        lanes=_JUMBO,
        slots=128,
        blocks=512,
        queue_bytes=33_128,
        seed=63578,
    ),
    # Results that come too soon to answer a repeat say that it was needless: taken for answers, 0.38 and 0.57 repeats.
    "too-soon": Cell(
        kind="loss+queue",
        hosts=2,
        rate_bps=4.230825150868293e10,
        trip_s=5.432593306375615e-05,
        slots=256,
        blocks=2573,
        queue_bytes=4456,
        host_queue_bytes=4456,
        loss=0.0011988318902526344,
        seed=47007,
    ),
    # Without a reordering window twice as many repeats, and 0.27.
    "loss-before-short-queues": Cell(
        kind="loss+queue",
        shape="three levels",
        hosts=8,
        rate_bps=2.098212280292374e6,
        host_times=100,
        trip_s=0.0004689617424804066,
        slots=256,
        blocks=1024,
        queue_bytes=11_140,
        loss=0.003225153818562691,
        seed=28850,
    ),
    "integers": Cell(kind="narrow", shape="racks", rate_bps=50e6, numbers="int8", slots=128, blocks=1200),
    "int10": Cell(kind="narrow", rate_bps=10e6, numbers="int10", trip_s=0.08, slots=128, blocks=1200),
    "sparse": Cell(kind="sparse", rate_bps=100e6, density=0.2, slots=128, blocks=3000),
    "batches": Cell(kind="batches", rate_bps=1e9, batch_s=1e-3, slots=256, blocks=4000),
    # Frames are lost.
    "loss": Cell(kind="loss", hosts=8, rate_bps=1e9, slots=128, blocks=2000, loss=0.01),
    "loss-64": Cell(kind="loss", shape="racks", hosts=64, rate_bps=10e9, trip_s=4e-6, slots=64, blocks=3904, loss=0.01),
    "loss-far": Cell(kind="loss", shape="racks", rate_bps=100e6, trip_s=0.08, slots=256, blocks=3000, loss=1e-3),
    # First contributions over the second of two trees are all lost in the queue that both share: 0.07 of the bound if
    # only a silence of both has them repeated.
    "one-tree-lost": Cell(
        kind="loss+queue",
        shape="two spines",
        hosts=6,
        rate_bps=6.524413130935471e6,
        host_times=100,
        trip_s=2.1645194670936737e-05,
        slots=256,
        blocks=1024,
        queue_bytes=11_140,
        host_queue_bytes=11_140,
        loss=1.8481730884431865e-4,
        seed=54986,
    ),
    # A queue of four frames loses nearly all first contributions of both trees: 0.07 if each time-out brings two back.
    "first-flights-lost": Cell(
        kind="mark",
        shape="two spines",
        hosts=6,
        rate_bps=8.061744600185773e8,
        host_times=10,
        trip_s=2.9170004664073178e-05,
        slots=256,
        blocks=1024,
        queue_bytes=4456,
        host_queue_bytes=4456,
        mark_bytes=1114,
        seed=26186,
    ),
    # The same of four jobs with a tree each: 0.13.
    "first-flights-of-jobs-lost": Cell(
        kind="jobs",
        shape="racks",
        jobs=4,
        rate_bps=1.6182353728760433e10,
        host_times=100,
        trip_s=0.0009806928400843068,
        slots=256,
        blocks=1562,
        queue_bytes=4456,
        seed=53705,
    ),
    # While a link is down, all that is in flight is lost: 0.11 if each time-out brings two back.
    "flight-lost": Cell(
        kind="outage",
        shape="racks",
        hosts=6,
        rate_bps=2.2109707450590992e8,
        trip_s=0.0014418519663529123,
        slots=256,
        blocks=1024,
        troubles=(Trouble("link", 0.5905483833539328, 0.04115748380921822),),
        seed=19954,
    ),
    # Once the bucket is spent, rounds take three thousand times as long.  The first of them have all been repeated:
    # if they did not say so, a third of the contributions would be.
    "bucket-of-a-slow-trunk": Cell(
        kind="bucket",
        shape="racks",
        rate_bps=1.2691700231896129e8,
        host_times=100,
        trip_s=5.024352087639726e-05,
        lanes=_JUMBO,
        slots=256,
        blocks=1024,
        bucket_bytes=262_144,
        seed=5463,
    ),
    # Three jobs over two spines are planned beside one another, as a controller plans them: 0.5 if each were alone.
    "jobs-over-spines": Cell(
        kind="jobs",
        shape="two spines",
        jobs=3,
        rate_bps=4.5576375045865387e8,
        trip_s=3.38458460188819e-05,
        slots=256,
        blocks=1024,
        seed=29606,
    ),
    # A sum's end: where a frame too many is not worth it, it waits for a time-out (0.64).
    "late-end": Cell(
        kind="late",
        shape="two spines",
        rate_bps=1.5481074231819336e9,
        host_times=100,
        trip_s=1.0671191562799062e-05,
        slots=256,
        blocks=1024,
        late=1e-3,
        late_by_s=0.03199885418276245,
        seed=43976,
    ),
    # Something goes wrong.
    "stopped": Cell(kind="stopped 5 s", rate_bps=100e6, blocks=3000, troubles=(Trouble("host", 0.3, 5.0),)),
    "clock": Cell(kind="clock", rate_bps=100e6, blocks=3000, troubles=(Trouble("clock", 0.3, 5.0),)),
    "tenth-rate": Cell(kind="rate", rate_bps=100e6, slots=128, blocks=3000, troubles=(Trouble("rate", 0.3, 1.0, 0.1),)),
    "switch-late": Cell(
        kind="switch late",
        shape="racks",
        rate_bps=100e6,
        slots=128,
        blocks=3000,
        troubles=(Trouble("switch", 0.3, 0.5),),
    ),
    "loss-30": Cell(kind="loss 30 %", rate_bps=100e6, slots=32, blocks=300, loss=0.3),
    # Rounds take longer than the first time-out, and none goes without a repeat: 12 repeats for each contribution if
    # pauses do not grow.
    "loss-30-far": Cell(
        kind="loss 30 %",
        hosts=6,
        rate_bps=8.156425560071535e10,
        trip_s=0.41115964786369413,
        slots=8,
        blocks=206,
        loss=0.3,
        seed=20278,
    ),
    "twice": Cell(
        kind="twice", rate_bps=100e6, trip_s=1e-3, slots=64, blocks=2000, twice=0.05, late=0.05, late_by_s=2e-3
    ),
    # Results of repeats say little where frames come late and twice: believed throughout a sum, they leave 0.24.
    "twice-far": Cell(
        kind="twice",
        shape="two spines",
        rate_bps=84e6,
        trip_s=0.114,
        lanes=_JUMBO,
        slots=256,
        blocks=1600,
        twice=0.05,
        late=0.05,
        late_by_s=0.16,
        seed=33643,
    ),
    # Late frames look lost in each round trip, and a queue seems to stand in some: 0.21 if each took a part away.
    "twice-and-far": Cell(
        kind="twice",
        hosts=6,
        rate_bps=3.205959881118841e9,
        trip_s=0.09512591614302619,
        lanes=_JUMBO,
        slots=256,
        blocks=4166,
        twice=0.05,
        late=0.05,
        late_by_s=0.2796154238584414,
        seed=17821,
    ),
}
"""The cells by name."""
OWN: Final[Mapping[str, Bounds]] = {
    # Short queues that drop and do not mark: slow start sends more than they hold, and goes on until the first round
    # trip with results has ended.
    "four-frames": Bounds(share=SHARE, repeats=0.6),
    "hundredfold": Bounds(share=SHARE, repeats=0.15),
    "jobs-with-short-queues": Bounds(share=0.5, repeats=0.7),
    "two-jobs": Bounds(share=SHARE, repeats=0.1),
    "flood": Bounds(share=SHARE, repeats=0.7),
    "full-path": Bounds(share=SHARE, repeats=0.55),
    "overflow": Bounds(share=SHARE, repeats=0.2),
    # Jobs take the slots that others give back one by one, each with a result of the fallback.
    "shared-far": Bounds(share=0.45, repeats=REPEATS),
    # Most rounds lose a frame somewhere: a window that took these losses for its own had 0.005 of the bound.
    # With 488 blocks seeds reach from 0.27 to 0.46, with these from 0.50 to 0.58.
    "loss-64": Bounds(share=0.45, repeats=0.65),
    "standing": Bounds(share=SHARE, repeats=0.45),
    "one-tree-lost": Bounds(share=0.4, repeats=0.35),
    "first-flights-lost": Bounds(share=0.6, repeats=0.25),
    "first-flights-of-jobs-lost": Bounds(share=0.3, repeats=0.3),
    "flight-lost": Bounds(share=0.6, repeats=0.3, recovery=0.5),
    "bucket-of-a-slow-trunk": Bounds(share=0.95, repeats=0.04),
    "jobs-over-spines": Bounds(share=0.95, repeats=0.005),
    "too-soon": Bounds(share=0.5, repeats=0.35),
    "marks-far": Bounds(share=0.5, repeats=REPEATS),
    "burst-far": Bounds(share=SHARE, repeats=0.05),
    "burst-in-racks": Bounds(share=SHARE, repeats=0.06),
    "burst-with-losses": Bounds(share=0.6, repeats=0.05),
    # Near ranks wait for the far one, and then have many short rounds at once, which their time-outs follow.
    "far-behind-three-levels": Bounds(share=SHARE, repeats=0.08),
    "tc-100-jumbo": Bounds(share=SHARE, repeats=0.06),
    "jobs-with-few-slots": Bounds(share=SHARE, repeats=0.05),
    # So few rounds lose nothing that results of later frames say little, and time-outs decide.
    "loss-30": Bounds(share=0.03, repeats=6.0),
    # What a host that stood still had in flight is asked for again more often than a window.
    "paused": Bounds(share=SHARE, repeats=0.25, recovery=RECOVERY),
    "stopped": Bounds(share=SHARE, repeats=0.15, recovery=RECOVERY),
}
"""Bounds of cells that do not hold those of their kind yet, each a little above what was found."""


def bounds(name: str) -> Bounds:
    """Return what a fixed cell must hold."""
    return OWN.get(name) or bounds_of(CELLS[name])
