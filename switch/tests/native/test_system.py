"""Kernels that read the clock, ring bells and sleep."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.process.system import READY, Watched, monotonic, poll, ring_bell, silence_bell, watch

LONG_NS = 30_000_000_000


@kernel
def now() -> float:
    return monotonic()


@kernel
def sleep(watched: Watched, address: int, timeout_ns: int) -> int:
    return poll(address, len(watched), timeout_ns)


@kernel
def ring(descriptor: int) -> None:
    ring_bell(descriptor)


@kernel
def silence(descriptor: int) -> None:
    silence_bell(descriptor)


@pytest.fixture
def bell() -> Iterator[int]:
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def test_the_clock_is_that_of_python() -> None:
    before = time.monotonic()
    between = now()
    assert before - 1e-6 <= between <= time.monotonic() + 1e-6


def test_a_bell_that_was_rung_is_seen_until_it_is_silenced(bell: int) -> None:
    watched = watch([bell])
    ring(bell)
    ring(bell)
    assert sleep(watched, watched.ctypes.data, LONG_NS) == 1
    assert watched[0, 1] & READY
    silence(bell)
    assert sleep(watched, watched.ctypes.data, 0) == 0
    assert not watched[0, 1] & READY


def test_silencing_a_silent_bell_does_not_wait(bell: int) -> None:
    silence(bell)


def test_a_sleeper_is_woken_by_another_thread(bell: int) -> None:
    watched = watch([-1, bell])
    thread = threading.Timer(0.05, ring, [bell])
    thread.start()
    assert sleep(watched, watched.ctypes.data, LONG_NS) == 1
    assert watched[:, 1].tolist()[0] & READY == 0
    assert watched[1, 1] & READY
    thread.join()


def test_a_peer_that_hangs_up_is_seen() -> None:
    reading, writing = os.pipe()
    watched = watch([reading])
    os.close(writing)
    assert sleep(watched, watched.ctypes.data, LONG_NS) == 1
    assert watched[0, 1] & READY
    os.close(reading)


def test_sleep_ends_when_the_time_is_over(bell: int) -> None:
    watched, before = watch([bell]), time.monotonic()
    assert sleep(watched, watched.ctypes.data, 20_000_000) == 0
    assert time.monotonic() - before >= 0.02
