"""What `switchsum.<TAB>` and a communicator at a prompt show."""

from __future__ import annotations

import pytest

import switchsum
from switchsum.testing.local import communicators


def test_names_that_are_imported_late_are_listed() -> None:
    assert set(switchsum.__all__) <= set(dir(switchsum))


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
