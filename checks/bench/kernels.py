"""The hot loops beside a plain copy of as many bytes, in one process: ratios that hold on busy machines, too."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from checks.bench.contributions import WORKERS, Contributions
from checks.bench.records import Record, Samples, record
from switchsum.testing.embedded import Embedded
from switchsum.testing.rig import Rig
from switchsum_host.compress import block_scaled, packed, small_blocks
from switchsum_host.engine import dtypes, kernels
from switchsum_protocol import lane_scales
from switchsum_switch.kernels.atomics import copy_bytes
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import call
from switchsum_switch.queues.batch import Output

VALUES = 256
BLOCKS = 64
"""A working set that stays in the first caches: what is compared is work, not memory."""
SLOTS = 8
REPEATS = 20_000
RUNS = 25
LIMITS = {
    "kernels.scan": 4.0,
    "kernels.pack": 4.0,
    "kernels.unpack": 4.0,
    "kernels.switch": 110.0,
    "kernels.int10-pack": 42.0,
    "kernels.int10-unpack": 36.0,
    "kernels.int8-magnitudes": 5.0,
    "kernels.int8-divide": 28.0,
    "kernels.int8-multiply": 8.0,
}
"""How many times as long as the copy a kernel may take before `--small` fails.

That is three times what an Intel Xeon (model 85, 2.5 GHz) takes.  Another processor copies faster: the kernels took 1.2
to 1.8 times as many copies there.
"""


_FLOATS = np.random.default_rng(1).standard_normal(BLOCKS * VALUES).astype(np.float32)
_WORDS = np.zeros(BLOCKS * VALUES, np.uint32)


@kernel
def _copies(source: int, target: int, repeats: int) -> None:
    for repeat in range(repeats):
        offset = repeat % BLOCKS * VALUES * 4
        copy_bytes(target + offset, source + offset, VALUES * 4)


@kernel
def _scans(code: int, source: int, repeats: int) -> int:
    total = 0
    for repeat in range(repeats):
        total += call(code, dtypes.FLOAT32, source + repeat % BLOCKS * VALUES * 4, VALUES)
    return total


@kernel
def _packs(code: int, source: int, target: int, scale: float, repeats: int) -> None:
    for repeat in range(repeats):
        offset = repeat % BLOCKS * VALUES * 4
        call(code, dtypes.FLOAT32, source + offset, VALUES, target + offset, VALUES, scale)


@kernel
def _unpacks(code: int, source: int, target: int, step: float, repeats: int) -> None:
    for repeat in range(repeats):
        offset = repeat % BLOCKS * VALUES * 4
        call(code, dtypes.FLOAT32, source + offset, VALUES, target + offset, step)


def loops() -> dict[str, Callable[[], object]]:
    """Return what is timed, by name; each touches `REPEATS * VALUES` values."""
    source, target = address_of(_FLOATS), address_of(_WORDS)
    scale, step = lane_scales.full_scale(4, 32) * 2.0 ** (126 - 130), lane_scales.step(130, 4, 32)
    scan, pack, unpack = kernels.scan.address, kernels.pack.address, kernels.unpack.address
    return {
        "copy": lambda: _copies(source, target, REPEATS),
        "scan": lambda: _scans(scan, source, REPEATS),
        "pack": lambda: _packs(pack, source, target, scale, REPEATS),
        "unpack": lambda: _unpacks(unpack, target, source, step, REPEATS),
        "switch": _switch(),
        **_compressors(),
    }


def _compressors() -> dict[str, Callable[[], object]]:
    """Return the loops of compressors, each over so many values at a call that the call is nothing beside them."""
    given = np.tile(_FLOATS, 16)
    layout, size, turns = packed.Layout(per_word=3, block=32), given.size, REPEATS // BLOCKS // 16
    tops = small_blocks.magnitudes(given, 32, layout.blocks(size), small_blocks.FINE)
    scales, steps = small_blocks.scales_of(tops, small_blocks.FINE), layout.steps(4)
    factors, units = small_blocks.factors_of(steps, scales), small_blocks.units_of(scales, steps)
    values, words, bits = np.zeros_like(given), layout.pack(given, scales, steps, 1, 0), given.view(np.uint32)
    of_64 = np.full(size // 64, 127 << lane_scales.FRACTION_BITS, np.float32) / np.abs(given).max()

    def repeated(loop: Callable[[], object]) -> Callable[[], object]:
        return lambda: [loop() for _ in range(turns)] and None

    return {
        "int10-pack": repeated(
            lambda: packed.pack_words(given, 32, factors, steps, layout.base, 1, 0, words),
        ),
        "int10-unpack": repeated(lambda: layout.unpack(words, units, values)),
        "int8-magnitudes": repeated(lambda: small_blocks.find_tops(bits, 64, small_blocks.COARSE, tops)),
        "int8-divide": repeated(lambda: block_scaled.divide(given, 64, of_64, 127, 1, 0, values)),
        "int8-multiply": repeated(lambda: block_scaled.multiply(given, 64, of_64, values)),
    }


def _switch() -> Callable[[], object]:
    """Return a batch of contributions through the program, as many values as the other loops."""
    switch = Embedded(VALUES, "native")
    frames = Contributions(Rig(switch, workers=WORKERS, lanes_per_frame=VALUES), slots=SLOTS)
    ports = np.resize(np.arange(1, WORKERS + 1, dtype=np.uint32), frames.count)
    lengths = np.full(frames.count, frames.frame_bytes, np.uint32)
    addresses, numbers, output = frames.addresses, np.zeros(SLOTS, np.uint32), Output()

    def run() -> None:
        for _ in range(REPEATS // frames.count):
            numbers[:] += 1
            frames.set_numbers(numbers)
            switch.pipeline.process_batch(addresses, lengths, ports, frames.count, output, 0)

    return run


def times() -> dict[str, float]:
    """Return how many times as long as the copy each loop takes, of the processor's time, at best."""
    best: dict[str, float] = {}
    timed = loops()
    for _ in range(RUNS):
        for name, loop in timed.items():
            began = time.process_time()
            loop()
            best[name] = min(best.get(name, np.inf), time.process_time() - began)
    return {name: seconds / best["copy"] for name, seconds in best.items()}


def run() -> list[Record]:
    """Measure; ratios only."""
    conditions = f"blocks of {VALUES} float32 in cache, processor time, best of {RUNS}, a plain copy is 1"
    return [
        record(f"kernels.{name}", Samples(values=[ratio]), "copies", conditions)
        for name, ratio in times().items()
        if name != "copy"
    ]
