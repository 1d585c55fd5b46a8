"""What rounding at random is drawn from: the caller's seed, the rank and the operation, and nothing of the run."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from support.timing import patience
from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.network import Impairment, LinkConditions
from switchsum_host.connect import connect
from switchsum_protocol.errors import UsageError

WORKERS = 3
LOSS = Impairment(loss=0.05, duplication=0.05, reordering=0.05, reordering_s=1e-3)


def sums(
    config: ClusterConfig, dtype: str, lanes: str, *, links: LinkConditions | None = None, network: int = 0
) -> list[bytes]:
    """Return the bits of three allreduces, the same on all ranks."""
    cluster = Cluster(config, links=links, seed=network)
    found = []
    for step in range(3):
        random = np.random.default_rng(step)
        arrays = [random.standard_normal(40 * config.lanes_per_frame).astype(dtype) for _ in range(config.workers)]
        cluster.allreduce(arrays, lanes=lanes)
        assert len({array.tobytes() for array in arrays}) == 1
        found.append(arrays[0].tobytes())
    return found


@pytest.mark.parametrize("lanes", ["int16", "int8"])
@pytest.mark.parametrize("build", [4, 16])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_runs_of_a_program_get_the_same_bits(lanes: str, build: int, dtype: str) -> None:
    def config(**other: Any) -> ClusterConfig:
        return ClusterConfig(workers=WORKERS, lanes_per_frame=build, timeout_s=1e3, **other)

    first = sums(config(), dtype, lanes)
    for other in (config(job=8), config(job=300, epoch=9, first_number=77, first_slot=0), config(window_slots=3)):
        assert sums(other, dtype, lanes) == first
    assert sums(config(job=9), dtype, lanes, links=LinkConditions(up=LOSS, down=LOSS), network=5) == first
    assert sums(config(rounding_seed=1), dtype, lanes) != first
    assert sums(config(rounding_seed=1), dtype, lanes) == sums(config(rounding_seed=1, job=2), dtype, lanes)


def test_lanes_that_do_not_round_at_random_know_no_seed() -> None:
    one, other = (sums(ClusterConfig(rounding_seed=seed), "float32", "int32") for seed in (1, 2))
    assert one == other


def test_what_is_drawn_differs_between_ranks_and_from_one_operation_to_the_next() -> None:
    cluster = Cluster(ClusterConfig(workers=2, lanes_per_frame=64))
    value = np.float32(0.3)
    found = []
    for _ in range(2):
        arrays = [np.full(2048, value) for _ in range(2)]
        cluster.allreduce(arrays, lanes="int8")
        found.append(arrays[0])
    assert not np.array_equal(found[0], found[1])
    step = np.diff(np.unique(found[0])).min()
    # Ranks that drew the same would be off by 0 or 2 steps everywhere.
    assert len(np.unique(np.rint((found[0] - found[0].min()) / step))) == 3


@pytest.mark.parametrize("seed", [1.5, "7", True])
def test_a_seed_is_an_integer(seed: Any) -> None:
    with pytest.raises(UsageError, match="seed must be a whole number, not"):
        connect(controller="127.0.0.1:1", job="none", rank=0, world_size=2, link="shm:none", seed=seed)


def test_a_seed_in_the_environment_is_an_integer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHSUM_SEED", "many")
    with pytest.raises(UsageError, match="SWITCHSUM_SEED must be of type int, not 'many'"):
        connect(controller="127.0.0.1:1", job="none", rank=0, world_size=2, link="shm:none")


PROGRAM = """
import hashlib, numpy as np, switchsum
for seed in (None, 6):
    with switchsum.connect(seed=seed) as comm:
        values = np.random.default_rng(comm.rank).standard_normal(50_000).astype(np.float32)
        comm.allreduce(values, lanes="int8")
        print("bits", seed, hashlib.sha256(values).hexdigest(), flush=True)
"""


@pytest.mark.timeout(300)
def test_a_seed_is_given_on_the_command_line_or_in_the_program() -> None:
    options = ["-n", "2", "--lanes", "256", "--seed", "5"]  # the program's own goes first
    command = [sys.executable, "-m", "switchsum", "run", *options, "--", sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=patience(250))
    for own, seed in ((None, 5), (6, 6)):
        arrays = [np.random.default_rng(rank).standard_normal(50_000).astype(np.float32) for rank in range(2)]
        config = ClusterConfig(workers=2, lanes_per_frame=256, rounding_seed=seed)
        Cluster(config).allreduce(arrays, lanes="int8")
        assert re.findall(f"bits {own} (.*)", done.stdout) == 2 * [hashlib.sha256(arrays[0].tobytes()).hexdigest()]
