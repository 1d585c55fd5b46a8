"""What top-k sums bring up and down, beside Ok-Topk's volume: `python -m checks.lab.topk_bytes [--publish]`.

The compressors' own code runs on a network that only counts (`checks.lab.block_bytes`), on normal values that each
rank draws for itself: largest values at random places, which those of error feedback's accumulators nearly are.
Ok-Topk's balanced volume, 16 k (P-1)/P bytes each way, is without packet headers, and without finding its bounds.

`--accumulators FOLDER` takes those that `checks.bench.gradients` has kept there, of 4 and 8 workers, in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

from checks.bench.gradients import STEPS, Floats, path, union_over_k
from checks.lab.block_bytes import FRAMES, PAGE, RANKS, Moved, arguments, print_tables
from checks.lab.counting import Counting, Model, on_all
from switchsum_host.compress import BlockTopK, GlobalTopK, TopK
from switchsum_host.compress.base import Compressor, count_of

ACCUMULATED_BEGIN = "<!-- accumulators' bytes: python -m checks.lab.topk_bytes --accumulators FOLDER --publish -->"
ACCUMULATED_END = "<!-- end of accumulators' bytes -->"
BEGIN, END = "<!-- top-k bytes: python -m checks.lab.topk_bytes --publish -->", "<!-- end of top-k bytes -->"
VALUES: Final = 2_500_000
DENSITIES: Final = (0.01, 0.001)
ACCUMULATED_VALUES: Final = 25_000_000
ACCUMULATED_DENSITIES: Final = (0.1, 0.01, 0.001)
_PAIR_BYTES: Final = 8
WAYS: Final[dict[str, Callable[[float], Compressor]]] = {
    "`TopK`: the whole union": TopK,
    "`TopK(kept=)`: as many sums": lambda density: TopK(density, kept=density),
    "`GlobalTopK`: k values of all ranks": GlobalTopK,
    "`BlockTopK`, blocks of 256": BlockTopK,
    "`BlockTopK`, blocks of 32": lambda density: BlockTopK(density, block=32),
}


def ok_topk(k: int, ranks: int) -> float:
    """Return bytes each way: pairs are reduced at the ranks that they belong to, and their sums gathered."""
    return 2 * _PAIR_BYTES * k * (ranks - 1) / ranks


def least(density: float, ranks: int) -> dict[str, tuple[float, float]]:
    """Return bytes up and down, for each of a rank's k values, that ways need; see docs/results/sparse-topk.md."""
    union = 1 - (1 - density) ** ranks
    support = _entropy(union) / density / 8
    own = 4 + _entropy(density) / density / 8
    rows = union / density
    without = _entropy(density) / density / 8 + 4 * rows
    return {
        "least, the whole union, without indices": (without, support + 4 * rows),
        "least, the whole union, with indices": (own, support + 4 * rows),
        "least, a byte for all, then k sums, without indices": (without - 3 * rows + 4, support + rows + 4),
        "least, k sums, with indices": (own, own),
    }


def _entropy(share: float) -> float:
    return float(-share * np.log2(share) - (1 - share) * np.log2(1 - share))


def drawn(rank: int, values: int) -> Floats:
    """Draw a rank's gradient."""
    return np.random.default_rng([rank, 3]).standard_normal(values, np.float32)


def modelled(way: str, density: float, gradients: Callable[[int], Floats], ranks: int, lanes: int) -> Moved:
    """Return what one exchange moves; `gradients` returns each rank's."""
    network = Counting(ranks, lanes)

    def call(rank: int) -> None:
        comm: Any = Model(network, rank)
        try:
            WAYS[way](density).exchange(comm, "gradient", gradients(rank))
        except BaseException:
            network.meeting.abort()
            raise

    on_all(ranks, call)
    return Moved(up=int(network.up.max()), down=network.down)


def row(way: str, density: float, lanes: int, values: int = VALUES) -> str:
    """Return a row: up / down over Ok-Topk's volume, for each number of workers."""
    cells = [cell(way, density, ranks, lanes, values) for ranks in RANKS]
    return f"| {way} | {density:.1%} | {lanes:,} | {' | '.join(cells)} |"


def cell(way: str, density: float, ranks: int, lanes: int, values: int = VALUES) -> str:
    """Return up / down over Ok-Topk's volume."""
    moved = modelled(way, density, lambda rank: drawn(rank, values), ranks, lanes)
    volume = ok_topk(round(density * values), ranks)
    return f"{moved.up / volume:.2f} / {moved.down / volume:.2f}"


def least_rows(density: float) -> Iterator[str]:
    """Return the rows of what ways need."""
    for name in least(density, 1):
        volumes = [(least(density, ranks)[name], ok_topk(1, ranks)) for ranks in RANKS]
        cells = [f"{up / volume:.2f} / {down / volume:.2f}" for (up, down), volume in volumes]
        yield f"| {name} | {density:.1%} | | {' | '.join(cells)} |"


def tables() -> Iterator[str]:
    """Return the lines for the page."""
    yield f"| up / down over Ok-Topk's | density | lanes | {' | '.join(f'{ranks} workers' for ranks in RANKS)} |"
    yield f"|{'---|' * (3 + len(RANKS))}"
    for density in DENSITIES:
        for way, lanes in product(WAYS, FRAMES):
            yield row(way, density, lanes)
        yield from least_rows(density)


def accumulated(kept: Callable[[int, int], Floats], workers: Sequence[int], lanes: int) -> Iterator[str]:
    """Return the lines of accumulators; `kept` returns one, by the number of workers and the rank."""
    ways = list(WAYS)[:4]
    yield f"| density | workers | union over k | at random | {' | '.join(ways)} |"
    yield f"|{'---|' * (4 + len(ways))}"
    for density, ranks in product(ACCUMULATED_DENSITIES, workers):
        arrays = [kept(ranks, rank) for rank in range(ranks)]
        k = count_of(density, arrays[0].size)
        union, random = union_over_k(arrays, k), (1 - (1 - density) ** ranks) / density
        cells = [modelled(way, density, arrays.__getitem__, ranks, lanes) for way in ways]
        over = " | ".join(f"{one.up / ok_topk(k, ranks):.2f} / {one.down / ok_topk(k, ranks):.2f}" for one in cells)
        yield f"| {density:.1%} | {ranks} | {union:.2f} | {random:.2f} | {over} |"


def main() -> None:
    """Print tables, and publish them."""
    parser = arguments(__doc__)
    parser.add_argument(
        "--accumulators", type=Path, metavar="FOLDER", help="what was kept of a training in place of drawn values"
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="the training's step that they are of")
    options = parser.parse_args()
    if options.accumulators is None:
        print_tables(tables(), BEGIN, END, publish=options.publish, page=PAGE.with_stem("sparse-topk"))
        return

    def kept(ranks: int, rank: int) -> Floats:
        array: Floats = np.load(path(ranks, ACCUMULATED_VALUES, rank, steps=options.steps, folder=options.accumulators))
        return array

    lines = accumulated(kept, RANKS[:2], FRAMES[1])
    print_tables(lines, ACCUMULATED_BEGIN, ACCUMULATED_END, publish=options.publish, page=PAGE.with_stem("sparse-topk"))


if __name__ == "__main__":
    main()
