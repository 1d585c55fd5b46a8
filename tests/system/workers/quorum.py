"""Adds with a quorum, and then waits for all; prints a digest of all sums.

The end is when the file STOP is there, or after OPERATIONS.  The last rank takes SLOWNESS times as long for a step.

A file SIGSTOP-3 or SIGKILL-1 beside STOP has that rank send itself this signal between two operations.  A rank that
stops within one is waited for, and a rank that dies within one is lost to the others (`docs/slow-ranks.md`).
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path

import numpy as np

import switchsum
from switchsum_host.api.missed import QuorumSum
from switchsum_protocol.agreement_rpc import MOST_KEPT, Terms

STOP, OPERATIONS = os.environ.get("STOP"), int(os.environ.get("OPERATIONS", "0"))
TERMS = Terms(quorum=0.75, patience_s=0.05, keep=MOST_KEPT)

with switchsum.connect() as communicator:
    quorums, digest, heard, absences = communicator.quorums, hashlib.sha256(), [0], [0]
    step_s = 0.1 * (float(os.environ.get("SLOWNESS", "1")) if communicator.rank == communicator.world_size - 1 else 1)

    def note(result: QuorumSum) -> None:
        """Check a sum, and that none was left out."""
        heard.append(result.number)
        assert heard[-1] == heard[-2] + 1, heard
        assert (result.array == sum(1 << rank for rank in result.ranks)).all(), result.ranks
        digest.update(repr((result.number, result.ranks)).encode() + result.array.tobytes())
        absences[0] += result.count < communicator.world_size

    def is_last() -> bool:
        """Whether all that is left is to wait for all."""
        return Path(STOP).exists() if STOP else heard[-1] >= OPERATIONS

    def obey(stop: str) -> None:
        """Stop or die here, where this rank takes part in no operation, if the test asks for it."""
        for asked in (signal.SIGSTOP, signal.SIGKILL):
            wish = Path(stop).with_name(f"{asked.name}-{communicator.rank}")
            if wish.exists():
                wish.unlink()
                os.kill(os.getpid(), asked)

    while True:
        time.sleep(step_s)
        if STOP:
            obey(STOP)
        agreed = quorums.agree(TERMS, is_whole=is_last())
        for missed in quorums.take_missed():
            note(missed)
        if agreed.is_whole:
            break
        array = np.full(3000, 1 << communicator.rank, np.int64)
        agreed.communicator.allreduce(array)
        quorums.finish(agreed, array, TERMS.keep)
        note(QuorumSum(array=array, number=agreed.number, ranks=agreed.ranks))
    print(digest.hexdigest(), heard[-1], absences[0], "right sums", flush=True)
