"""The program of a rank: steps of a training, with the fault that FAULT names."""

from __future__ import annotations

import os
import time

import numpy as np

import switchsum

CULPRIT = 2


def main() -> None:  # noqa: PLR0912 - a branch for each fault
    """Add arrays until SECS have passed on rank 0."""
    fault, size, until_s = os.environ.get("FAULT", ""), int(os.environ["SIZE"]), float(os.environ["SECS"])
    with switchsum.connect() as comm:
        gradients, small = np.ones(size, np.float32), np.ones(1000, np.float32)
        began, step, is_culprit = time.monotonic(), 0, comm.rank == CULPRIT
        while True:
            passed = np.array([time.monotonic() - began if comm.rank == 0 else 0], np.float32)
            comm.allreduce(passed)
            if passed[0] > until_s:
                break
            step += 1
            time.sleep(0.01)
            if fault == "late5" and is_culprit:
                time.sleep(0.005)
            if fault == "gc" and is_culprit and step % 25 == 0:
                time.sleep(0.5)
            if fault == "gcall" and (step + 7 * comm.rank) % 25 == 0:
                time.sleep(0.5)
            if fault == "compile" and is_culprit and step == 50:
                time.sleep(25)
            if fault == "computeall":
                time.sleep(0.1)
            if fault == "exit" and is_culprit and step == 50:
                os._exit(7)
            if fault == "dtype" and is_culprit and step == 50:
                comm.allreduce(gradients.astype(np.int32))
            if fault == "size" and is_culprit and step == 50:
                comm.allreduce(np.ones(size + 300, np.float32))
            if fault == "bucket":
                for bucket in range(4):
                    if is_culprit and bucket == 2:
                        time.sleep(0.015)
                    comm.allreduce(small if bucket == 3 else gradients[: size // 4])
                continue
            comm.allreduce(gradients, op="average")


if __name__ == "__main__":
    main()
