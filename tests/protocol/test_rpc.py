"""Messages between hosts and controller: both ways, and what is not one."""

from __future__ import annotations

import json

import pytest

from switchsum_protocol import errors, member_rpc, reports, rpc, rpc_codec, wire
from switchsum_switch.messages import codec

EXAMPLES = [
    member_rpc.JoinRequest(job="digits", rank=0, world_size=4),
    member_rpc.JoinReply(
        nonce=1 << 63,
        job_number=1,
        epoch=2,
        cookie=(1 << 64) - 1,
        lanes_per_frame=256,
        growth_bytes=None,
        switch_mac=1,
        switch_ip=2,
        timeout_s=3,
    ),
    member_rpc.ReadyReply(admitted=False, hello_seen=True, missing=[1, 2]),
    rpc.JobList(
        jobs=[
            rpc.JobInfo(
                job="a",
                number=1,
                epoch=1,
                state="running",
                workers=1,
                first_slot=0,
                slot_count=8,
                members=[rpc.MemberInfo(rank=0, state="admitted")],
            )
        ]
    ),
    reports.WorkerReport(job="a", nonce=1, waiting_s=2.5),
    rpc.WorkerList(workers=[rpc.WorkerInfo(rank=0), rpc.WorkerInfo(rank=1, age_s=0, host="h", repeats=1 << 40)]),
    member_rpc.Empty(),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_survives(message: object) -> None:
    assert codec.decode(type(message), codec.encode(message)) == message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"job": "a"}',
        b'{"job": 1, "rank": 0, "world_size": 1}',
        b'{"job": "a", "rank": true, "world_size": 1}',
        b'{"job": "a", "rank": 0, "world_size": 1, "colour": "red"}',
        b"[" * 100_000,
        b'{"job": "a", "rank": 0, "world_size": 1, "rates": [NaN]}',
        b'{"job": "a", "rank": 0, "world_size": 1, "rates": [1e400]}',
        b'{"job": "a", "rank": 0, "world_size": 1, "rates": [1' + b"0" * 400 + b"]}",
        b'{"job": "a", "rank": ' + b"9" * 5000 + b', "world_size": 1}',
        b'{"job": "\\ud800", "rank": 0, "world_size": 1}',
    ],
)
def test_what_is_no_message_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- the text depends on what is wrong
        codec.decode(member_rpc.JoinRequest, data)


def test_a_refusal_of_a_message_is_short_and_can_be_sent() -> None:
    for wrong in ({"rank": "x" * 10**6}, {"rank": "\ud800"}, {"\ud800": 1}, {"x" * 10**6: 1}, {"job": "\ud800" * 5000}):
        with pytest.raises(ValueError, match="JoinRequest") as caught:
            codec.decode(member_rpc.JoinRequest, json.dumps({"job": "a", "world_size": 1, **wrong}).encode())
        assert len(str(caught.value).encode()) < 200


def test_every_method_has_messages_that_can_be_decoded() -> None:
    for request, reply in rpc.METHODS.values():
        for kind in (request, reply):
            with pytest.raises(ValueError, match=kind.__name__):
                codec.decode(kind, json.dumps({"no such field": 1}).encode())


def test_an_error_comes_back_as_itself() -> None:
    error = rpc_codec.error_from_details(rpc_codec.details_of(errors.RankTaken("rank 1 of digits is taken")))
    assert type(error) is errors.RankTaken
    assert str(error) == "rank 1 of digits is taken"


@pytest.mark.parametrize("details", ["", "KeyError: x", "Sequence: x", "WorkerLost: gone", "no colon"])
def test_details_that_are_no_error_become_a_remote_error(details: str) -> None:
    assert isinstance(rpc_codec.error_from_details(details), errors.RemoteError)


def test_a_hello_carries_the_nonce_in_number_and_digest() -> None:
    assert wire.nonce_fields(0x0123_4567_89AB_CDEF) == (0x0123_4567, 0x89AB_CDEF)
    for nonce in (0, 1, 1 << 32, (1 << 64) - 1):
        assert wire.nonce_from_fields(*wire.nonce_fields(nonce)) == nonce
