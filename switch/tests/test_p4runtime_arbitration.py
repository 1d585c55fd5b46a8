from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest

from switchsum_switch.messages.p4runtime import Code
from switchsum_switch.p4runtime.arbitration import LONGEST_ROLE, MOST_ROLES, Arbitration, Bid, Notification
from switchsum_switch.p4runtime.refusal import Refused

DEVICE = 7
Told = dict[str, tuple[int | None, Code]]


def bid(election_id: int | None, role: str = "", device_id: int = DEVICE) -> Bid:
    return Bid(device_id=device_id, role=role, election_id=election_id)


def reported(notifications: list[Notification[str]]) -> Told:
    assert len({notification.stream for notification in notifications}) == len(notifications)
    return {notification.stream: (notification.highest, notification.code) for notification in notifications}


def test_highest_election_id_is_primary_and_everybody_hears_of_a_new_one() -> None:
    arbitration: Arbitration[str] = Arbitration(DEVICE)
    assert reported(arbitration.update("a", bid(5))) == {"a": (5, Code.OK)}
    assert reported(arbitration.update("b", bid(3))) == {"b": (5, Code.ALREADY_EXISTS)}
    assert reported(arbitration.update("c", bid(9))) == {
        "a": (9, Code.ALREADY_EXISTS),
        "b": (9, Code.ALREADY_EXISTS),
        "c": (9, Code.OK),
    }
    assert arbitration.primaries() == ["c"]


def test_new_primary_is_told_last() -> None:
    arbitration: Arbitration[str] = Arbitration(DEVICE)
    for index, name in enumerate("abc"):
        notifications = arbitration.update(name, bid(index))
        assert notifications[-1].stream == name


def test_nobody_follows_a_lost_primary_without_a_bid_of_its_own() -> None:
    arbitration: Arbitration[str] = Arbitration(DEVICE)
    arbitration.update("a", bid(5))
    arbitration.update("b", bid(3))
    assert reported(arbitration.leave("a")) == {"b": (5, Code.NOT_FOUND)}
    assert arbitration.primaries() == []
    assert reported(arbitration.update("b", bid(4))) == {"b": (5, Code.NOT_FOUND)}
    assert reported(arbitration.update("b", bid(5))) == {"b": (5, Code.OK)}


def test_primary_may_step_down() -> None:
    arbitration: Arbitration[str] = Arbitration(DEVICE)
    arbitration.update("a", bid(5))
    arbitration.update("b", bid(3))
    assert reported(arbitration.update("a", bid(4))) == {"a": (5, Code.NOT_FOUND), "b": (5, Code.NOT_FOUND)}
    assert reported(arbitration.update("a", bid(None))) == {"a": (5, Code.NOT_FOUND)}
    assert reported(arbitration.update("b", bid(6))) == {"a": (6, Code.ALREADY_EXISTS), "b": (6, Code.OK)}


def test_client_without_election_id_never_becomes_primary() -> None:
    arbitration: Arbitration[str] = Arbitration(DEVICE)
    assert reported(arbitration.update("a", bid(None))) == {"a": (None, Code.NOT_FOUND)}
    assert reported(arbitration.update("b", bid(None))) == {"b": (None, Code.NOT_FOUND)}
    assert reported(arbitration.update("c", bid(0))) == {
        "a": (0, Code.ALREADY_EXISTS),
        "b": (0, Code.ALREADY_EXISTS),
        "c": (0, Code.OK),
    }


def test_roles_are_apart() -> None:
    arbitration: Arbitration[str] = Arbitration(DEVICE)
    arbitration.update("a", bid(5))
    assert reported(arbitration.update("b", bid(5, role="tables"))) == {"b": (5, Code.OK)}
    assert sorted(arbitration.primaries()) == ["a", "b"]
    assert reported(arbitration.leave("a")) == {}
    arbitration.require_primary(DEVICE, "tables", 5)
    with pytest.raises(Refused) as refused:
        arbitration.require_primary(DEVICE, "", 5)
    assert refused.value.code is Code.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ((DEVICE + 1, "", 5), Code.NOT_FOUND),
        ((DEVICE, "unheard of", 5), Code.NOT_FOUND),
        ((DEVICE, "", 4), Code.PERMISSION_DENIED),
        ((DEVICE, "", 6), Code.PERMISSION_DENIED),
        ((DEVICE, "", None), Code.PERMISSION_DENIED),
    ],
)
def test_writes_of_others_are_refused(request_: tuple[int, str, int | None], code: Code) -> None:
    arbitration: Arbitration[str] = Arbitration(DEVICE)
    arbitration.update("a", bid(5))
    arbitration.update("b", bid(4))
    arbitration.require_primary(DEVICE, "", 5)
    with pytest.raises(Refused) as refused:
        arbitration.require_primary(*request_)
    assert refused.value.code is code


# What one stream can do: every bid that another state could judge differently, and leaving.
MOVES = [bid(None), bid(1), bid(2), bid(3), bid(2, role="r"), bid(2, device_id=DEVICE + 1), None]
STREAMS = ("a", "b")


@dataclass
class Rules:
    """The specification's rules (section 5.3) told over again, with nothing kept but what each client said last."""

    live: dict[str, Bid] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)
    primary: dict[str, str] = field(default_factory=dict)

    def judge(self, stream: str, move: Bid) -> Code:
        """Return the code with which the stream is to end, or OK."""
        mine = self.live.get(stream)
        if move.device_id != DEVICE:
            return Code.FAILED_PRECONDITION if mine else Code.NOT_FOUND
        if mine and mine.role != move.role:
            return Code.FAILED_PRECONDITION
        rivals = [other for name, other in self.live.items() if name != stream and other.role == move.role]
        taken = move.election_id is not None and any(other.election_id == move.election_id for other in rivals)
        return Code.INVALID_ARGUMENT if taken else Code.OK

    def accept(self, stream: str, move: Bid) -> set[str]:
        """Take a bid in and return who is to hear of it."""
        self.live[stream] = move
        wins = move.election_id is not None and move.election_id >= self.highest.get(move.role, 0)
        steps_down = not wins and self.primary.get(move.role) == stream
        if wins:
            assert move.election_id is not None
            self.highest[move.role] = move.election_id
            self.primary[move.role] = stream
        elif steps_down:
            del self.primary[move.role]
        return self.members(move.role) if wins or steps_down else {stream}

    def leave(self, stream: str) -> set[str]:
        """Take a stream out and return who is to hear of it."""
        gone = self.live.pop(stream, None)
        if gone is None or self.primary.get(gone.role) != stream:
            return set()
        del self.primary[gone.role]
        return self.members(gone.role)

    def members(self, role: str) -> set[str]:
        return {name for name, other in self.live.items() if other.role == role}

    def notice(self, stream: str) -> tuple[int | None, Code]:
        """Return what a live stream is to hear."""
        role = self.live[stream].role
        if role not in self.primary:
            return self.highest.get(role), Code.NOT_FOUND
        return self.highest[role], Code.OK if self.primary[role] == stream else Code.ALREADY_EXISTS


def step(arbitration: Arbitration[str], rules: Rules, stream: str, move: Bid | None) -> None:
    if move is None:
        expected = rules.leave(stream)
        notifications = arbitration.leave(stream)
    elif (code := rules.judge(stream, move)) is not Code.OK:
        with pytest.raises(Refused) as refused:
            arbitration.update(stream, move)
        assert refused.value.code is code
        expected = rules.leave(stream)
        notifications = arbitration.leave(stream)
    else:
        expected = rules.accept(stream, move)
        notifications = arbitration.update(stream, move)
    assert reported(notifications) == {name: rules.notice(name) for name in expected}
    assert set(arbitration.primaries()) == set(rules.primary.values())
    assert all(arbitration.is_primary(name) == (name in rules.primary.values()) for name in STREAMS)


def test_every_sequence_of_four_moves_of_two_streams() -> None:
    moves = list(itertools.product(STREAMS, MOVES))
    for sequence in itertools.product(moves, repeat=4):
        arbitration: Arbitration[str] = Arbitration(DEVICE)
        rules = Rules()
        for stream, move in sequence:
            step(arbitration, rules, stream, move)


def test_roles_are_bounded_in_number_and_length() -> None:
    arbitration: Arbitration[str] = Arbitration(DEVICE)
    with pytest.raises(Refused, match="257"):
        arbitration.update("a", bid(1, role="r" * (LONGEST_ROLE + 1)))
    for number in range(1, MOST_ROLES):  # the default role is there
        arbitration.update("a", bid(number, role=f"{number}"))
        arbitration.leave("a")
    with pytest.raises(Refused, match="there have been 1024 roles"):
        arbitration.update("a", bid(1, role="another"))
    arbitration.update("a", bid(1, role="1"))
    assert arbitration.is_primary("a")
