"""Shared slots over two levels: the fault that design-decisions.md names, and that its two rules mend it."""

from __future__ import annotations

from checks.verify.two_levels import Rule, search


def test_a_leafs_sum_that_meets_one_of_its_contributions_is_refused_and_the_leaf_gives_up_its_slot() -> None:
    found = {rule: search(rule)[1:] for rule in Rule}
    assert found[Rule.ADD][0] > 0, "a double addition"
    assert found[Rule.DROP][0] == 0
    assert found[Rule.DROP][1] > 0, "a dead end"
    assert found[Rule.GIVE_UP] == (0, 0)
