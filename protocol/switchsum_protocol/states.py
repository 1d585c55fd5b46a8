"""The states of jobs, members and switches, as a controller names them to everybody who asks.

They travel as text (`rpc.JobInfo.state`, `rpc.MemberInfo.state`, `rpc.SwitchInfo.state`), and a member of these
enumerations equals its text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class MemberState(StrEnum):
    """The state of a rank of an incarnation."""

    EXPECTED = "expected"
    """No member holds the rank."""
    JOINED = "joined"
    """A member holds it; its address is not known yet."""
    SEEN = "seen"
    """The switch has seen its hello, so that its address and port are known."""
    ADMITTED = "admitted"
    """The switch has its entries."""
    LEFT = "left"
    """It has left after it was admitted."""
    LOST = "lost"
    """It was admitted, and has been silent for too long."""


HOLDING: Final = (MemberState.JOINED, MemberState.SEEN, MemberState.ADMITTED)
"""States of a rank that a member holds, so that nobody else may have it."""
GONE: Final = (MemberState.LEFT, MemberState.LOST)
"""States of a rank whose member does not come back."""


class JobState(StrEnum):
    """The state of a job, which is that of its incarnation."""

    WAITING = "waiting"
    """The members are joining."""
    RUNNING = "running"
    """All members are admitted."""
    DRAINING = "draining"
    """Some members have left or are lost; the switch still serves the others."""
    OVER = "over"


LIVE: Final = (JobState.RUNNING, JobState.DRAINING)
"""States of a job whose members add."""
STALLED: Final = "stalled"
"""Stands for the state of a job that needs a switch which is away."""


class SwitchPresence(StrEnum):
    """What a controller knows of a switch."""

    AWAY = "away"
    """It does not answer."""
    SETTLED = "settled"
    """It has what it should have."""
    UNSETTLED = "unsettled"
    """It answers, and does not have all of that yet."""
