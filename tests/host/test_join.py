"""Joining, waiting and leaving, against a controller that says what a test wants; frames go nowhere."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from support.timing import patience
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import LocalNetwork, LocalTransport
from switchsum_host.api import awaiting
from switchsum_host.api.join import Membership, Patience
from switchsum_host.connect import connect
from switchsum_protocol import errors, member_rpc, reports, rpc, rpc_codec, wire
from switchsum_protocol.clients import starting
from switchsum_protocol.clients.member_client import MemberClient
from switchsum_protocol.errors import (
    CollectiveTimeout,
    ControllerUnreachable,
    NotAdmitted,
    OperationMismatch,
    RankTaken,
    RemoteError,
    SwitchLost,
    SwitchsumError,
    TransportError,
    UnknownJob,
    UnknownMembership,
    UsageError,
    VersionMismatch,
    WorkerLost,
    WorldSizeMismatch,
)
from switchsum_protocol.frame import WIRE_VERSION, Kind
from switchsum_protocol.slot_rules import SWITCH_ADDRESS
from switchsum_protocol.wire import parse_frame
from switchsum_switch.messages import codec

NONCE = 0xFEDC_BA98_7654_3210
JOINED = member_rpc.JoinReply(
    nonce=NONCE,
    job_number=7,
    epoch=3,
    cookie=0xFEDC_BA98_7654_3210,
    lanes_per_frame=256,
    growth_bytes=None,
    switch_mac=SWITCH_ADDRESS.mac,
    switch_ip=SWITCH_ADDRESS.ip,
    heartbeat_s=0.05,
)
ADMITTED = member_rpc.ReadyReply(admitted=True, hello_seen=True, slot_count=16, first_number=5, window_slots=8)


class FakeController:
    """Answers each method as a test says, and remembers what it was asked."""

    def __init__(self, address: str = "127.0.0.1:0") -> None:
        self.answers: dict[str, Callable[[Any], Any]] = {
            "Join": lambda _: JOINED,
            "Ready": lambda _: ADMITTED,
            "Attend": lambda _: member_rpc.HeartbeatReply(epoch=3),
            "Compare": lambda _: member_rpc.CompareReply(),
            "Leave": lambda _: member_rpc.Empty(),
            "LinkDown": lambda _: member_rpc.Empty(),
            "Reform": lambda _: member_rpc.ReformReply(),
            "Report": lambda _: member_rpc.Empty(),
        }
        self.calls: list[tuple[str, Any]] = []
        self.ended: list[tuple[str, bool]] = []
        """Calls that were answered, and whether somebody still waited for that."""
        self.server = grpc.server(ThreadPoolExecutor(4))
        handlers = {name: self._handler(name) for name in self.answers if name in rpc.METHODS}
        handlers["Attend"] = grpc.unary_stream_rpc_method_handler(self._attend)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(member_rpc.SERVICE, handlers),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port(address)}"
        self.server.start()

    def _handler(self, name: str) -> Any:
        def handle(data: bytes, context: grpc.ServicerContext) -> bytes:
            request: Any = codec.decode(rpc.METHODS[name][0], data)
            self.calls.append((name, request))
            try:
                answer = self.answers[name](request)
                self.ended.append((name, context.is_active()))
            except SwitchsumError as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, rpc_codec.details_of(error))
            return answer if isinstance(answer, bytes) else codec.encode(answer)

        return grpc.unary_unary_rpc_method_handler(handle)

    def _attend(self, data: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer again and again, as a controller does while a connection lasts."""
        request: Any = codec.decode(rpc.STREAMS["Attend"][0], data)
        self.calls.append(("Attend", request))
        try:
            while context.is_active():
                yield codec.encode(self.answers["Attend"](request))
                time.sleep(0.05)
        except SwitchsumError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, rpc_codec.details_of(error))

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


@pytest.fixture
def controller() -> Iterator[FakeController]:
    fake = FakeController()
    yield fake
    fake.server.stop(0)


class Recorder:
    """A switch that keeps what comes."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        self.frames.append(frame)
        return []


@pytest.fixture
def switch() -> Recorder:
    return Recorder()


@pytest.fixture
def transport(switch: Recorder) -> LocalTransport:
    return LocalTransport(LocalNetwork(switch), 1, ClusterConfig().address(0), rows=4, frame_bytes=1114)


def join(controller: FakeController, **changes: Any) -> Membership:
    arguments: dict[str, Any] = {"job": "digits", "rank": 1, "world_size": 4}
    return Membership(controller.address, **(arguments | changes))


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + patience(10)
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_membership_from_joining_to_leaving(
    controller: FakeController, switch: Recorder, transport: LocalTransport
) -> None:
    replies = iter(
        [
            member_rpc.ReadyReply(admitted=False, hello_seen=False, missing=[1, 2]),
            member_rpc.ReadyReply(admitted=False, hello_seen=False, missing=[1, 2]),
            member_rpc.ReadyReply(admitted=False, hello_seen=True, missing=[2]),
            ADMITTED,
        ]
    )
    controller.answers["Ready"] = lambda _: next(replies)
    membership = join(controller)
    assert membership.switch == SWITCH_ADDRESS
    assert membership.await_admission([transport], patience(5)) == ADMITTED
    # A hello with the nonce for each time that the switch had not handed one on.
    assert len(switch.frames) == 3
    for frame in switch.frames:
        packet = parse_frame(frame)
        assert packet is not None
        assert (packet.header.kind, packet.header.rank) == (Kind.HELLO, 1)
        assert wire.nonce_from_fields(packet.header.number, packet.header.digest) == NONCE
        assert (packet.source, packet.destination) == (transport.address, SWITCH_ADDRESS)
    wait_until(lambda: controller.names().count("Attend"))
    assert membership.error is None
    membership.leave()
    assert controller.names()[-1] == "Leave"
    request = controller.calls[0][1]
    assert (request.job, request.rank, request.world_size, request.wire_version) == ("digits", 1, 4, WIRE_VERSION)
    assert request.package_version
    named = [call for name, call in controller.calls if name in ("Attend", "Leave")]
    assert {(call.job, call.nonce) for call in named} == {("digits", NONCE)}


@pytest.mark.parametrize("error", [UnknownJob, RankTaken, WorldSizeMismatch, VersionMismatch, errors.NoCapacity])
def test_refusals_arrive_as_what_they_are(controller: FakeController, error: type[SwitchsumError]) -> None:
    def refuse(_: object) -> None:
        raise error("for this reason")

    controller.answers["Join"] = refuse
    with pytest.raises(error, match="for this reason"):
        join(controller)


def test_no_controller_is_reported_long_before_one_that_does_not_answer() -> None:
    with pytest.raises(ControllerUnreachable, match=r"127\.0\.0\.1:9; .* starts one, .*none has come for 4 s"):
        Membership("127.0.0.1:9", job="x", rank=0, world_size=1)


def test_no_controller_is_waited_for_longer_than_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[tuple[float, float]] = []
    call = MemberClient.call

    def noted(client: MemberClient, method: str, request: Any, reply: Any, *limits: float) -> Any:
        waited.append((limits[0], limits[1]))
        return call(client, method, request, reply, *limits)

    monkeypatch.setattr(MemberClient, "call", noted)
    # What compiles before it looks for a controller takes as long as it takes, and has no part in this.
    monkeypatch.setattr("switchsum_host.connect.warm_up", lambda link: None)
    with pytest.raises(ControllerUnreachable):
        connect(controller="127.0.0.1:9", job="x", rank=0, world_size=1, link="shm:x", timeout_s=0.3)
    assert waited == [(0.3, 0.3)]


def test_a_controller_that_is_there_is_given_time(controller: FakeController, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchsum_host.api.join.CALL_S", 0.2)
    may_answer = threading.Event()

    def answer_late(_: object) -> Any:
        may_answer.wait(patience(30))
        return JOINED

    controller.answers["Join"] = answer_late
    threading.Timer(1.0, may_answer.set).start()
    join(controller, patience=Patience(call_s=0.2)).leave()
    may_answer.clear()
    with pytest.raises(ControllerUnreachable, match=r"listens but has not answered Join for 1 s: .*START_TIMEOUT"):
        join(controller, patience=Patience(call_s=0.2, answer_s=1.0))
    may_answer.set()


def test_who_has_started_a_controller_that_has_ended_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHSUM_LAUNCHER", "`switchsum run`")
    with pytest.raises(ControllerUnreachable, match="`switchsum run` had started it, and it has ended") as caught:
        Membership("127.0.0.1:9", job="x", rank=0, world_size=1, patience=Patience(call_s=0.2))
    assert "switchsum controller" not in str(caught.value)
    monkeypatch.setattr(starting, "_launchers", {"127.0.0.1:9": "rank 0 of the process group"})
    with pytest.raises(ControllerUnreachable, match="rank 0 of the process group had started it"):
        Membership("127.0.0.1:9", job="x", rank=0, world_size=1, patience=Patience(call_s=0.2))


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf", "nan"])
def test_a_start_limit_that_cannot_be_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHSUM_START_TIMEOUT", text)
    with pytest.raises(UsageError, match="SWITCHSUM_START_TIMEOUT must be a positive number"):
        connect(controller="127.0.0.1:9", job="x", rank=0, world_size=1, link="shm:x")


def test_a_controller_that_talks_nonsense_is_reported(controller: FakeController) -> None:
    controller.answers["Join"] = lambda _: b"{}"
    with pytest.raises(RemoteError, match="sent an answer to Join that cannot be read"):
        join(controller)


@pytest.mark.parametrize(
    ("text", "missing"),
    [("ranks 2, 3 missing", (2, 3)), (": rank 2 missing", (2,)), ("all ranks have come, and a switch is not yet", ())],
)
def test_ranks_that_do_not_come_are_named(
    controller: FakeController, transport: LocalTransport, text: str, missing: tuple[int, ...]
) -> None:
    reply = member_rpc.ReadyReply(admitted=False, hello_seen=True, missing=list(missing))
    controller.answers["Ready"] = lambda _: reply
    membership = join(controller)
    with pytest.raises(CollectiveTimeout, match=text) as caught:
        membership.await_admission([transport], 0.1)
    assert caught.value.missing == missing
    membership.leave()


@pytest.mark.parametrize(
    ("lost_at_s", "restarts", "error", "text"),
    [
        (9.0, False, CollectiveTimeout, "10 s: rank 1 missing; by now root does not answer"),
        (9.0, True, CollectiveTimeout, "10 s: rank 1 missing \\("),
        (4.0, False, SwitchLost, "root does not answer"),
        (4.0, True, SwitchLost, "no hello of rank 0"),
    ],
)
def test_a_switch_that_is_lost_at_the_end_of_a_wait_is_not_why_ranks_have_not_come(
    monkeypatch: pytest.MonkeyPatch, lost_at_s: float, restarts: bool, error: type[SwitchsumError], text: str
) -> None:
    now = [0.0]
    monkeypatch.setattr(awaiting, "time", SimpleNamespace(monotonic=lambda: now[0]))
    waiter = awaiting.Waiter("digits", 0, timeout_s=10.0, switch_timeout_s=20.0)
    waiting = member_rpc.ReadyReply(admitted=False, hello_seen=True, missing=[1])
    forgotten = member_rpc.ReadyReply(admitted=False, hello_seen=False, missing=[0, 1, 2])  # by one that restarts
    lost = forgotten if restarts else replace(waiting, lost_switch="root does not answer")
    for now[0] in range(11):
        waiter.note(reply := waiting if now[0] < lost_at_s else lost)
    found = waiter.error(reply)
    assert type(found) is error
    assert re.search(text, str(found))
    assert not isinstance(found, CollectiveTimeout) or found.missing == (1,)


def test_ranks_that_are_waited_for_are_named(
    controller: FakeController,
    transport: LocalTransport,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("switchsum_host.api.awaiting.QUIET_S", 0.0)
    replies = [member_rpc.ReadyReply(admitted=False, hello_seen=True, missing=[0, 2])] * 2
    controller.answers["Ready"] = lambda _: (
        replies.pop() if replies else member_rpc.ReadyReply(admitted=True, hello_seen=True)
    )
    membership = join(controller)
    membership.await_admission([transport], patience(30))
    assert capsys.readouterr().err.count("waiting for ranks 0, 2 of job ") == 1
    membership.leave()


def test_a_switch_that_hands_on_no_hello_is_reported(
    controller: FakeController,
    transport: LocalTransport,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("switchsum_host.api.awaiting.QUIET_S", 0.0)
    controller.answers["Ready"] = lambda _: member_rpc.ReadyReply(admitted=False, hello_seen=False, missing=[1])
    membership = join(controller)
    with pytest.raises(SwitchLost, match="no hello of rank 1"):
        membership.await_admission([transport], 0.3)
    assert capsys.readouterr().err.count("no hello of rank 1 for 0 s") == 1  # before it gives up
    membership.leave()


def test_a_link_that_loses_long_frames_is_reported(
    controller: FakeController, switch: Recorder, transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchsum_host.api.join.HELLO_S", 0.001)
    controller.answers["Ready"] = lambda _: member_rpc.ReadyReply(
        admitted=False, hello_seen=False, hello_cut=min(map(len, switch.frames)) < 1114
    )
    membership = join(controller)
    with pytest.raises(TransportError, match=r"frames of 1114 bytes get lost.*mtu 1100"):
        membership.await_admission([transport], patience(30))
    assert [len(frame) for frame in switch.frames[:10]] == [1114] * 10
    assert {len(frame) for frame in switch.frames[10:]} == {1114, 90}
    membership.leave()


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (member_rpc.HeartbeatReply(epoch=3, lost=[2]), WorkerLost),
        (member_rpc.HeartbeatReply(epoch=4), NotAdmitted),
        (NotAdmitted("the controller declared rank 1 lost"), NotAdmitted),
    ],
)
def test_heartbeats_bring_bad_news(controller: FakeController, reply: Any, error: type[SwitchsumError]) -> None:
    def answer(_: object) -> Any:
        if isinstance(reply, SwitchsumError):
            raise reply
        return reply

    membership = join(controller)
    controller.answers["Attend"] = answer
    wait_until(lambda: membership.error)
    assert type(membership.error) is error
    if isinstance(membership.error, WorkerLost):
        assert membership.error.rank == 2
    membership.leave()


def test_the_odd_rank_is_named_first_when_operations_differ(controller: FakeController) -> None:
    replies = iter([["sum", "sum", "max", "sum"], ["sum", "sum", "", "sum"], ["sum"] * 4])
    controller.answers["Compare"] = lambda _: member_rpc.CompareReply(operations=next(replies))
    membership = join(controller)
    mismatch = OperationMismatch("another rank issued another operation", "sum")
    advice = "all ranks must make the same calls in the same order, on arrays of one shape and dtype"
    said = f"rank 2 issued max; ranks 0, 1, 3 issued sum; {advice}"
    assert str(membership.explain(mismatch)) == said
    assert str(membership.explain(mismatch)) == said.replace("max", "nothing that is known of")
    assert membership.explain(mismatch) is mismatch  # what they say is the same: it is not in the words
    assert next(call for name, call in controller.calls if name == "Compare").operation == "sum"
    lost = SwitchLost("no answer")
    assert membership.explain(lost) is lost
    membership.leave()


def test_a_controller_that_goes_away_does_not_end_the_job(
    controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchsum_host.api.join.CALL_S", 0.2)
    membership = join(controller)
    controller.server.stop(0).wait()
    time.sleep(0.8)
    assert membership.error is None
    assert any(thread.name == "switchsum heartbeat 1" for thread in threading.enumerate())
    membership.leave()


def again(**changes: Any) -> member_rpc.JoinReply:
    """Return the reply of a controller that was started anew."""
    fields = {name: getattr(JOINED, name) for name in JOINED.__dataclass_fields__}
    return member_rpc.JoinReply(**fields | {"nonce": NONCE - 1, "epoch": 4} | changes)


def knows(*nonces: int) -> Callable[[Any], Any]:
    """Admit who has one of these nonces; the others are not known."""

    def answer(request: Any) -> Any:
        if request.nonce not in nonces:
            raise UnknownMembership("the controller knows no such membership: join again")
        return member_rpc.HeartbeatReply(epoch=4) if isinstance(request, member_rpc.MemberRequest) else ADMITTED

    return answer


def test_a_rank_joins_the_controller_that_follows_one_that_has_ended(
    controller: FakeController, switch: Recorder, transport: LocalTransport, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = threading.Event()

    def never(_: object) -> Any:
        asked.set()
        time.sleep(patience(30))

    controller.answers["Ready"] = never
    membership = join(controller)
    admitted: list[Any] = []
    waiting = threading.Thread(target=lambda: admitted.append(membership.await_admission([transport], patience(60))))
    waiting.start()
    assert asked.wait(patience(10))
    controller.server.stop(0).wait()
    time.sleep(0.5)  # calls meet nobody
    follower = FakeController(controller.address)
    try:
        follower.answers |= {"Join": lambda _: again(), "Ready": knows(NONCE - 1), "Attend": knows(NONCE - 1)}
        waiting.join()
        assert admitted == [ADMITTED]
        assert membership.reply == again()
        last = parse_frame(switch.frames[-1])
        assert last is not None
        assert wire.nonce_from_fields(last.header.number, last.header.digest) == NONCE - 1
        assert last.header.epoch == 4
        wait_until(lambda: any(name == "Attend" and call.nonce == NONCE - 1 for name, call in follower.calls))
        assert membership.error is None
        assert f"the controller at {controller.address} has ended: waiting for another one" in capsys.readouterr().err
        membership.leave()
        assert follower.calls[-1][1].nonce == NONCE - 1
    finally:
        follower.server.stop(0)


def test_a_rank_whose_call_of_join_is_broken_off_asks_the_next_controller(controller: FakeController) -> None:
    asked = threading.Event()

    def never(_: object) -> Any:
        asked.set()
        time.sleep(patience(30))

    controller.answers["Join"] = never
    joined: list[Membership] = []
    waiting = threading.Thread(target=lambda: joined.append(join(controller)))
    waiting.start()
    assert asked.wait(patience(10))
    controller.server.stop(0).wait()
    follower = FakeController(controller.address)
    try:
        waiting.join()
        assert joined[0].reply == JOINED
        joined[0].leave()
    finally:
        follower.server.stop(0)


def test_a_controller_that_comes_back_with_another_switch_is_not_joined(
    controller: FakeController, transport: LocalTransport
) -> None:
    membership = join(controller)
    controller.answers |= {"Ready": knows(NONCE - 1), "Join": lambda _: again(switch_ip=SWITCH_ADDRESS.ip + 1)}
    with pytest.raises(NotAdmitted, match="has come back with another switch: connect again"):
        membership.await_admission([transport], patience(10))
    membership.leave()


def test_a_controller_that_stays_away_is_waited_for_no_longer_than_other_ranks(
    controller: FakeController, transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchsum_host.api.join.CALL_S", 0.1)
    membership = join(controller)
    controller.server.stop(0).wait()
    with pytest.raises(ControllerUnreachable):
        membership.await_admission([transport], 0.5)
    membership.leave()


def test_a_switch_that_is_away_is_waited_for_where_a_rank_joins(controller: FakeController) -> None:
    answers = iter([SwitchLost("the controller has no switch"), JOINED])

    def answer(_: object) -> Any:
        if isinstance(reply := next(answers), SwitchsumError):
            raise reply
        return reply

    controller.answers["Join"] = answer
    join(controller).leave()
    controller.answers["Join"] = lambda _: (_ for _ in ()).throw(SwitchLost("still away"))
    with pytest.raises(SwitchLost, match="still away"):
        join(controller, patience=Patience(switch_s=0.3))


def test_a_switch_that_stays_away_is_named_after_its_time_and_the_controller_told(
    controller: FakeController, transport: LocalTransport
) -> None:
    away = member_rpc.ReadyReply(admitted=False, hello_seen=True, missing=[2], lost_switch="leaf1 does not answer")
    there = member_rpc.ReadyReply(admitted=False, hello_seen=True, missing=[2])
    replies = [away, there, *[away] * 1000]  # a switch that was back begins anew
    controller.answers["Ready"] = lambda _: replies.pop(0)
    membership = join(controller, patience=Patience(switch_s=0.3))
    with pytest.raises(SwitchLost, match=r"^leaf1 does not answer, for 0\.3 s$") as caught:
        membership.await_admission([transport], patience(60))
    membership.leave(error=caught.value)
    assert controller.calls[-1][1].error == "SwitchLost: leaf1 does not answer, for 0.3 s"


@pytest.mark.parametrize(
    ("missing", "gave_up", "text", "named"),
    [
        ([7], [0], r"rank 7 missing \(rank 0 had come, and gave up before\)", (7,)),
        ([], [0, 2], "ranks 0, 2 had come, and gave up before", (0, 2)),
    ],
)
def test_ranks_that_gave_up_are_not_the_missing_ones(
    controller: FakeController,
    transport: LocalTransport,
    missing: list[int],
    gave_up: list[int],
    text: str,
    named: tuple[int, ...],
) -> None:
    reply = member_rpc.ReadyReply(admitted=False, hello_seen=True, missing=missing, gave_up=gave_up)
    controller.answers["Ready"] = lambda _: reply
    membership = join(controller)
    with pytest.raises(CollectiveTimeout, match=text) as caught:
        membership.await_admission([transport], 0.1)
    assert caught.value.missing == named
    membership.leave(error=caught.value)
    assert controller.calls[-1][1].error.startswith("CollectiveTimeout: job 'digits' is not complete")


def test_who_leaves_for_another_reason_gives_nothing_up(controller: FakeController) -> None:
    for error in (None, UsageError("no"), KeyboardInterrupt()):
        join(controller).leave(error=error)
        assert controller.calls[-1][1].error == ""


def test_ranks_that_form_a_job_anew_wait_for_the_controller_that_follows(controller: FakeController) -> None:
    controller.answers["Attend"] = lambda _: member_rpc.HeartbeatReply(epoch=3, lost=[0], left=[3])
    membership = join(controller)
    wait_until(lambda: membership.lost)
    controller.answers["Reform"] = knows()
    with pytest.raises(UnknownMembership):  # it was there all the time, and has ended the membership
        membership.reform(patience(10))
    calls: list[str] = []

    def away_first(_: object) -> Any:
        calls.append("")
        raise (
            ControllerUnreachable("the controller has just been started") if len(calls) < 3 else UnknownMembership("?")
        )

    controller.answers["Reform"] = away_first
    # It has formed the job anew, ended, and told nobody: ranks 1 and 2 of 4 are left.
    assert membership.reform(patience(10)) == (0, 2)


def test_connect_leaves_again_when_its_link_fails(controller: FakeController) -> None:
    with pytest.raises(TransportError):
        connect(controller=controller.address, job="x", rank=0, world_size=1, link="shm:nobody-is-here")
    assert controller.names()[-1] == "Leave"


@pytest.mark.parametrize(
    ("rank", "size"),
    [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")],
)
def test_rank_and_size_as_launchers_of_mpi_tell_them(
    controller: FakeController, monkeypatch: pytest.MonkeyPatch, rank: str, size: str
) -> None:
    for variable in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(rank, "2")
    monkeypatch.setenv(size, "5")
    with pytest.raises(TransportError):
        connect(controller=controller.address, job="x", link="shm:nobody-is-here")
    asked = next(request for name, request in controller.calls if name == "Join")
    assert (asked.rank, asked.world_size) == (2, 5)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UsageError, match="WORLD_SIZE"):  # never a rank of one launcher and a size of another
        connect(controller=controller.address, job="x", link="shm:nobody-is-here")


def test_another_lane_count_is_refused(controller: FakeController) -> None:
    fields = {name: getattr(JOINED, name) for name in JOINED.__dataclass_fields__} | {"lanes_per_frame": 100}
    controller.answers["Join"] = lambda _: member_rpc.JoinReply(**fields)
    with pytest.raises(VersionMismatch, match="100 lanes"):
        connect(controller=controller.address, job="x", rank=0, world_size=1, link="shm:x")
    assert controller.names()[-1] == "Leave"


def test_heartbeats_bring_reports_and_wait_for_no_answer(controller: FakeController) -> None:
    release = threading.Event()

    def answer(_: reports.WorkerReport) -> member_rpc.Empty:
        release.wait(patience(10))
        return member_rpc.Empty()

    controller.answers["Report"] = answer
    membership = join(controller)
    beats: list[None] = []
    membership.on_heartbeat = lambda: beats.append(None)
    membership.report = lambda job, nonce: reports.WorkerReport(job=job, nonce=nonce, begun=len(beats))
    wait_until(lambda: "Report" in controller.names())
    so_far = len(beats)
    wait_until(lambda: len(beats) > so_far + 20)  # over a second, with a controller that does not answer
    assert controller.names().count("Report") == 1
    release.set()
    wait_until(lambda: controller.names().count("Report") >= 2)
    reported = [call for name, call in controller.calls if name == "Report"]
    assert {(one.job, one.nonce) for one in reported} == {("digits", NONCE)}
    assert reported[1].begun > reported[0].begun
    membership.leave()


def test_a_dead_link_is_told_once_and_the_call_lives_until_a_slow_controller_answers(
    controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchsum_host.api.join.CALL_S", patience(60))  # or ten heartbeats of a busy machine end it
    release, down = threading.Event(), frozenset[int]()

    def answer(_: member_rpc.LinkReport) -> member_rpc.Empty:
        nonlocal down
        release.wait(patience(60))
        down = frozenset({1})
        return member_rpc.Empty()

    controller.answers["LinkDown"] = answer
    controller.answers["Attend"] = lambda _: member_rpc.HeartbeatReply(epoch=3, down=sorted(down))
    membership = join(controller)
    beats: list[None] = []
    membership.on_heartbeat = lambda: beats.append(None)
    membership.tell_down(1, "interface sum1 is down")
    wait_until(lambda: "LinkDown" in controller.names())
    so_far = len(beats)
    wait_until(lambda: len(beats) > so_far + 10)
    assert [(one.job, one.nonce, one.link, one.reason) for name, one in controller.calls if name == "LinkDown"] == [
        ("digits", NONCE, 1, "interface sum1 is down")
    ]
    release.set()
    wait_until(lambda: membership.links_down == {1})
    # A heartbeat from before the answer may have the link told once more.
    assert next(active for name, active in controller.ended if name == "LinkDown")
    membership.leave()


def test_two_threads_tell_of_a_dead_link_once(controller: FakeController, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine finds that a link is dead in the same moment in which a heartbeat says that nobody knows of it."""
    client = MemberClient(controller.address)
    both, told = threading.Barrier(2), list[None]()

    def tell(*_: object) -> Any:
        told.append(None)
        time.sleep(0.2)  # a second thread that looks meanwhile sees no call under way
        return SimpleNamespace(done=lambda: False)

    def engine_or_heartbeat() -> None:
        both.wait(patience(60))
        client.link_down(member_rpc.LinkReport(job="digits", nonce=NONCE, link=1, reason="down"), 1.0)

    monkeypatch.setattr(client, "_tell", tell)
    threads = [threading.Thread(target=engine_or_heartbeat) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(patience(60))
    assert len(told) == 1
    client.close()


def test_a_switch_of_other_ranks_that_stays_away_ends_the_wait_for_them(controller: FakeController) -> None:
    """The rank's own switch answers that it waits for others, as long as one likes."""
    there = member_rpc.ReadyReply(admitted=True, hello_seen=True)
    away = member_rpc.ReadyReply(admitted=False, hello_seen=True, lost_switch="leaf2 does not answer")
    waiting_s, replies = [0.0], [away]
    controller.answers["Ready"] = lambda _: replies[0]
    membership = join(controller, patience=Patience(switch_s=0.4))
    membership.report = lambda job, nonce: reports.WorkerReport(job=job, nonce=nonce, waiting_s=waiting_s[0])

    def said(times: int) -> str:
        so_far = controller.names().count("Report")
        wait_until(lambda: controller.names().count("Report") >= so_far + times or membership.error is not None)
        return repr(membership.error)

    assert said(3) == "None"  # results come: frames pass the switch
    waiting_s[0], replies[0] = 7.0, there
    assert said(3) == "None"  # it waits for a rank that is late
    replies[0] = away
    assert said(1000) == "SwitchLost('no result for 7 s: leaf2 does not answer')"
    membership.leave()


def test_a_switch_that_nobody_starts_again_is_named_at_once(
    controller: FakeController, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A rank has started it, and knows; the others look whether it listens."""

    def reported_twice() -> None:
        so_far = controller.names().count("Report")
        wait_until(lambda: controller.names().count("Report") >= so_far + 2)

    for table, value in ((starting._launchers, "rank 0"), (starting._switches, f"unix:{tmp_path}/p4runtime")):
        monkeypatch.setitem(table, controller.address, value)
    with socket.socket(socket.AF_UNIX) as switch:
        switch.bind(str(tmp_path / "p4runtime"))
        switch.listen()
        waiting_s = [10.0]
        membership = join(controller)
        membership.report = lambda job, nonce: reports.WorkerReport(job=job, nonce=nonce, waiting_s=waiting_s[0])
        wait_until(lambda: controller.names().count("Report") >= 2)
        assert membership.error is None  # it is there, and another rank is late
        waiting_s[0] = 0.0
        reported_twice()  # the report under way may still tell the wait of before
    reported_twice()
    assert membership.error is None  # results come
    waiting_s[0] = 2.0
    wait_until(lambda: membership.error is not None)
    assert repr(membership.error) == ("SwitchLost('the switch that rank 0 had started has ended: its output says why')")
    membership.leave()


def test_a_controller_that_knows_no_reports_is_asked_once(controller: FakeController) -> None:
    made: list[reports.WorkerReport] = []

    def make(job: str, nonce: int) -> reports.WorkerReport:
        made.append(reports.WorkerReport(job=job, nonce=nonce))
        return made[-1]

    membership = join(controller)
    channel: Any = membership._client._channel
    call = channel.unary_unary

    def elsewhere(path: str, **arguments: Any) -> Any:
        return call(path.replace("Report", "Nothing"), **arguments)

    channel.unary_unary = elsewhere
    membership.report = make
    beats: list[None] = []
    membership.on_heartbeat = lambda: beats.append(None)
    wait_until(lambda: made and len(beats) > 30)
    assert len(made) == 1
    membership.leave()
