"""What the switch combines comes in any order: every operator gives the same bits in any order, and so does numpy."""

from __future__ import annotations

import numpy as np
import pytest

from switchsum_protocol.frame import LaneFormat, Operator
from switchsum_protocol.slot_rules import COMBINATIONS


@pytest.mark.parametrize("lane_format", LaneFormat, ids=lambda lane_format: lane_format.name)
@pytest.mark.parametrize("operator", Operator, ids=lambda operator: operator.name)
def test_an_operator_gives_the_same_in_any_order(operator: Operator, lane_format: LaneFormat) -> None:
    combine = COMBINATIONS[operator]
    one, two, three = np.frombuffer(np.random.default_rng(7).bytes(3 * 512), lane_format.dtype).reshape(3, -1)
    assert np.array_equal(combine(one, two), combine(two, one)), f"{operator.name}: the operator is not commutative"
    left, right = combine(combine(one, two), three), combine(one, combine(two, three))
    assert np.array_equal(left, right), f"{operator.name}: the operator is not associative"
