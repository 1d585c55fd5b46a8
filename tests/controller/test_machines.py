from __future__ import annotations

import itertools

import pytest

from switchsum_controller.jobs.machines import (
    INCARNATION_TRANSITIONS,
    MEMBER_TRANSITIONS,
    Incarnation,
    IncarnationEvent,
    JobMember,
    MemberEvent,
)
from switchsum_protocol.errors import ProtocolError
from switchsum_protocol.states import JobState, MemberState

# What each event may meet, said once more in words of its own: from-states for every (event, to-state).
MEMBER_STORY = {
    MemberEvent.JOIN: {"expected": "joined"},
    MemberEvent.HELLO: {"joined": "seen", "seen": "seen", "admitted": "admitted", "lost": "lost"},
    MemberEvent.HEARTBEAT: {"joined": "joined", "seen": "seen", "admitted": "admitted", "lost": "lost"},
    MemberEvent.ADMIT: {"seen": "admitted"},
    MemberEvent.LEAVE: {"joined": "expected", "seen": "expected", "admitted": "left", "lost": "lost"},
    MemberEvent.SILENCE: {"joined": "expected", "seen": "expected", "admitted": "lost"},
    MemberEvent.RESTART: {"seen": "joined"},
}
INCARNATION_STORY = {
    IncarnationEvent.ADMIT: {"waiting": "running"},
    IncarnationEvent.GONE: {"running": "draining", "draining": "draining"},
    IncarnationEvent.LAST_GONE: {"running": "over", "draining": "over"},
    IncarnationEvent.ABANDON: {"waiting": "over", "running": "over", "draining": "over"},
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(MemberState, MemberEvent)))
def test_every_event_in_every_state_of_a_member(state: MemberState, event: MemberEvent) -> None:
    member = JobMember(rank=0, state=state)
    if state in MEMBER_STORY[event]:
        member.step(event)
        assert member.state == MEMBER_STORY[event][state]
    else:
        with pytest.raises(ProtocolError, match=f"{event} cannot happen to what is {state}"):
            member.step(event)
        assert member.state is state


@pytest.mark.parametrize(("state", "event"), list(itertools.product(JobState, IncarnationEvent)))
def test_every_event_in_every_state_of_an_incarnation(state: JobState, event: IncarnationEvent) -> None:
    incarnation = Incarnation(epoch=1, members=[], state=state)
    if state in INCARNATION_STORY[event]:
        incarnation.step(event)
        assert incarnation.state == INCARNATION_STORY[event][state]
    else:
        with pytest.raises(ProtocolError):
            incarnation.step(event)
        assert incarnation.state is state


def test_every_state_can_be_reached_and_what_is_over_stays_over() -> None:
    assert {MemberState.EXPECTED, *MEMBER_TRANSITIONS.values()} == set(MemberState)
    assert {JobState.WAITING, *INCARNATION_TRANSITIONS.values()} == set(JobState)
    assert not [state for state, _ in INCARNATION_TRANSITIONS if state is JobState.OVER]
