"""What an allreduce needs beside the array."""

from __future__ import annotations

import re
import sys

from .conftest import Run

SIZE = 10_000_000
CODE = f"""
import resource, numpy as np, switchsum
used = lambda: 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = used()
with switchsum.connect() as comm:
    comm.allreduce(np.ones(100_000, np.float32))
    joined = used()
    array = np.ones({SIZE}, np.float32)
    comm.allreduce(array)
    assert array[0] == array[-1] == 2
    print("grown", used() - joined - array.nbytes, "joined", joined - start)
"""


def test_memory_beside_an_array_is_a_fraction_of_it(run: Run) -> None:
    done = run("-n", "2", "--lanes", "2048", command=[sys.executable, "-c", CODE])
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"grown (-?\d+) joined (\d+)", done.stdout)
    assert len(found) == 2
    for grown, _ in found:
        assert int(grown) < 0.1 * 4 * SIZE, done.stdout
