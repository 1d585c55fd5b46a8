"""What a call sends and receives on a quiet machine: a busy one makes repeats, and answers to these."""

from __future__ import annotations

from dataclasses import fields

from switchsum import Statistics
from switchsum_protocol.frame import FRAME_BYTES


def without_repeats(before: Statistics, after: Statistics) -> tuple[float, float]:
    """Return the bytes that a rank has sent and received between two moments, less those of repeats.

    A repeat counts as long as the mean frame that was sent, and an answer to one as the mean answer.  Answers that say
    that the switch waits for others have no lanes.
    """
    count = {one.name: getattr(after, one.name) - getattr(before, one.name) for one in fields(after)}
    answers = count["frames_received"] - count["held"]
    sent = count["bytes_sent"] * (1 - count["repeats"] / max(1, count["frames_sent"]))
    received = (count["bytes_received"] - count["held"] * FRAME_BYTES) * count["rounds"] / max(1, answers)
    return sent, received
