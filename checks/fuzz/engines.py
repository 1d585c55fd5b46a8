"""Random programs in native code beside the interpreter, whose packets are cloned, resubmitted and recirculated.

An input is the seed of a generator: there is nothing between its bytes and the program that a fuzzer could learn.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from support.random_lives import compare_engines


class Target:
    """Compiles a program for each input."""

    def run(self, data: bytes) -> None:
        """Run a program's frames through both engines and compare what comes out and what stays in registers."""
        compare_engines(np.random.default_rng([len(data), *data]))


def seeds() -> Iterator[bytes]:
    """Return some inputs; what follows is as good."""
    for number in range(4):
        yield bytes([number])
