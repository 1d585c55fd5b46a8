"""Packets to and from the controller, and clients that do not take what the server has for them."""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from support.timing import patience
from switchsum_switch.messages.p4runtime import METHODS, Code, v1
from switchsum_switch.p4runtime import service, stream
from switchsum_switch.p4runtime.server import UNARY_THREADS
from switchsum_switch.p4runtime.stream import MAX_STREAMS

from . import p4runtime_rig
from .p4runtime_rig import DEVICE_ID, Client, Rig

rig = pytest.fixture(p4runtime_rig.rig)
primary = pytest.fixture(p4runtime_rig.primary)


def test_packet_in_reaches_every_primary_and_nobody_else(rig: Rig, primary: Client) -> None:
    backup, other_role = rig.client(0), rig.primary(1, role="packets")
    assert backup.arbitrate() == (1, Code.ALREADY_EXISTS)
    rig.service.packet_in(bytes([0b1010_0000, 0b1_000_0101]) + b"payload")
    for client in (primary, other_role):
        packet = client.receive().packet
        assert packet.payload == b"payload"
        assert [(field.metadata_id, field.value) for field in packet.metadata] == [(1, b"\x01\x41"), (2, b"\x05")]
    assert backup.nothing_more()


def test_packet_in_that_is_shorter_than_its_header_is_dropped(rig: Rig, primary: Client) -> None:
    rig.service.packet_in(b"\x00")
    rig.service.packet_in(b"\x00\x00the next")
    assert primary.receive().packet.payload == b"the next"


def test_packet_ins_beyond_the_queue_are_lost_and_arbitration_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_PENDING", 2)
    waiting = stream.Stream(bool)
    packets = [v1.StreamMessageResponse(packet=v1.PacketIn(payload=bytes([number]))) for number in range(4)]
    for packet in packets:
        waiting.offer(packet)
    arbitration = v1.StreamMessageResponse(arbitration=v1.MasterArbitrationUpdate())
    waiting.send(arbitration)
    waiting.close()
    assert list(waiting) == [*packets[:2], arbitration]
    assert waiting.dropped == 2


@pytest.mark.parametrize("size", [1, stream.MAX_PENDING_BYTES // 10])
def test_errors_for_a_client_that_does_not_read_are_bounded(
    rig: Rig, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_PENDING", 50)
    waiting = stream.Stream(bool)
    message = v1.StreamMessageRequest(packet=v1.PacketOut(payload=bytes(size)))
    for _ in range(60):
        rig.service._receive(waiting, message)
    most = 50 if size == 1 else 10
    assert waiting.dropped == 60 - most
    waiting.close()
    assert [answer.error.packet_out.packet_out for answer in waiting] == [message.packet] * most
    rig.service._receive(waiting, message)  # there is room again
    assert waiting.dropped == 60 - most


class Remembered(set[Any]):
    """Streams, and how many there ever were: one may be over before anybody looks."""

    ever = 0

    def add(self, element: Any) -> None:
        super().add(element)
        self.ever += 1


def test_a_client_that_bids_and_never_reads_loses_its_stream(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_UNREAD", 16)
    streams = Remembered()
    monkeypatch.setattr(rig.service, "_streams", streams)
    bid = v1.StreamMessageRequest(arbitration=v1.MasterArbitrationUpdate(device_id=DEVICE_ID))
    method = METHODS["StreamChannel"]
    with grpc.insecure_channel(rig.server.address) as channel:
        make = channel.stream_stream(method.path, method.request.SerializeToString, method.response.FromString)
        call: Any = make(itertools.repeat(bid))
        wait_until(lambda: streams.ever and not streams)
        call.cancel()
    assert rig.client(0).arbitrate() == (0, Code.OK)


def test_clients_that_read_and_never_take_the_answer_leave_threads_to_others(
    rig: Rig, primary: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = METHODS["Read"]
    with grpc.insecure_channel(rig.server.address) as channel, monkeypatch.context() as patched:
        entity = v1.Entity(extern_entry=v1.ExternEntry())
        entity.extern_entry.entry.value = bytes(service.RESPONSE_BYTES)  # one field: protobuf may be plain Python
        message = v1.ReadResponse(entities=[entity])
        patched.setattr(service, "_responses", lambda entities: itertools.repeat(message))
        make = channel.unary_stream(method.path, method.request.SerializeToString, method.response.FromString)
        calls: list[Any] = [make(v1.ReadRequest(device_id=DEVICE_ID)) for _ in range(MAX_STREAMS + UNARY_THREADS + 8)]
        wait_until(lambda: len(rig.service._reading) == service.MOST_READS)
        primary.write()
        for call in calls:
            call.cancel()
    wait_until(lambda: not rig.service._reading)


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + patience(10)
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def packet_out(*metadata: tuple[int, bytes]) -> Any:
    message = v1.PacketOut(payload=b"payload")
    for number, value in metadata:
        message.metadata.add(metadata_id=number, value=value)
    return message


@pytest.mark.parametrize(
    ("metadata", "header"),
    [
        ([(1, b"\x01\x41"), (2, b"\x05")], bytes([0b1010_0000, 0b1_000_0101])),
        ([(2, b"\x05"), (1, b"\x01\x41")], bytes([0b1010_0000, 0b1_000_0101])),
        ([(1, b"\x00\x00\x03"), (2, b"\x00")], bytes([0b0000_0001, 0b1_000_0000])),
        ([(1, b"\x03")], bytes([0b0000_0001, 0b1_000_0000])),  # as simple_switch_grpc: what is left out is 0
    ],
)
def test_packet_out_enters_with_its_header(
    rig: Rig, primary: Client, metadata: list[tuple[int, bytes]], header: bytes
) -> None:
    primary.send(packet=packet_out(*metadata))
    assert rig.packet_outs.get(timeout=patience(10)) == header + b"payload"


@pytest.mark.parametrize(
    "metadata", [[(1, b"\x02\x00"), (2, b"\x00")], [(1, b"")], [(1, b"\x01"), (1, b"\x01")], [(3, b"\x01")]]
)
def test_packet_out_with_bad_metadata_is_reported_and_dropped(
    rig: Rig, primary: Client, metadata: list[tuple[int, bytes]]
) -> None:
    message = packet_out(*metadata)
    primary.send(packet=message)
    error = primary.receive().error
    assert error.canonical_code == Code.INVALID_ARGUMENT
    assert error.message
    assert error.packet_out.packet_out == message
    with pytest.raises(queue.Empty):
        rig.packet_outs.get_nowait()


def test_packet_out_of_a_backup_is_refused(rig: Rig, primary: Client) -> None:
    stranger = rig.client(0)
    stranger.send(packet=packet_out())
    assert stranger.receive().error.canonical_code == Code.PERMISSION_DENIED
    stranger.arbitrate()
    stranger.send(packet=packet_out())
    assert stranger.receive().error.canonical_code == Code.PERMISSION_DENIED
    assert rig.packet_outs.empty()


def test_other_stream_messages_are_answered_with_errors(primary: Client) -> None:
    primary.send(digest_ack=v1.DigestListAck(digest_id=3, list_id=4))
    error = primary.receive().error
    assert (error.canonical_code, error.digest_list_ack.digest_list_ack.list_id) == (Code.INVALID_ARGUMENT, 4)
    primary.send()
    error = primary.receive().error
    assert (error.canonical_code, error.WhichOneof("details")) == (Code.UNIMPLEMENTED, "other")
