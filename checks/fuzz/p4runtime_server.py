"""Messages into the P4Runtime server: requests of every method, made up from true ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.message import DecodeError

from checks.fuzz.choices import Choices, damage
from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.messages.p4runtime import encode_election_id, parse_p4info, v1
from switchsum_switch.p4runtime.device import Device
from switchsum_switch.p4runtime.refusal import Refused
from switchsum_switch.p4runtime.service import Service
from switchsum_switch.p4runtime.stream import Stream

FOLDER: Final = Path(__file__).parents[2] / "switch" / "tests" / "p4runtime"
DEVICE: Final = 7
ELECTION: Final = 5
CALLS: Final = 8
WILDCARDS: Final = (
    "table_entry",
    "counter_entry",
    "direct_counter_entry",
    "register_entry",
    "action_profile_member",
    "action_profile_group",
    "meter_entry",
)


class Aborted(Exception):
    """A call that was ended with a status, as gRPC's context does it."""


class _Context:
    """As much of gRPC's context as the service uses."""

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        assert isinstance(code, grpc.StatusCode)
        assert isinstance(details, str)
        raise Aborted(details)

    def set_trailing_metadata(self, metadata: Any) -> None:
        assert metadata


class Target:
    """One server with a program of ours, whose state lives on from input to input."""

    def __init__(self) -> None:
        self._config = v1.ForwardingPipelineConfig(
            p4info=parse_p4info((FOLDER / "entities.p4info.txtpb").read_text()),
            p4_device_config=(FOLDER / "entities.json").read_bytes(),
        )
        self._fresh()

    def _fresh(self) -> None:
        device = Device(lambda config: Pipeline.load(config, engine="interpreter"))
        self._service = Service(DEVICE, device, lambda frame: None)
        self._stream = Stream(bool)
        arbitration = v1.MasterArbitrationUpdate(device_id=DEVICE, election_id=encode_election_id(ELECTION))
        self._service._receive(self._stream, v1.StreamMessageRequest(arbitration=arbitration))
        request = self._of_primary(v1.SetForwardingPipelineConfigRequest)
        request.action = v1.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        request.config.CopyFrom(self._config)
        self._service.set_config(request, _context())

    def _of_primary(self, kind: Any) -> Any:
        return kind(device_id=DEVICE, election_id=encode_election_id(ELECTION))

    def run(self, data: bytes) -> None:
        """Make some calls, one after the other."""
        choices = Choices(data)
        for _ in range(CALLS):
            if choices.is_over:
                break
            call, request = choices.pick(self._calls())(choices)
            try:
                broken = type(request).FromString(damage(request.SerializeToString(), choices))
            except DecodeError:
                continue  # gRPC refuses it before the service sees it
            try:
                answer = call(broken)
                if isinstance(answer, Iterator):
                    for message in itertools.islice(answer, 64):
                        message.SerializeToString()
            except (Aborted, Refused):
                pass
        self._drain()

    def _drain(self) -> None:
        self._stream.close()
        for message in self._stream:
            message.SerializeToString()

    def _calls(self) -> tuple[Callable[[Choices], tuple[Callable[[Any], Any], Any]], ...]:
        return self._write, self._write, self._read, self._set_config, self._get_config, self._stream_message

    def _write(self, choices: Choices) -> tuple[Callable[[Any], Any], Any]:
        request = self._of_primary(v1.WriteRequest)
        request.atomicity = choices.below(4)
        for _ in range(1 + choices.below(3)):
            update = request.updates.add(type=choices.below(4))
            self._fill(update.entity, choices)
        return lambda message: self._service.write(message, _context()), request

    def _read(self, choices: Choices) -> tuple[Callable[[Any], Any], Any]:
        request = v1.ReadRequest(device_id=DEVICE)
        for _ in range(1 + choices.below(3)):
            entity = request.entities.add()
            if choices.below(2):
                getattr(entity, choices.pick(WILDCARDS)).SetInParent()
            else:
                self._fill(entity, choices)
        return lambda message: self._service.read(message, _context()), request

    def _fill(self, entity: Any, choices: Choices) -> None:
        """Fill in something that refers to what the program has."""
        info = self._config.p4info
        match choices.below(5):
            case 0 | 1:
                self._fill_entry(entity.table_entry, choices)
            case 2:
                register = choices.pick(info.registers) if info.registers else None
                entity.register_entry.register_id = register.preamble.id if register else 1
                entity.register_entry.index.index = choices.number(2)
                entity.register_entry.data.bitstring = choices.number(2).to_bytes(2)
            case 3:
                group = entity.packet_replication_engine_entry.multicast_group_entry
                group.multicast_group_id = choices.number(2)
                for _ in range(choices.below(3)):
                    group.replicas.add(egress_port=choices.number(2), instance=choices.number(1))
            case _:
                session = entity.packet_replication_engine_entry.clone_session_entry
                session.session_id = choices.number(2)
                session.packet_length_bytes = choices.number(1)
                session.replicas.add(egress_port=choices.number(1), instance=1)

    def _fill_entry(self, entry: Any, choices: Choices) -> None:
        """Fill in an entry of one of the program's tables."""
        info = self._config.p4info
        table = choices.pick(info.tables)
        entry.table_id, entry.priority = table.preamble.id, choices.below(3)
        for field in table.match_fields:
            if choices.below(4) == 0:
                continue
            value = choices.number(1 + choices.below(4)).to_bytes(4).lstrip(b"\0") or b"\0"
            match = entry.match.add(field_id=field.id)
            kind = choices.pick(("exact", "ternary", "lpm", "range", "optional"))
            if kind == "range":
                match.range.low, match.range.high = value, b"\xff"
            elif kind == "lpm":
                match.lpm.value, match.lpm.prefix_len = value, choices.below(40)
            elif kind == "ternary":
                match.ternary.value, match.ternary.mask = value, b"\xff"
            else:
                getattr(match, kind).value = value
        if table.action_refs and choices.below(8):
            action = entry.action.action
            action.action_id = choices.pick(table.action_refs).id
            for param in next(a.params for a in info.actions if a.preamble.id == action.action_id):
                action.params.add(param_id=param.id, value=bytes([choices.below(256)]))

    def _set_config(self, choices: Choices) -> tuple[Callable[[Any], Any], Any]:
        request = self._of_primary(v1.SetForwardingPipelineConfigRequest)
        request.action = choices.below(7)
        if choices.below(2):
            request.config.CopyFrom(self._config)
            request.config.cookie.cookie = choices.number(4)
        return lambda message: self._service.set_config(message, _context()), request

    def _get_config(self, choices: Choices) -> tuple[Callable[[Any], Any], Any]:
        request = v1.GetForwardingPipelineConfigRequest(device_id=DEVICE, response_type=choices.below(6))
        return lambda message: self._service.get_config(message, _context()), request

    def _stream_message(self, choices: Choices) -> tuple[Callable[[Any], Any], Any]:
        request = v1.StreamMessageRequest()
        match choices.below(4):
            case 0:
                request.arbitration.device_id = DEVICE
                request.arbitration.election_id.CopyFrom(encode_election_id(ELECTION))
            case 1:
                request.packet.payload = choices.number(8).to_bytes(8)
                request.packet.metadata.add(metadata_id=choices.below(4), value=b"\1")
            case 2:
                request.digest_ack.digest_id = choices.number(2)
            case _:
                request.other.type_url = "x"
        return lambda message: self._service._receive(self._stream, message), request


def _context() -> Any:
    return _Context()


def seeds() -> Iterator[bytes]:
    """Return inputs that call every method."""
    for call in range(6):
        yield bytes([call, 1, 0, 1, 2, 1, 1, 1, 2, 9])
        yield bytes([call, *range(3, 90)])
        yield bytes([call, *range(250, 100, -3)])
