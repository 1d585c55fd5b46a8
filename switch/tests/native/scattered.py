"""Loads kernels where a process has only single pages left that lie far apart; the tests run it as a script."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np

from switchsum_host.engine import dtypes, exact
from switchsum_switch.kernels.loading import address_of

PAGE = mmap.PAGESIZE
FAR = 3 << 30
"""Further than an instruction reaches by 32 bits."""
HOLES = 32
PROT_NONE, MAP_NORESERVE = 0, 0x4000
NO_MEMORY = ctypes.c_void_p(-1).value

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def reserve(size: int) -> int:
    """Take a range of addresses, without memory; the kernel gives the highest that is free and large enough."""
    address = libc.mmap(None, size, PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if address in (None, NO_MEMORY):
        sys.exit("no addresses")
    return int(address)


def main() -> None:
    values = np.ones(4, np.float32)
    frame, sums = np.zeros(4 * dtypes.DIGITS + 1, np.uint32), np.zeros(4, np.float32)
    exact.pack_exact(address_of(values), 4, address_of(frame), frame.size)
    holes = [reserve(FAR + PAGE) + FAR for _ in range(HOLES)]
    while reserve(PAGE) > min(holes):  # no other gap is left
        pass
    for hole in holes:
        libc.munmap(hole, PAGE)
    exact.unpack_exact(address_of(frame), 4, address_of(sums), 1.0)
    sys.stdout.write(f"{sums.tolist()}\n")


if __name__ == "__main__":
    main()
