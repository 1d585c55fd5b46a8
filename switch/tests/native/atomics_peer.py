"""Kernels that wait for or talk to another process through memory; run as a script, it is that other process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.atomics import fence, load_acquire, store_release
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.wires.shared_memory import SharedMemory

Bytes = npt.NDArray[np.uint8]

MANY = 1 << 35
LONG_S = 50 * float(os.environ.get("SWITCHSUM_TEST_SLOWNESS", "1"))
ROUNDS = 20_000
LINE = 64
RECORD = 4096
SIZE = RECORD + ROUNDS


@kernel
def reaches(word: int, number: int) -> bool:
    """Spin until a word has at least this value; False when the other process seems to have died.

    There is no call here: it would keep even a plain load from being hoisted out of the loop.
    """
    for _ in range(MANY):  # noqa: SIM110  (numba has no generator expressions)
        if load_acquire(word) >= number:
            return True
    return False


@kernel
def store(word: int, value: int) -> None:
    store_release(word, value)


@kernel
def hand_over(base: int, rounds: int) -> bool:
    """Write a block of words, then its number, and wait until the other side has read it."""
    for number in range(1, rounds):
        for k in range(8):
            store_release(base + 2 * LINE + 8 * k, number * 8 + k)
        store_release(base, number)
        if not reaches(base + LINE, number):
            return False
    return True


@kernel
def take_over(base: int, rounds: int) -> int:
    """Read each block once its number is there; return how many words were not those of the number."""
    wrong = 0
    for number in range(1, rounds):
        if not reaches(base, number):
            return -1
        for k in range(8):
            wrong += load_acquire(base + 2 * LINE + 8 * k) != number * 8 + k
        store_release(base + LINE, number)
    return wrong


@kernel
def meet(base: int, me: int, seen: Bytes) -> bool:
    """Round by round, say that we are here and look whether the other is: Dekker's entry, started together."""
    mine, others = base + me * LINE, base + (1 - me) * LINE
    for number in range(1, len(seen)):
        store_release(mine + 2 * LINE, number)
        if not reaches(others + 2 * LINE, number):
            return False
        store_release(mine, number)
        fence()
        seen[number] = load_acquire(others) >= number
    return True


class Peer:
    """A second process on the same `SIZE` bytes, which plays the other part of `scene`."""

    def __init__(self, scene: str) -> None:
        self._descriptor = os.memfd_create("test", os.MFD_CLOEXEC)
        os.ftruncate(self._descriptor, SIZE)
        self._shared = SharedMemory(self._descriptor, SIZE, writable=True)
        self.memory = self._shared.bytes
        self.address = self._shared.address
        self._command = [sys.executable, __file__, scene, str(self._descriptor)]

    def __enter__(self) -> Self:
        compiled(self.address)
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, pass_fds=[self._descriptor])
        assert self._process.stdout is not None
        self.output: IO[str] = self._process.stdout
        assert self.output.readline() == "ready\n"
        return self

    def __exit__(self, *_: Any) -> None:
        try:
            assert self._process.wait(LONG_S) == 0
        finally:
            self._process.kill()
            self._process.wait()
            self.output.close()
            del self.memory
            self._shared.close()


def compiled(base: int) -> None:
    """Have all kernels compiled, or loaded, before anybody waits for the other process: that may take long."""
    store(base, 0)
    assert reaches(base, 0)
    assert hand_over(base, 1)
    assert take_over(base, 1) == 0
    assert meet(base, 0, np.zeros(1, np.uint8))


def main(scene: str, descriptor: int) -> None:
    shared = SharedMemory(descriptor, SIZE, writable=True)
    base = shared.address
    compiled(base)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if scene == "spin":
        done = reaches(base, 7)
    elif scene == "hand over":
        done = hand_over(base, ROUNDS)
    else:
        done = meet(base, 1, shared.bytes[RECORD:])
    sys.exit(not done)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
