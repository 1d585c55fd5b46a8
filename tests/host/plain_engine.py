"""Jobs on the virtual network whose every frame and result bit is told: run natively and plainly, they say the same.

As a program: seeds of jobs on the command line, one JSON line for each on the standard output.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import ml_dtypes
import numpy as np

from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.network import Impairment, LinkConditions
from switchsum_host.engine.dtypes import DIGITS, most_values
from switchsum_host.engine.operation import BITWISE, Operation
from switchsum_protocol.errors import SwitchsumError
from switchsum_protocol.frame import Operator

FLOATS = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
OPERATORS = ["average", *(operator.name.lower() for operator in Operator)]
"""Of the aliases the average alone: another one says here which dtypes it takes (docs/operators.md)."""
INTEGERS = [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)]


def reported(seed: int) -> list[str]:
    """Run a job that a seed describes; return its frames, its results and its counters, in order, as text."""
    random = np.random.default_rng(seed)
    config = ClusterConfig(
        workers=int(random.integers(1, 5)),
        lanes_per_frame=int(random.choice([8, 9, 36])),
        window_slots=int(random.integers(1, 9)),
        first_number=int(random.choice([1, 0xFFFF_FFFD])),
        checksum=bool(random.integers(2)),
        reading_s=float(random.choice([0.0, 1e-4])),
    )
    chance = float(random.choice([0.0, 0.05, 0.2]))
    way = Impairment(loss=chance, duplication=chance, reordering=chance, jitter_s=1e-4, corruption=chance / 4)
    cluster = Cluster(config, links=LinkConditions(up=way, down=way), seed=seed)
    lines: list[str] = []
    send = cluster.network.send

    def note(port: int, frame: bytes) -> None:
        lines.append(f"{cluster.clock.now_s!r} {port} {frame.hex()}")
        send(port, frame)

    cluster.network.send = note  # type: ignore[method-assign]
    for _ in range(3):
        add(cluster, random, lines)
    lines += [str(worker.engine.counts.tolist()) for worker in cluster.workers]
    return lines


def add(cluster: Cluster, random: np.random.Generator, lines: list[str]) -> None:
    """Do one allreduce and tell its results."""
    is_exact = cluster.config.lanes_per_frame > DIGITS and bool(random.integers(2))
    is_float = is_exact or bool(random.integers(2))
    kinds = FLOATS if is_float else INTEGERS
    dtype = FLOATS[0] if is_exact else kinds[random.integers(len(kinds))]
    operator = str(random.choice([one for one in OPERATORS if one not in (BITWISE if is_float else ("average",))]))
    operator = "average" if is_exact else operator
    lanes = str(random.choice(["int32", "int16", "int8"])) if operator in ("sum", "average") and is_float else "int32"
    lanes = "int32" if is_exact else lanes
    size = int(random.integers(1, 1 + most_values(cluster.config.lanes_per_frame) if is_exact else 200))
    arrays = [_values(random, dtype, size) for _ in range(cluster.config.workers)]
    try:
        serials = []
        for worker, array in zip(cluster.workers, arrays, strict=True):
            operation = Operation.of(array, operator=operator, lanes=lanes, exact=is_exact)
            serials.append(worker.engine.submit(operation, array, cluster.clock.now_s))
        cluster.run(
            lambda: all(serial in worker.finished for serial, worker in zip(serials, cluster.workers, strict=True))
        )
    except SwitchsumError as error:
        lines.append(str(error))
    lines += [f"{dtype} {operator} {array.tobytes().hex()}" for array in arrays]


def _values(random: np.random.Generator, dtype: np.dtype[Any], size: int) -> Any:
    """Draw values of all sizes, zeros, and a few that are not finite."""
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            values = (random.standard_normal(size) * 10.0 ** random.integers(-44, 39, size)).astype(dtype)
        if random.random() < 0.2:
            values[random.integers(size)] = random.choice([np.nan, np.inf, -np.inf])
    else:
        limits = np.iinfo(dtype)
        share = int(random.choice([1, 4]))
        values = random.integers(limits.min // share, limits.max // share, size, dtype, endpoint=True)
    first, last = sorted(random.integers(0, size + 1, 2).tolist())
    values[first:last] = 0
    return values


if __name__ == "__main__":
    warnings.simplefilter("error")
    for argument in sys.argv[1:]:
        sys.stdout.write(json.dumps(reported(int(argument))) + "\n")
