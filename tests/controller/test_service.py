from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_type_hints

import grpc
import pytest

from switchsum_controller.service.config import Config
from switchsum_controller.service.controller import Controller
from switchsum_controller.service.server import STATUS_CODES, Service, methods
from switchsum_controller.service.users import Users
from switchsum_protocol import errors, member_rpc, rpc

from .rig import LONG_S, SWITCH, MemberCalls, program


class StubController(Controller):
    """A controller that never runs, whose one method does what the test wants."""

    def __init__(self) -> None:
        super().__init__(Config(program=program(), switch_address="127.0.0.1:1", address=SWITCH))
        self.behaviour: Callable[[], rpc.JobList] = rpc.JobList
        self.users = StubUsers(self)


class StubUsers(Users):
    """What users ask of it."""

    def __init__(self, controller: StubController) -> None:
        super().__init__(controller.reconciler)
        self._stub = controller

    def list_jobs(self, _: member_rpc.Empty) -> rpc.JobList:
        return self._stub.behaviour()


@pytest.fixture
def controller() -> StubController:
    return StubController()


@pytest.fixture
def service(controller: StubController) -> Iterator[Service]:
    made = Service(controller, "127.0.0.1:0")
    yield made
    made.stop(grace_s=0)


def call(service: Service, method: str, data: bytes) -> bytes:
    with grpc.insecure_channel(service.address) as channel:
        answer: bytes = channel.unary_unary(member_rpc.path(method), None, None)(data, timeout=LONG_S)
        return answer


def test_every_method_of_the_protocol_is_served(controller: StubController) -> None:
    served = methods(controller.members, controller.agreements, controller.users)
    assert {name: method.request for name, method in served.items()} == {
        name: request for name, (request, _) in rpc.METHODS.items()
    }
    for name, (_, reply) in rpc.METHODS.items():
        assert get_type_hints(served[name].serve)["return"] is reply


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"job": 1}', b'{"job": "a", "more": 1}'])
def test_what_is_no_message_is_refused(service: Service, data: bytes) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(service, "ShowJob", data)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (caught.value.details() or "").startswith("UsageError: ")


def test_an_unknown_method_is_unimplemented(service: Service) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(service, "Dance", b"{}")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def raising(error: Exception) -> Callable[[], rpc.JobList]:
    def behaviour() -> rpc.JobList:
        raise error

    return behaviour


@pytest.mark.parametrize("kind", [kind for kind, _ in STATUS_CODES] + [errors.VersionMismatch, errors.RemoteError])
def test_errors_arrive_as_what_they_are(
    controller: StubController, service: Service, kind: type[errors.SwitchsumError]
) -> None:
    controller.behaviour = raising(kind("because: of this"))
    with MemberCalls(service.address) as client, pytest.raises(kind, match="because: of this") as caught:
        client.list_jobs()
    assert type(caught.value) is kind


def test_a_mistake_of_ours_is_logged_and_not_told(
    controller: StubController, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    controller.behaviour = raising(ZeroDivisionError("a secret"))
    with MemberCalls(service.address) as client, pytest.raises(errors.RemoteError, match="see its log") as caught:
        client.list_jobs()
    assert "secret" not in str(caught.value)
    assert "a secret" in caplog.text


def test_nobody_there_is_a_controller_unreachable() -> None:
    with (
        MemberCalls("127.0.0.1:1") as client,
        pytest.raises(errors.ControllerUnreachable, match=r"127\.0\.0\.1:1"),
    ):
        client.info()


def test_a_controller_that_is_busy_is_not_said_to_be_away(controller: StubController, service: Service) -> None:
    may_answer = threading.Event()

    def behave() -> rpc.JobList:
        may_answer.wait(LONG_S)
        return rpc.JobList()

    controller.behaviour = behave
    with (
        MemberCalls(service.address, timeout_s=0.5) as client,
        pytest.raises(errors.ControllerUnreachable, match=r"listens but has not answered ListJobs for 0.5 s"),
    ):
        client.list_jobs()
    may_answer.set()


def test_a_server_of_another_kind_is_a_remote_error(tmp_path: Path) -> None:
    def babble(_: bytes, context: grpc.ServicerContext) -> bytes:
        return b"not json"

    pool = ThreadPoolExecutor(1)
    server = grpc.server(pool)
    handlers = {"Info": grpc.unary_unary_rpc_method_handler(babble)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(member_rpc.SERVICE, handlers),))
    server.add_insecure_port(f"unix:{tmp_path}/other")
    server.start()
    try:
        with MemberCalls(f"unix:{tmp_path}/other") as client:
            with pytest.raises(errors.RemoteError, match="sent an answer to Info that cannot be read"):
                client.info()
            with pytest.raises(errors.RemoteError):
                client.ports()
    finally:
        server.stop(None).wait()
        pool.shutdown()


def test_a_taken_address_is_a_usage_error(controller: StubController, service: Service) -> None:
    with pytest.raises(errors.UsageError, match="cannot listen"):
        Service(controller, service.address)


def test_port_0_is_a_free_one_and_sockets_have_paths(controller: StubController, tmp_path: Path) -> None:
    for address in ("127.0.0.1:0", f"unix:{tmp_path}/controller"):
        service = Service(controller, address)
        assert service.address == address or not service.address.endswith(":0")
        with MemberCalls(service.address) as client:
            assert client.list_jobs().jobs == []
        service.stop(grace_s=0)
