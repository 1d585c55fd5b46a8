"""How exact sums are: `python -m checks.bench.accuracy` prints tables, `--publish` writes them to a page.

Every rank's values are packed by the workers' own kernels, the lanes are added as the switch adds them, and the sum is
unpacked by the workers' kernels.  Beside it stands the ring that gloo runs, whose partial sums are rounded to the dtype
at every rank.  Two errors of each sum are told, both beside the exact one (float64) of the very same inputs: the
relative L2 error, and the largest error of any value over the root mean square of the exact sum.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from checks.bench import gradients
from switchsum_host.compress import block_scaled, packed, small_blocks
from switchsum_host.engine import dtypes, each, kernels, narrow
from switchsum_host.engine.operation import EACH
from switchsum_protocol import lane_scales
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import FRAME_BYTES, LANE_BYTES
from switchsum_switch.kernels.loading import address_of

Array = npt.NDArray[Any]

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "results" / "accuracy.md"
BEGIN, END = "<!-- errors: python -m checks.bench.accuracy --publish -->", "<!-- end of errors -->"
RANKS: Final = (2, 4, 8, 16, 32, 64)
FRAME_LANES: Final = 256
"""32-bit lanes in a frame of MTU 1,500: one exponent for 256 values in lanes of 32 bits, for 512 of 16 and 8 bits."""
LARGE_FRAME_LANES: Final = 2048
"""Of an MTU of 9,000 and of shared memory: eight times as many values share an exponent."""
FRAMES: Final = (FRAME_LANES, LARGE_FRAME_LANES)
VALUES: Final = 65_536
DTYPES: Final = {
    "float32": (dtypes.FLOAT32, np.dtype(np.float32)),
    "float16": (dtypes.FLOAT16, np.dtype(np.float16)),
    "bfloat16": (dtypes.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
}
VALUE_BITS: Final = {"int32": 32, "int16": 16, "int8": 8}
INPUTS: Final = {
    "normal": "normal values, each rank's its own",
    "heavy": "heavy tails: Student's t with 3 degrees of freedom, each rank's its own",
    "mixed": "layers of different size in one block: normal, times 1, 0.1 or 0.01 in runs of 100 values",
}
APART: Final = "apart"
"""Another input: a small layer beside a large one in each block, of which errors within the small one are told."""
CLEARLY: Final = 1.5
"""So many times smaller an error of the ring's is said to be."""
WORDS: Final = {
    "Packed(4)": packed.Layout(per_word=4, block=32),
    "Packed(3)": packed.Layout(per_word=3, block=32),
    "Packed(2)": packed.Layout(per_word=2, block=32),
}
"""Several values to a 32-bit word, 32 of them to a scale."""
BLOCKS: Final = {"int8": 64, "int16": 32}
"""Lanes of `BlockScaled`, and how many values have a scale there."""
LARGE: Final = {"Heavy tails": "heavy", "Layers of different size": "mixed"}
"""Inputs that the page also has in large frames, where more values share an exponent."""
SMALL: Final = (
    "A layer beside one a million times larger: normal values times 1e-3 and 1e3, in runs of 100.\n"
    "This is the L2 of float32 within the smaller layer:"
)
SEED: Final = 7
"""Of what compressors draw."""
GRADIENTS: Final = "gpt"
"""Raw ones of a small model's sixth step (`checks.bench.gradients`): needs PyTorch, and is asked for by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """How far a sum is from the exact one."""

    relative: float
    """L2 norm of the error over that of the exact sum."""
    worst: float
    """The largest error over the root mean square of the exact sum."""

    @classmethod
    def of(cls, found: Array, exact: npt.NDArray[np.float64]) -> Error:
        """Compare a sum with the exact one."""
        off = found.astype(np.float64) - exact
        size = float(np.sqrt(np.mean(exact**2)))
        return cls(relative=float(np.sqrt(np.mean(off**2))) / size, worst=float(np.abs(off).max()) / size)


def draw(kind: str, ranks: int, dtype: np.dtype[Any], values: int = VALUES) -> list[Array]:
    """Return every rank's values."""
    if kind == GRADIENTS:
        gradients.record_raw(ranks, values)
        return [np.load(gradients.path(ranks, values, rank)).astype(dtype) for rank in range(ranks)]
    made = []
    for rank in range(ranks):
        random = np.random.default_rng([ranks, rank])
        drawn = random.standard_t(3, values) if kind == "heavy" else random.standard_normal(values)
        if kind == "mixed":
            drawn *= 10.0 ** -(np.arange(values) // 100 % 3)
        if kind == APART:
            drawn *= np.where(is_small(values), 1e-3, 1e3)
        made.append(drawn.astype(dtype))
    return made


def is_small(values: int = VALUES) -> npt.NDArray[np.bool_]:
    """Return which values of `APART` are of the small layer."""
    small: npt.NDArray[np.bool_] = np.arange(values) // 100 % 2 == 1
    return small


def exact_sum(arrays: Sequence[Array]) -> npt.NDArray[np.float64]:
    """Return the sum in float64, of which nothing that matters here is lost."""
    total: npt.NDArray[np.float64] = np.sum([array.astype(np.float64) for array in arrays], axis=0)
    return total


def through_lanes(dtype: str, lanes: str, arrays: Sequence[Array], frame_lanes: int = FRAME_LANES) -> Array:
    """Return the sum as workers and switch make it."""
    code, kind = DTYPES[dtype]
    bits, ranks = VALUE_BITS[lanes], len(arrays)
    lane_bits = max(bits, lane_scales.NARROW_SUM_BITS)
    full = lane_scales.full_scale(ranks, bits)
    size, per_block = len(arrays[0]), frame_lanes * 32 // lane_bits
    result = np.zeros(size, kind)
    for block, start in enumerate(range(0, size, per_block)):
        count = min(per_block, size - start)
        sources = [address_of(array[start:]) for array in arrays]
        exponent = max(0, *(kernels.scan(code, source, count) for source in sources))
        scale, total = full * 2.0 ** (126 - max(exponent, 1)), np.zeros(per_block, np.int64)
        frame = np.zeros(per_block, f">i{lane_bits // 8}")
        for rank, source in enumerate(sources):
            at = address_of(frame)
            if bits == lane_scales.WIDE_BITS:
                kernels.pack(code, source, count, at, frame_lanes, scale)
            else:
                seed = int(np.random.default_rng([rank, block]).integers(1 << 32))
                narrow.pack_narrow(
                    code, 16, 16, source, count, at, frame_lanes, scale, seed
                )  # as the switch widens them
            total += frame
        frame[:] = total
        target, step = address_of(result[start:]), lane_scales.step(exponent, ranks, bits)
        if bits == lane_scales.WIDE_BITS:
            kernels.unpack(code, address_of(frame), count, target, step)
        else:
            narrow.unpack_narrow(code, address_of(frame), count, target, step)
    return result


def by_own_exponents(arrays: Sequence[Array]) -> Array:
    """Return the sum in lanes of values that have an exponent each."""
    words = [array.astype(np.float32).view(np.uint32) for array in arrays]
    exponents = np.empty((len(words), words[0].size), np.uint8)
    for own, row in zip(words, exponents, strict=True):
        each.find_exponents(own, row)
    largest = exponents.max(axis=0)
    for own in words:
        each.narrow(own, largest)
    total = np.add.reduce([own.view(np.int32) for own in words], dtype=np.int32).view(np.uint32)
    each.widen(total, largest, 1.0)
    result: Array = total.view(np.float32).astype(arrays[0].dtype)
    return result


def agreed(arrays: Sequence[Array], block: int, blocks: int, shift: int) -> small_blocks.Scales:
    """Return the scales that ranks agree on."""
    tops = [small_blocks.magnitudes(one, block, blocks, shift) for one in arrays]
    return small_blocks.scales_of(np.max(tops, axis=0), shift)


def in_words(layout: packed.Layout, arrays: Sequence[Array]) -> Array:
    """Return the sum of float32 as `Packed` makes it; raises UsageError where words leave too few bits."""
    ranks, size = len(arrays), len(arrays[0])
    scales = agreed(arrays, layout.block, layout.blocks(size), small_blocks.FINE)
    steps, found = layout.steps(ranks), np.empty(size, np.float32)
    turns = [small_blocks.turn_of(rank, ranks) for rank in range(ranks)]
    words = [layout.pack(one, scales, steps, SEED, turn) for one, turn in zip(arrays, turns, strict=True)]
    layout.unpack(np.sum(words, axis=0, dtype=np.int32), small_blocks.units_of(scales, steps), found)
    return found


def in_blocks(lanes: str, arrays: Sequence[Array], block: int = 0) -> Array:
    """Return the sum of float32 as `BlockScaled` makes it."""
    ranks, size, block = len(arrays), len(arrays[0]), block or BLOCKS[lanes]
    scales = agreed(arrays, block, -(-size // block), small_blocks.COARSE)
    steps = lane_scales.full_scale(ranks, VALUE_BITS[lanes])
    turns = [small_blocks.turn_of(rank, ranks) for rank in range(ranks)]
    parts = [
        block_scaled.quotients_of(one, block, scales, steps, SEED, turn)
        for one, turn in zip(arrays, turns, strict=True)
    ]
    found = np.empty(size, np.float32)
    block_scaled.multiply(through_lanes("float32", lanes, parts), block, small_blocks.units_of(scales, 1), found)
    return found


def bytes_in_blocks(lanes: str, block: int, frame_lanes: int = FRAME_LANES) -> tuple[float, float]:
    """Return the bytes of a value up and down, frames' headers included."""
    scale = (1 + FRAME_BYTES / (LANE_BYTES * frame_lanes)) / block
    header = FRAME_BYTES / (LANE_BYTES // 2 * frame_lanes)
    return VALUE_BITS[lanes] / 8 + header + scale, 2 + header + scale


def bytes_in_words(layout: packed.Layout, frame_lanes: int = FRAME_LANES) -> float:
    """Return the bytes of a value, each way, frames' headers included."""
    return (LANE_BYTES / layout.per_word + 2 / layout.block) * (1 + FRAME_BYTES / (LANE_BYTES * frame_lanes))


def finer_row(kind: str, ranks: int) -> str:
    """Return the L2 errors of float32 in ways that take less than 32 bits a value."""
    arrays = draw(kind, ranks, np.dtype(np.float32))
    exact = exact_sum(arrays)

    def cell(make: Callable[[], Array]) -> str:
        try:
            return f"{Error.of(make(), exact).relative:.1e}"
        except UsageError:
            return ""

    lanes = [cell(functools.partial(through_lanes, "float32", lanes, arrays)) for lanes in ("int8", "int16")]
    words = [cell(functools.partial(in_words, layout, arrays)) for layout in WORDS.values()]
    blocks = [cell(functools.partial(in_blocks, lanes, arrays)) for lanes in BLOCKS]
    return f"| {kind} | {ranks} | {' | '.join((*words, *blocks, *lanes))} |"


def finer_table(ranks: Sequence[int] = RANKS) -> Iterator[str]:
    """Yield the lines of the table of ways that take less than 32 bits a value."""
    header = FRAME_BYTES / (LANE_BYTES // 2 * FRAME_LANES)
    named = [f"{name}, {bytes_in_words(layout):.2f} B" for name, layout in WORDS.items()]
    for lanes, block in BLOCKS.items():
        up, down = bytes_in_blocks(lanes, block)
        named.append(f"BlockScaled({lanes!r}, {block}), {up:.2f} B" + (f" up, {down:.2f} down" if up < down else ""))
    ways = [*named, f"int8, {1 + header:.2f} B up, {2 + header:.2f} down", f"int16, {2 + header:.2f} B"]
    yield f"| values | ranks | {' | '.join(ways)} |"
    yield "|---" * (2 + len(ways)) + "|"
    for kind in INPUTS:
        yield from (finer_row(kind, count) for count in ranks)


def around_a_ring(arrays: Sequence[Array]) -> Array:
    """Return the sum as gloo's ring makes it: each part begins at a rank of its own and is rounded at every next one.

    The same bits as torch 2.13's gloo, where the ranks divide the values.
    """
    ranks = len(arrays)
    bounds = np.linspace(0, len(arrays[0]), ranks + 1).astype(int)
    result = np.empty_like(arrays[0])
    for part, (start, end) in enumerate(itertools.pairwise(bounds)):
        total = arrays[part - 1][start:end]
        for hop in range(1, ranks):
            # Adding two halves in numpy is adding them as float32 and rounding, as gloo does.
            total = arrays[(part - 1 - hop) % ranks][start:end] + total
        result[start:end] = total
    return result


def errors(kind: str, dtype: str, ranks: int, frame_lanes: int = FRAME_LANES) -> dict[str, Error]:
    """Return the errors of each lane format, and of the ring."""
    arrays = draw(kind, ranks, DTYPES[dtype][1])
    exact = exact_sum(arrays)
    found = {lanes: Error.of(through_lanes(dtype, lanes, arrays, frame_lanes), exact) for lanes in VALUE_BITS}
    found[EACH] = Error.of(by_own_exponents(arrays), exact)
    return {**found, "ring": Error.of(around_a_ring(arrays), exact)}


@functools.cache
def off_by(lanes: str, workers: int, frame_lanes: int) -> str:
    """Say how far sums of normal float32 are off in narrow lanes, for tables of how fast these are."""
    return f"sum off by {errors('normal', 'float32', workers, frame_lanes)[lanes].relative:.1e}"


NAMED: Final[dict[str, Callable[[Sequence[Array]], Array]]] = {
    "int10": functools.partial(in_words, WORDS["Packed(3)"]),
    "int8": functools.partial(in_blocks, "int8"),
    "int16:32": functools.partial(in_blocks, "int16"),
}
"""Names of `switchsum.torch.compress` that are not lanes alone."""


@functools.cache
def compressed_off_by(name: str, workers: int) -> str:
    """Say the same of a name of `switchsum.torch.compress`."""
    arrays = draw("normal", workers, np.dtype(np.float32))
    return f"sum off by {Error.of(NAMED[name](arrays), exact_sum(arrays)).relative:.1e}"


def beside_speed(name: str, conditions: str) -> str:
    """Say it of a record, by its name and conditions, in brackets; nothing of lanes of 32 bits."""
    lanes = re.search(r"(?:(\d+)-|\.)(int16|int8|int10|int16:32)$", name)
    workers, frame = re.search(r"(\d+) worker", conditions), re.search(r"(\d+) lanes", conditions)
    if lanes and workers and name.startswith("train.") and lanes[2] in NAMED:
        return f" ({compressed_off_by(lanes[2], int(workers[1]))})"
    build = (lanes and lanes[1]) or (frame and frame[1])
    if lanes is None or workers is None or not build:
        return ""
    return f" ({off_by(lanes[2], int(workers[1]), int(build))})"


def row(kind: str, dtype: str, ranks: int, frame_lanes: int = FRAME_LANES) -> str:
    """Return one row of a table."""
    found = errors(kind, dtype, ranks, frame_lanes)
    cells = [f"{error:.1e}" for one in found.values() for error in (one.relative, one.worst)]
    return f"| {dtype} | {ranks} | {' | '.join(cells)} |"


def table(
    kind: str,
    dtypes: Sequence[str] = tuple(DTYPES),
    ranks: Sequence[int] = RANKS,
    frame_lanes: int = FRAME_LANES,
) -> Iterator[str]:
    """Yield the lines of one table."""
    ways = (*(f"{lanes} lanes" for lanes in (*VALUE_BITS, EACH)), "ring")
    yield f"| dtype | ranks | {' | '.join(f'{way}: L2 | worst' for way in ways)} |"
    yield "|---" * (2 + 2 * len(ways)) + "|"
    for dtype in dtypes:
        yield from (row(kind, dtype, count, frame_lanes) for count in ranks)


def within_small(ranks: int, frame_lanes: int) -> tuple[float, float, float]:
    """Return the L2 errors of float32 within the small layer: int32 lanes, lanes of each value, and the ring."""
    arrays = draw(APART, ranks, np.dtype(np.float32))
    exact, small = exact_sum(arrays), is_small()
    sums = through_lanes("float32", "int32", arrays, frame_lanes), by_own_exponents(arrays), around_a_ring(arrays)
    ours, own, ring = (Error.of(found[small], exact[small]).relative for found in sums)
    return ours, own, ring


def small_table(ranks: Sequence[int] = RANKS) -> Iterator[str]:
    """Yield the lines of the table of errors within a small layer."""
    yield f"| ranks | {' | '.join(f'int32, frames of {lanes:,} lanes' for lanes in FRAMES)} | {EACH} | ring |"
    yield "|---" * (3 + len(FRAMES)) + "|"
    for count in ranks:
        found = [within_small(count, lanes) for lanes in FRAMES]
        ways = *(ours for ours, _, _ in found), *found[0][1:]
        yield f"| {count} | {' | '.join(f'{way:.1e}' for way in ways)} |"


def where_the_ring_is_ahead(ranks: Sequence[int] = RANKS) -> list[tuple[str, int, int, float]]:
    """Return the inputs, frames and ranks where a ring's float32 are clearly better than int32 lanes', and how much."""
    ahead = []
    for kind, frame_lanes, count in itertools.product(INPUTS, FRAMES, ranks):
        found = errors(kind, "float32", count, frame_lanes)
        times = found["int32"].relative / found["ring"].relative
        if times > CLEARLY:
            ahead.append((kind, frame_lanes, count, times))
    return ahead


def publish() -> None:
    """Write the tables to the page."""
    text = PAGE.read_text()
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    parts = [f"{title[0].upper()}{title[1:]}:\n\n" + "\n".join(table(kind)) for kind, title in INPUTS.items()]
    for name, kind in LARGE.items():
        large = "\n".join(table(kind, ["float32", "bfloat16"], frame_lanes=LARGE_FRAME_LANES))
        parts.append(f"{name} again, in frames of {LARGE_FRAME_LANES:,} lanes, have these errors:\n\n{large}")
    small = "\n".join(small_table())
    parts.append(f"{SMALL}\n\n{small}")
    finer = "\n".join(finer_table())
    parts.append(
        f"With less than 32 bits a value, the L2 of float32 is this, beside the bytes of a value each way:\n\n{finer}"
    )
    PAGE.write_text(text[:before] + "\n\n" + "\n\n".join(parts) + "\n\n" + text[after:])
    from checks.bench import ages  # which reads records, and they read this module

    ages.written(PAGE, BEGIN)


def main() -> None:
    """Print the tables, or write them to the page."""
    parser = argparse.ArgumentParser(prog="python -m checks.bench.accuracy", description=__doc__)
    parser.add_argument("--inputs", choices=(*INPUTS, GRADIENTS), help="only these; gpt: gradients of a small GPT")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=tuple(DTYPES))
    parser.add_argument("--ranks", nargs="+", type=int, default=RANKS)
    parser.add_argument("--lanes", type=int, default=FRAME_LANES, help="32-bit lanes in a frame")
    parser.add_argument("--finer", action="store_true", help="only what takes less than 32 bits a value")
    parser.add_argument("--publish", action="store_true", help="write all tables to docs/results/accuracy.md")
    options = parser.parse_args()
    if options.publish:
        publish()
        return
    if options.finer:
        sys.stdout.write("\n".join((*finer_table(options.ranks), "")))
        return
    for kind, title in {**INPUTS, GRADIENTS: "gradients of a small GPT"}.items():
        if kind == options.inputs or (options.inputs is None and kind in INPUTS):
            sys.stdout.write("\n".join([title, "", *table(kind, options.dtypes, options.ranks, options.lanes), "", ""]))


if __name__ == "__main__":
    main()
