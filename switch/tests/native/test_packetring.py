"""Receive rings, step by step; tests/host/test_transport_packet.py has them with the kernel's frames."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from switchsum_switch.wires import packetring
from switchsum_switch.wires.packetring import HEAD, RING_FIELDS, SLOTS

FREE = 0
SUPER = 1 << 0 | 1 << 1 | 20_000 << 32
"""Status of a slot whose frame waits in the socket: TP_STATUS_USER, TP_STATUS_COPY, and its length."""
PIECES = 7


@pytest.mark.parametrize("looks", range(5))
def test_a_slot_may_be_filled_at_any_look(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at twice, its super-frame was taken for a frame that is not all there, and its message stayed for ever."""
    for name in ("_give_back", "_is_free_to_step", "_is_super", "_step", "_length"):
        monkeypatch.setattr(packetring, name, getattr(packetring, name).py_func)
    seen = itertools.chain([FREE] * looks, itertools.repeat(SUPER))
    monkeypatch.setattr(packetring, "load_acquire", lambda _address: next(seen))
    monkeypatch.setattr(packetring, "_take_pieces", lambda *_: PIECES)
    ring, rows, lengths = np.zeros(RING_FIELDS, np.int64), np.zeros(128, np.int32), np.zeros(128, np.int32)
    ring[SLOTS] = 4
    take = packetring.take.py_func  # type: ignore[attr-defined]
    taken = [take(ring, rows, lengths) for _ in range(looks + 1)]
    assert taken == [0] * looks + [PIECES]
    assert ring[HEAD] == 0
