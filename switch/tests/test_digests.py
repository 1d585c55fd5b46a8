"""Digests: what a program learns, and how P4Runtime's clients get it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

from switchsum_switch import Switch
from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError, parse_p4info, v1
from switchsum_switch.names.views import DigestView
from switchsum_switch.p4runtime.digest_entries import DigestEntries
from switchsum_switch.p4runtime.notices import Notices
from switchsum_switch.p4runtime.schema import bind
from switchsum_switch.state.digests import CAPACITY

from .conftest import PROGRAMS
from .p4runtime_rig import Client, Rig, rig, update

P4INFO = (PROGRAMS / "digests.p4info.txtpb").read_text()
LEARN, ODD = (digest.preamble.id for digest in parse_p4info(P4INFO).digests)
SOURCE = 0x0A0B0C0D0E0F
WIDE = int.from_bytes(bytes(range(20)), "big")
MILLISECOND = 1_000_000


def frame(operation: int, source: int = SOURCE, odd: int = 0x1ABC, rest: int = 5) -> bytes:
    return bytes([operation]) + source.to_bytes(6, "big") + (odd << 3 | rest).to_bytes(2, "big") + bytes(range(20))


@pytest.fixture(scope="module", params=["interpreter", "native"])
def switch(request: pytest.FixtureRequest) -> Switch:
    engine: EngineName = request.param
    return Switch((PROGRAMS / "digests.json").read_bytes(), P4INFO, engine=engine)


def test_a_packet_makes_the_digest_that_was_asked_for_last(switch: Switch) -> None:
    for operation in range(6):
        switch.process(7, frame(operation))
    # 1 and 4 ask for one, 3 for another one after it; 4 leaves ingress by `exit`, and the packet of 5 is dropped.
    assert switch.digests["learn_t"].take() == [(SOURCE, 7)] * 3
    assert switch.digests["odd_t"].take() == [(0x1ABC, WIDE, 1, 77), (0x1ABC, WIDE, 0, 78)]
    assert switch.digests["learn_t"].take() == []


def test_values_of_a_record_have_the_names_of_p4info(switch: Switch) -> None:
    digest = switch.digests["learn_t"]
    assert repr(digest) == "<digest learn_t (source, port): 0 records wait>"
    switch.process(7, frame(1))
    assert len(digest) == 1
    [record] = digest.take()
    assert (record.source, record.port) == (SOURCE, 7)
    renamed = DigestView(digest.digest, ("class", "port"))
    assert renamed.names == ("_0", "port")
    bare = Switch((PROGRAMS / "digests.json").read_bytes(), engine="interpreter")
    bare.process(7, frame(1))
    assert bare.digests["learn_t"].take()[0]._0 == SOURCE


def test_records_that_nobody_takes_are_lost_and_counted(switch: Switch) -> None:
    digest = switch.digests["learn_t"]
    lost = digest.lost
    for number in range(CAPACITY + 3):
        switch.process(0, frame(1, source=number))
    assert digest.lost == lost + 3
    assert [source for source, _ in digest.take()] == list(range(CAPACITY))


def test_a_trace_makes_no_digest_but_shows_it(switch: Switch) -> None:
    assert [step.text for step in switch.trace(0, frame(1)).find("digest")] == ["digest learn_t"]
    assert len(switch.digests["learn_t"]) == 0


@pytest.fixture(scope="module")
def server() -> Iterator[Rig]:
    yield from rig()


@pytest.fixture
def client(server: Rig) -> Iterator[Client]:
    primary = server.primary()
    program = (PROGRAMS / "digests.json").read_bytes()
    primary.set_config(config=v1.ForwardingPipelineConfig(p4info=parse_p4info(P4INFO), p4_device_config=program))
    yield primary
    primary.close()


def entry(digest: int, timeout_ms: int = 0, size: int = 0, ack_ms: int = 0) -> Any:
    config = v1.DigestEntry.Config(
        max_timeout_ns=timeout_ms * MILLISECOND, max_list_size=size, ack_timeout_ns=ack_ms * MILLISECOND
    )
    return v1.DigestEntry(digest_id=digest, config=config)


def sources(client: Client) -> list[int]:
    """Return the addresses that the next list has."""
    digest = client.receive().digest
    assert digest.digest_id == LEARN
    return [int.from_bytes(data.struct.members[0].bitstring, "big") for data in digest.data]


def test_a_list_has_the_types_of_p4info(server: Rig, client: Client) -> None:
    client.insert(digest_entry=entry(ODD))
    server.pipeline.process(3, frame(2))
    server.service.tell_due()
    digest = client.receive().digest
    assert (digest.digest_id, digest.list_id) == (ODD, 1)
    assert digest.timestamp > 0
    [data] = digest.data
    odd, wide, flag, number = data.struct.members
    assert (odd.bitstring, wide.bitstring, number.bitstring) == (b"\x1a\xbc", WIDE.to_bytes(19, "big"), b"\x4d")
    assert flag.bool is True


def test_lists_end_at_their_size_and_time(server: Rig, client: Client) -> None:
    client.insert(digest_entry=entry(LEARN, timeout_ms=50, size=3))
    for number in range(1, 5):
        server.pipeline.process(0, frame(1, source=number))
    server.service.tell_due()
    assert sources(client) == [1, 2, 3]
    server.clock.advance(0.049)
    server.service.tell_due()
    assert client.nothing_more()
    server.clock.advance(0.001)
    server.service.tell_due()
    assert sources(client) == [4]


def test_what_was_not_acknowledged_is_not_sent_again_until_the_time_is_over(server: Rig, client: Client) -> None:
    client.insert(digest_entry=entry(LEARN, ack_ms=100))

    def learn(number: int) -> None:
        server.pipeline.process(0, frame(1, source=number))
        server.service.tell_due()

    for number in (1, 1, 2):
        learn(number)
    assert [sources(client), sources(client)] == [[1], [2]]
    client.send(digest_ack=v1.DigestListAck(digest_id=LEARN, list_id=2))
    client.arbitrate()  # answered after the acknowledgement
    learn(1)
    learn(2)
    assert sources(client) == [2]
    server.clock.advance(0.2)
    learn(1)
    assert sources(client) == [1]
    assert client.nothing_more()


def test_what_was_not_acknowledged_is_held_for_one_to_two_time_outs() -> None:
    """As in PI, which looks at each list every time-out, and forgets it the second time."""
    pipeline = Pipeline.load((PROGRAMS / "digests.json").read_bytes(), engine="interpreter")
    entries = DigestEntries(bind(parse_p4info(P4INFO), pipeline.state))
    entries.write(v1.Update.INSERT, entry(LEARN, ack_ms=100))
    draw, now_ms, held_ms = random.Random(7), 0, list[int]()

    def learn(number: int) -> bool:
        pipeline.process(0, frame(1, source=number))
        return bool(entries.due(now_ms * MILLISECOND, 0))

    for number in range(60):
        now_ms += draw.randrange(300)
        assert learn(number)
        sent_ms = now_ms
        while True:
            now_ms += draw.randrange(1, 10)
            if learn(number):
                break
        held_ms.append(now_ms - sent_ms)
    assert all(100 <= held <= 210 for held in held_ms), held_ms
    assert max(held_ms) - min(held_ms) > 60, held_ms


def test_a_digest_is_sent_while_it_has_an_entry(server: Rig, client: Client) -> None:
    server.pipeline.process(0, frame(1, source=1))
    with pytest.raises(P4RuntimeError) as error:
        client.modify(digest_entry=entry(LEARN))
    assert error.value.failures[0].code is Code.NOT_FOUND
    client.insert(digest_entry=entry(LEARN, size=5))
    assert client.read_all(digest_entry={}) == [entry(LEARN, size=5)]
    client.modify(digest_entry=entry(LEARN, size=6))
    assert client.read_one(digest_entry={"digest_id": LEARN}).config.max_list_size == 6
    with pytest.raises(P4RuntimeError) as error:
        client.write(
            update(v1.Update.DELETE, digest_entry={"digest_id": LEARN}),
            update(v1.Update.INSERT, digest_entry=entry(12345)),
            atomicity=v1.WriteRequest.DATAPLANE_ATOMIC,
        )
    assert client.read_all(digest_entry={}) == [entry(LEARN, size=6)]
    server.pipeline.process(0, frame(1, source=2))
    server.service.tell_due()
    assert sources(client) == [2]  # and not 1, which came before the entry
    client.delete(digest_entry={"digest_id": LEARN})
    server.pipeline.process(0, frame(1, source=3))
    server.service.tell_due()
    assert client.nothing_more()


def test_a_thread_of_the_switch_sends_them(server: Rig, client: Client) -> None:
    client.insert(digest_entry=entry(LEARN))
    with contextlib.closing(Notices(server.service, lambda error: None)):
        server.pipeline.process(0, frame(1, source=9))
        assert sources(client) == [9]


def test_an_acknowledgement_of_no_digest_is_an_error(client: Client) -> None:
    client.send(digest_ack=v1.DigestListAck(digest_id=12345, list_id=1))
    error = client.receive().error
    assert (error.canonical_code, error.digest_list_ack.digest_list_ack.digest_id) == (Code.INVALID_ARGUMENT, 12345)
