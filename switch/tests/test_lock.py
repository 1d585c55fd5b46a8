"""The lock that the data plane keeps until somebody else wants it."""

from __future__ import annotations

import threading

from support.timing import patience
from switchsum_switch.state.lock import StateLock


def test_who_wants_it_has_the_holder_make_way() -> None:
    lock, asked, order = StateLock(), threading.Event(), []
    lock.make_way = asked.set

    def want() -> None:
        with lock:
            order.append("writer")

    with lock:
        writer = threading.Thread(target=want)
        writer.start()
        assert asked.wait(patience(10))
        assert lock.is_wanted
        order.append("holder")
    writer.join(patience(10))
    assert order == ["holder", "writer"]
    assert not lock.is_wanted


def test_its_holder_may_take_it_again() -> None:
    lock = StateLock()
    with lock, lock:
        assert not lock.is_wanted
