"""The rules that are played, by name; rows have the numbers of `protocol.slot_rules` and of p4src/slot.p4."""

from __future__ import annotations

from typing import Final

from switchsum_protocol.frame import Reason

RULES: Final = {
    "row 3": "a number older than the cell's is dropped, without an answer",
    "row 4": "any number opens a round in a cell that was never used",
    "row 5": "a newer number opens a round, in which nothing of the last one is left",
    "row 6": "the first contribution of a member is combined with those before it, and the member counts",
    "row 7": "a contribution without lanes counts, and the lanes stay as they are",
    "row 8": "a sum that overflows its lane wraps and sets the overflow flag of the round",
    "row 9": "another tag is not combined, but the member counts, and the round gets the mismatch flag",
    "row 10": "a repeat in an open round is answered by HELD, to its sender alone",
    "row 11": "a repeat in a complete round is answered by the stored result, to its sender alone",
    "row 12": "the contribution that completes a round gives every member the result",
    "cells": "each slot has two cells, which the lowest bit of the number chooses; cells do not touch each other",
    "numbers": "numbers are compared as serial numbers of 32 bits",
    "next": "a result names the smallest next block, with the largest exponent that was named for it",
    "lanes": "every operator combines every lane format lane by lane",
    "widened": "a payload of 8 bits for each lane of 16 is widened before it is combined",
    "mark": "a congestion mark of one contribution is in the result for everybody",
    "select": "a selection says which members get the lanes of the result",
    "flags": "a worker's flags other than payload, mark, recall and select do not count",
    "order": "contributions that come at the same time, in any order, give one right result each",
    "not_admitted": "a contribution of another job, tree, rank, epoch or address is rejected, and changes nothing",
    "cookie": "a contribution with another cookie is dropped without an answer, and changes nothing",
    "slot": "a contribution to a slot that is not the job's is rejected",
    "operator": "a contribution with an operator that does not exist is rejected",
    "format": "a contribution with a lane format that does not exist is rejected",
    "padding": "where frames may grow by little, a contribution that is too short to become the result is rejected",
    "length": "a frame whose lengths do not agree is dropped without an answer",
    "version": "a frame of another wire version is dropped without an answer",
    "kind": "a kind of frame that a member may not send is dropped without an answer",
    "checksum": "a frame with a wrong checksum is dropped, and one with a right UDP checksum is taken",
}
"""Each rule in one sentence."""

ROWS: Final = {
    Reason.STALE: "row 3",
    Reason.CONTRIBUTED: "row 6",
    Reason.OVERFLOW: "row 8",
    Reason.MISMATCH: "row 9",
    Reason.HELD: "row 10",
    Reason.REPEATED: "row 11",
}
"""The row that a switch follows when it counts a frame under a reason."""


def rule_of(reason: Reason) -> str:
    """Return the rule that a switch follows when it counts a frame under a reason."""
    name = reason.name.lower()
    return ROWS.get(reason, name if name in RULES else "length")
