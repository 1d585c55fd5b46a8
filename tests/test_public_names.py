"""What `switchsum.<TAB>` and a communicator at a prompt show."""

from __future__ import annotations

import subprocess
import sys

import pytest

import switchsum
from switchsum.testing.local import communicators


def test_names_that_are_imported_late_are_listed() -> None:
    assert set(switchsum.__all__) <= set(dir(switchsum))


def test_the_name_alone_imports_nothing() -> None:
    """An interrupt while the command line is started would be a traceback until `__main__` runs."""
    code = "import sys; before = set(sys.modules); import switchsum; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"__future__", "switchsum", "switchsum.moved"}


def test_every_public_name_is_there() -> None:
    assert all(getattr(switchsum, name).__name__ == name for name in switchsum.__all__)
    with pytest.raises(AttributeError, match="no attribute 'allreduce'"):
        _ = switchsum.allreduce


def test_a_communicator_says_what_it_is() -> None:
    first, _ = communicators(2)
    assert repr(first) == "<Communicator rank 0 of 2, 256 lanes, open>"
    first.close()
    assert repr(first).endswith("closed>")


def test_a_tensor_is_refused_with_what_to_pass() -> None:
    stand_in = type("Tensor", (), {"__module__": "torch"})()
    first, _ = communicators(2)
    with pytest.raises(switchsum.UsageError, match=r"not Tensor: pass tensor.numpy\(\)"):
        first.allreduce(stand_in)
