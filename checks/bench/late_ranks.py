"""What a late rank costs with a quorum and without: `switchsum run -n 4 -- python -m checks.bench.late_ranks`.

Every rank trains the same small network on digits of its own, and a step takes as long as a larger one would.  The last
rank takes twice as long.  Three ways come in turns: all wait for it, all go on with a quorum, and the others train in a
job without it.  At the end the last rank stops for ten seconds.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

import switchsum
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.errors import WorkerLost

Values = npt.NDArray[np.float32]

WAYS = "all wait", "quorum", "without it"
QUORUM, PATIENCE_S = 0.75, 0.01
BATCH, HIDDEN, RATE = 32, 32, 0.8 / 128
STOP_S = 10.0


@dataclass
class Training:
    """A network of one hidden layer, the digits of one rank, and what it has learned from how many samples."""

    rank: int
    size: int
    seed: int
    samples: int = 0
    weights: Values = field(init=False)

    def __post_init__(self) -> None:
        data = load_digits()
        self._all, self._labels = (data.data / 16).astype(np.float32), data.target
        self._mine = np.arange(self.rank, len(self._labels), self.size)
        self._random = np.random.default_rng([self.seed, self.rank])
        first = np.random.default_rng(self.seed)
        self.weights = (0.1 * first.standard_normal(65 * HIDDEN + (HIDDEN + 1) * 10)).astype(np.float32)

    def _parts(self, flat: Values) -> tuple[Values, Values]:
        return flat[: 65 * HIDDEN].reshape(65, HIDDEN), flat[65 * HIDDEN :].reshape(HIDDEN + 1, 10)

    def _forward(self, chosen: npt.NDArray[np.int64]) -> tuple[Values, Values, Values]:
        one = np.ones((len(chosen), 1), np.float32)
        inner, outer = self._parts(self.weights)
        values = np.hstack([self._all[chosen], one])
        hidden = np.hstack([np.maximum(values @ inner, 0), one])
        scores = hidden @ outer
        shares = np.exp(scores - scores.max(1, keepdims=True))
        return values, hidden, shares / shares.sum(1, keepdims=True)

    def gradient(self) -> Values:
        """Return the sum of the gradients of a batch, and at its end how many samples that were."""
        chosen = self._random.choice(self._mine, BATCH)
        values, hidden, shares = self._forward(chosen)
        shares[np.arange(BATCH), self._labels[chosen]] -= 1
        back = (shares @ self._parts(self.weights)[1][:-1].T) * (hidden[:, :-1] > 0)
        return np.concatenate([(values.T @ back).ravel(), (hidden.T @ shares).ravel(), [BATCH]]).astype(np.float32)

    def apply(self, total: Values) -> None:
        """Take a step in proportion to the samples in a sum."""
        self.samples += round(float(total[-1]))
        self.weights -= RATE * total[:-1]

    def loss(self) -> float:
        """Return the loss over all digits of all ranks."""
        shares = self._forward(np.arange(len(self._labels)))[2]
        return float(-np.log(shares[np.arange(len(self._labels)), self._labels] + 1e-9).mean())


@dataclass(frozen=True)
class Run:
    """One training of one way, as a rank saw it."""

    step_s: float
    loss: float


def train(one: Training, comm: switchsum.Communicator, step_s: float, samples: int, *, quorum: bool) -> Run:
    """Train until a number of samples was added; return seconds a step, over those of all ranks."""
    began, steps, is_over = time.monotonic(), 0, False
    while one.samples < samples and not is_over:
        due = time.monotonic() + step_s
        total = one.gradient()
        time.sleep(max(0.0, due - time.monotonic()))
        if quorum:
            result = comm.allreduce(total, quorum=QUORUM, patience_s=PATIENCE_S)
            is_over = result.count == 0  # the others have enough
            sums = [missed.array for missed in result.missed] + [total] * (not is_over)
        else:
            sums = [comm.allreduce(total)]
        for each in sums:
            one.apply(each)
        steps += len(sums)
    took = time.monotonic() - began
    if quorum and not is_over:
        for missed in comm.quorums.end():
            one.apply(missed.array)
    return Run(took / steps, one.loss())


def stop(seconds: float) -> None:
    """Stop this process for a while, as nothing within it could."""
    subprocess.Popen(["sh", "-c", f"sleep {seconds}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


def go_on_without(comm: switchsum.Communicator, step_s: float) -> tuple[int, float]:
    """Take steps while the last rank is stopped; return how many, and the seconds that they took beyond usual ones."""
    took = []
    end = time.monotonic() + STOP_S
    while time.monotonic() < end:
        began = time.monotonic()
        time.sleep(step_s)
        comm.allreduce(np.ones(1000, np.float32), quorum=QUORUM, patience_s=PATIENCE_S)
        took.append(time.monotonic() - began)
    return len(took), sum(took) - len(took) * statistics.median(took)


def main() -> None:
    """Take turns, and have rank 0 print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--step", type=float, default=0.1, help="seconds that a step takes on a rank that is not late")
    parser.add_argument("--samples", type=int, default=4096, help="samples of a training")
    options = parser.parse_args()
    comm = switchsum.connect()
    last = comm.world_size - 1
    is_late = comm.rank == last
    address, job = os.environ["SWITCHSUM_CONTROLLER"], os.environ["SWITCHSUM_JOB"]
    if comm.rank == 0:
        with ControllerClient(address) as client:
            client.create_job(rpc.CreateJobRequest(job="without-it", workers=last, slots=64))
    comm.barrier()
    others = None if is_late else switchsum.connect(job="without-it", world_size=last)
    step_s = options.step * (2 if is_late else 1)
    if is_late:
        time.sleep(1.0)
    comm.allreduce(np.ones(1, np.float32), quorum=QUORUM, patience_s=PATIENCE_S)
    if not is_late:  # the set has joined its own job, once
        comm.quorums.end()
    joined_s = comm.quorums.joined_s
    runs: dict[str, list[Run]] = {way: [] for way in WAYS}
    for turn in range(options.turns):
        for way in WAYS:
            comm.barrier()
            if way == "without it" and is_late:
                continue
            group = others if way == "without it" else comm
            assert group is not None
            one = Training(rank=group.rank, size=group.world_size, seed=turn)
            runs[way].append(train(one, group, step_s, options.samples, quorum=way == "quorum"))
    comm.barrier()
    with ControllerClient(address) as client:
        waits = client.show_job(rpc.JobRequest(job=job)).waits
    comm.barrier()
    if is_late:
        stop(STOP_S)
        with suppress(WorkerLost):  # it lacks more results than are kept
            comm.allreduce(np.ones(1000, np.float32), quorum=QUORUM, patience_s=PATIENCE_S)
        return
    steps, beyond_s = go_on_without(comm, step_s)
    if comm.rank == 0:
        with ControllerClient(address) as client:
            waits = client.show_job(rpc.JobRequest(job=job)).waits - waits
        report(runs, joined_s, steps, beyond_s, waits)


def report(runs: dict[str, list[Run]], joined_s: float, steps: int, beyond_s: float, waits: int) -> None:
    """Print what was measured."""
    usual = statistics.median(run.step_s for run in runs["without it"])
    print(f"load {os.getloadavg()[0]:.1f}")
    for way, of_way in runs.items():
        times = sorted(1e3 * run.step_s for run in of_way)
        losses = [run.loss for run in of_way]
        print(
            f"{way:11}: {statistics.median(times):6.1f} ms a step ({times[0]:.1f} to {times[-1]:.1f}), "
            f"{statistics.median(times) / usual / 1e3:.3f} times without it; "
            f"loss {statistics.mean(losses):.4f} +- {statistics.stdev(losses) if losses[1:] else 0:.4f}"
        )
    print(f"the set has joined its job once, in {1e3 * joined_s:.0f} ms")
    print(
        f"a rank stopped for {STOP_S:g} s: the others took {steps} steps, waited for it {waits} times, "
        f"and lost {1e3 * beyond_s:.0f} ms in all"
    )


if __name__ == "__main__":
    main()
