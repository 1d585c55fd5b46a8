"""Every fuzz target runs, on its seeds and on a few thousand random bytes; `make fuzz` goes on from there."""

from __future__ import annotations

import random
import subprocess
import sys
from importlib import import_module

import pytest

from checks.fuzz.__main__ import TARGETS
from checks.fuzz.guard import PAGE, Guarded


@pytest.mark.timeout(300)  # kernels and native code may have to be compiled first
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "engines" else name for name in TARGETS]
)
def test_target_takes_seeds_and_noise(name: str) -> None:
    module = import_module(f"checks.fuzz.{name}")
    target = module.Target()
    dice = random.Random(name)
    inputs = list(module.seeds())
    inputs += [dice.randbytes(dice.randrange(200)) for _ in range(20)]
    for data in inputs:
        target.run(data)


def test_a_byte_behind_the_guard_ends_the_process() -> None:
    script = (
        "import ctypes; from checks.fuzz.guard import Guarded; g = Guarded(100); view = g.place(b'x' * 100);"
        "print(ctypes.string_at(view.ctypes.data, 100) == b'x' * 100, flush=True);"
        "ctypes.string_at(view.ctypes.data, 101)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n"
    assert done.returncode < 0


def test_what_is_placed_ends_at_the_page() -> None:
    view = Guarded(3 * PAGE).place(b"abc")
    assert (view.ctypes.data + 3) % PAGE == 0
