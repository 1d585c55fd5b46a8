"""Global top-k in trainings, beside Ok-Topk: `python -m checks.lab.played_topk [--publish]` (torch; an hour's quarter).

The trainings of `lab/papers/recordings` are played with 4 to 32 ranks, once for each way.  After some dense steps, each
rank's error feedback chooses from its accumulator.  The compressors' own code runs on a network that only counts
(`checks.lab.counting`).  Ok-Topk's algorithm is that of `switchsum_lab.sweeps.sparse_hosts`, with bounds and threshold
of its first step.

Words are four bytes.  Those of ours have headers, Ok-Topk's have none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checks.lab.block_bytes import PAGE, arguments, print_tables
from checks.lab.convergence_tasks import TASKS, Played
from checks.lab.counting import WAIT_S, Counting, Model, on_all
from switchsum_host.api.sparse import largest
from switchsum_host.compress import GlobalTopK, TopK
from switchsum_host.compress.base import Compressor, Exchanged, count_of
from switchsum_lab.sweeps.sparse_hosts import Octets, OkTopk, Stream

Floats = npt.NDArray[np.float32]

BEGIN, END = "<!-- played top-k: python -m checks.lab.played_topk --publish -->", "<!-- end of played top-k -->"
NAMES: Final = ("words", "gpt", "images")
RANKS: Final = (4, 8, 16, 32)
DENSITY: Final = 0.01
DENSE_STEPS: Final = 16
STEPS: Final = 10
LANES: Final = 256
WORD_BYTES: Final = 4
WAYS: Final[dict[str, Callable[[], Compressor]]] = {
    "`GlobalTopK`": lambda: GlobalTopK(DENSITY),
    "`TopK(kept=)`": lambda: TopK(DENSITY, kept=DENSITY),
    "`TopK`": lambda: TopK(DENSITY),
}
OK_TOPK: Final = "Ok-Topk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one way did in one step."""

    up: float
    """Words of the rank that sends most, over k."""
    down: float
    """Words that come to the rank that gets most, over k."""
    values: float
    """Values that are left of the sum, over k."""
    energy: float
    """Their energy, over that of the k largest values of the sum of all accumulators."""
    is_same: bool
    """Whether all ranks got the same bits."""


class Step(NamedTuple):
    """What a way did in a step, on all ranks."""

    sums: list[Floats]
    own: list[Floats]
    """What of each rank's accumulator is sent."""
    up: int
    down: int
    """Most bytes of a rank."""


@dataclass
class Mailbox:
    """Messages between threads, whose bytes are counted."""

    ranks: int
    sent: npt.NDArray[np.int64] = field(init=False)
    received: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.sent, self.received = np.zeros((2, self.ranks), np.int64)
        self.posted: list[Mapping[int, Octets]] = [{}] * self.ranks
        self.meeting = threading.Barrier(self.ranks, timeout=WAIT_S)


class Threads:
    """One rank of a mailbox, as `sparse_hosts.Peers`."""

    def __init__(self, mailbox: Mailbox, rank: int) -> None:
        self.rank, self.ranks, self._mailbox = rank, mailbox.ranks, mailbox

    def swap(self, outgoing: Mapping[int, Octets], sources: Sequence[int]) -> dict[int, Octets]:
        """Send and receive."""
        box = self._mailbox
        box.posted[self.rank] = outgoing
        box.meeting.wait()
        came = {rank: box.posted[rank][self.rank] for rank in sources}
        box.sent[self.rank] += sum(map(len, outgoing.values()))
        box.received[self.rank] += sum(map(len, came.values()))
        box.meeting.wait()
        return came


class OkTopks:
    """Ok-Topk on all ranks, which keeps its bounds and threshold from step to step."""

    def __init__(self, ranks: int, size: int, k: int) -> None:
        self._box, self._k, self._size = Mailbox(ranks), k, size
        self._all = [OkTopk(Threads(self._box, rank), size, k) for rank in range(ranks)]

    def __call__(self, accumulators: Sequence[Floats]) -> Step:
        """Take a step: what a rank has sent is its own chosen values that are among the largest sums, too."""
        box = self._box
        box.sent[:] = box.received[:] = 0
        found: dict[int, tuple[Floats, Floats]] = {}

        def call(rank: int) -> None:
            values = accumulators[rank]
            chosen = largest(values, self._k)
            total = self._all[rank].allreduce(Stream(chosen.astype(np.uint32), values[chosen]))
            both = np.intersect1d(chosen, total.indices)
            own = np.zeros(self._size, np.float32)
            own[both] = values[both]
            found[rank] = total.to_dense(0, self._size), own

        on_all(len(accumulators), call)
        each = [found[rank] for rank in range(len(accumulators))]
        return Step([one for one, _ in each], [own for _, own in each], int(box.sent.max()), int(box.received.max()))


def seen(sums: Sequence[Floats], up: int, down: int, k: int, best: float) -> Seen:
    """Return what all ranks' sums come to."""
    first = sums[0]
    return Seen(
        up=up / WORD_BYTES / k,
        down=down / WORD_BYTES / k,
        values=np.count_nonzero(first) / k,
        energy=float(np.sum(np.square(first, dtype=np.float64))) / best,
        is_same=all(one.tobytes() == first.tobytes() for one in sums),
    )


def exchanged(compressor: Callable[[], Compressor], accumulators: Sequence[Floats]) -> Step:
    """Exchange once on a network that counts."""
    ranks = len(accumulators)
    network, found = Counting(ranks, LANES), dict[int, Exchanged]()

    def call(rank: int) -> None:
        comm: Any = Model(network, rank)
        try:
            found[rank] = compressor().exchange(comm, "gradient", accumulators[rank])
        except BaseException:
            network.meeting.abort()
            raise

    on_all(ranks, call)
    each = [found[rank] for rank in range(ranks)]
    sums = [one.mean * np.float32(ranks) for one in each]
    return Step(sums, [one.own for one in each], int(network.up.max()), network.down)


def played(name: str, ranks: int, way: str) -> list[Seen]:
    """Play a training with error feedback; return what a way did in each sparse step."""
    training = Played(TASKS[name], 1, ranks)
    for _ in range(DENSE_STEPS):
        training.step(np.mean(training.gradients()[0], axis=0))
    k = count_of(DENSITY, training.size)
    lost = [np.zeros(training.size, np.float32) for _ in range(ranks)]
    step = OkTopks(ranks, training.size, k) if way == OK_TOPK else partial(exchanged, WAYS[way])
    found = []
    for _ in range(STEPS):
        accumulators = [one + gradient for one, gradient in zip(lost, training.gradients()[0], strict=True)]
        total = np.sum(accumulators, axis=0, dtype=np.float64)
        taken = step(accumulators)
        found.append(seen(taken.sums, taken.up, taken.down, k, float(np.sum(np.sort(np.square(total))[-k:]))))
        lost = [one - own for one, own in zip(accumulators, taken.own, strict=True)]
        training.step(taken.sums[0] / np.float32(ranks))
    return found


def table(names: Sequence[str], ranks: Sequence[int]) -> Iterator[str]:
    """Yield the table, a row for each training, number of ranks and way."""
    yield "| training | ranks | way | words up over k | words down over k | values kept over k | energy | same bits |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, count, way in product(names, ranks, (*WAYS, OK_TOPK)):
        steps = played(name, count, way)
        cells = [_range([getattr(one, of) for one in steps]) for of in ("up", "down", "values", "energy")]
        same = "yes" if all(one.is_same for one in steps) else "NO"
        yield f"| {name} | {count} | {way} | {' | '.join(cells)} | {same} |"


def _range(figures: Sequence[float]) -> str:
    return f"{median(figures):.2f} ({min(figures):.2f} to {max(figures):.2f})"


def main() -> None:
    """Print the table, and publish it."""
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES), help="trainings")
    parser.add_argument("--ranks", type=int, nargs="+", default=list(RANKS))
    options = parser.parse_args()
    lines = table(options.only, options.ranks)
    print_tables(lines, BEGIN, END, publish=options.publish, page=PAGE.with_stem("sparse-topk"))


if __name__ == "__main__":
    main()
