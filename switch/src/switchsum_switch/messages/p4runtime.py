"""P4Runtime's messages, methods and errors, without its generated modules.

Its modules fail with protobuf 4 and later.  Their descriptors are plain data: p4runtime.binpb, beside this file,
has them (tools/p4runtime_descriptors.py), and they are built into message classes in a pool of their own, so that
another copy of the same protocol in this process is not disturbed.  Works on protobuf 3.20 and every later one.

`v1` holds the classes of p4/v1 (`v1.TableEntry`, `v1.WriteRequest`, ...), `config` those of p4/config/v1
(`config.P4Info`, ...), `METHODS` the service.  Section numbers are those of the P4Runtime specification, v1.5.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from ..errors import RemoteError, UsageError

STATUS_DETAILS_KEY: Final = "grpc-status-details-bin"
"""The trailer that carries a serialized google.rpc.Status."""

MAX_MESSAGE_BYTES: Final = 256 << 20
MAX_METADATA_BYTES: Final = 16 << 20
CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # A failed write reports on each of its updates in the trailers, and gRPC's default of 8 kB refuses a long report.
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
)
"""gRPC options for both sides; a client without them loses the details of long batches."""


def _load() -> tuple[Any, list[descriptor_pb2.FileDescriptorProto]]:
    """Return a pool with all files and the files themselves."""
    pool: Any = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    content = Path(__file__).with_name("p4runtime.binpb").read_bytes()
    files = list(descriptor_pb2.FileDescriptorSet.FromString(content).file)
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return pool, files


_POOL, _PROTOS = _load()
_FACTORY: Final[Any] = message_factory
_OLD_FACTORY: Final[Any] = None if hasattr(_FACTORY, "GetMessageClass") else _FACTORY.MessageFactory(_POOL)
"""Module of protobuf before 4.22, whose message classes lack their nested classes as attributes; else None."""


def message_class(name: str) -> Any:
    """Return the class of a message by its full name, such as `p4.v1.Update`."""
    descriptor = _POOL.FindMessageTypeByName(name)
    if _OLD_FACTORY is None:
        return _FACTORY.GetMessageClass(descriptor)
    made = _OLD_FACTORY.GetPrototype(descriptor)
    for nested in descriptor.nested_types:
        if not hasattr(made, nested.name):
            setattr(made, nested.name, message_class(nested.full_name))
    return made


def _package(name: str) -> Any:
    """Return the message classes of a protobuf package as attributes."""
    classes = [message.name for proto in _PROTOS if proto.package == name for message in proto.message_type]
    return SimpleNamespace(**{short: message_class(f"{name}.{short}") for short in classes})


v1: Final[Any] = _package("p4.v1")
config: Final[Any] = _package("p4.config.v1")
Status: Final[Any] = message_class("google.rpc.Status")


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method of the P4Runtime service; what gRPC's generic handlers and `channel.unary_unary` need to know."""

    name: str
    """Short name, such as `Write`."""
    path: str
    """gRPC path, such as `/p4.v1.P4Runtime/Write`."""
    request: Any
    """Message class; `FromString` reads and `SerializeToString` writes it."""
    response: Any
    """Message class."""
    client_streams: bool
    """Whether requests are a stream."""
    server_streams: bool
    """Whether responses are a stream."""


def _methods() -> Iterator[tuple[str, Method]]:
    for proto in _PROTOS:
        for service in proto.service:
            for method in service.method:
                yield (
                    method.name,
                    Method(
                        name=method.name,
                        path=f"/{proto.package}.{service.name}/{method.name}",
                        request=message_class(method.input_type[1:]),
                        response=message_class(method.output_type[1:]),
                        client_streams=method.client_streaming,
                        server_streams=method.server_streaming,
                    ),
                )


SERVICE: Final = "p4.v1.P4Runtime"
METHODS: Final[dict[str, Method]] = dict(_methods())
"""Write, Read, SetForwardingPipelineConfig, GetForwardingPipelineConfig, StreamChannel, Capabilities."""


def parse_p4info(text: str) -> Any:
    """Read a P4Info in text format; raises UsageError if the text is not one.

    Fields that our descriptors do not know are left out: a compiler may be newer than they are.
    """
    try:
        return text_format.Parse(text, config.P4Info(), allow_unknown_field=True, descriptor_pool=_POOL)
    except text_format.ParseError as error:
        raise UsageError(f"this is not a P4Info in text format: {error}") from error


def encode_uint(value: int) -> bytes:
    """Write an unsigned integer as the shortest big-endian byte string that holds it (section 8.4)."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode_uint(data: bytes, width_bits: int | None = None) -> int:
    """Read a byte string, shortest or not; ValueError where it is empty or wider than `width_bits`."""
    if not data:
        raise ValueError("the byte string is empty")
    value = int.from_bytes(data, "big")
    if width_bits is not None and value.bit_length() > width_bits:
        raise ValueError(f"0x{data.hex()} does not fit {width_bits} bits")
    return value


def encode_election_id(value: int) -> Any:
    """Write an election id, an unsigned 128-bit number."""
    return v1.Uint128(high=value >> 64, low=value & 0xFFFF_FFFF_FFFF_FFFF)


def decode_election_id(message: Any) -> int:
    """Read an election id."""
    return int(message.high) << 64 | int(message.low)


class Code(enum.IntEnum):
    """The canonical codes of google.rpc.Code, which gRPC shares."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one update of a Write or one entity of a Read."""

    code: Code = Code.OK
    message: str = ""
    """Why it failed."""


def encode_details(code: Code, message: str, outcomes: Sequence[Outcome]) -> bytes:
    """Write the status trailer: one p4.v1.Error for each update, in their order (section 10)."""
    status = Status(code=code, message=message)
    for outcome in outcomes:
        error = v1.Error(canonical_code=outcome.code, message=outcome.message)
        status.details.add(type_url=f"type.googleapis.com/{v1.Error.DESCRIPTOR.full_name}", value=_serialized(error))
    return _serialized(status)


def decode_details(data: bytes) -> list[Outcome]:
    """Read the status trailer; details of other types and of unknown codes come back as UNKNOWN."""
    outcomes = []
    for detail in Status.FromString(data).details:
        if detail.type_url.rpartition("/")[2] != v1.Error.DESCRIPTOR.full_name:
            outcomes.append(Outcome(code=Code.UNKNOWN, message=f"details of type {detail.type_url}"))
            continue
        error = v1.Error.FromString(detail.value)
        outcomes.append(Outcome(code=_code(error.canonical_code), message=error.message))
    return outcomes


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _code(number: int) -> Code:
    try:
        return Code(number)
    except ValueError:
        return Code.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One update that the switch refused."""

    index: int
    """Position in the request, from 0."""
    code: Code
    message: str
    update: Any
    """The update or entity as it was sent; None where the caller did not pass the request's updates on."""

    def __str__(self) -> str:
        sent = "" if self.update is None else f" [{text_format.MessageToString(self.update, as_one_line=True)}]"
        return f"update {self.index}: {self.code.name}: {self.message}{sent}"


class P4RuntimeError(RemoteError):
    """A P4Runtime call failed; `failures` are the updates that the switch refused, where it said which."""

    def __init__(self, operation: str, code: Code, message: str, failures: Sequence[Failure] = ()) -> None:
        text = f"{operation}: {code.name}: {message}"
        if failures:
            text += f" ({failures[0]}{f'; and {len(failures) - 1} more' if len(failures) > 1 else ''})"
        super().__init__(text)
        self.operation = operation
        self.code = code
        self.message = message
        self.failures = tuple(failures)

    @classmethod
    def from_rpc(cls, operation: str, error: Any, updates: Sequence[Any] = ()) -> P4RuntimeError:
        """Read a grpc.RpcError of a call that sent `updates`."""
        code, message = _code(error.code().value[0]), error.details() or ""
        trailers = dict(error.trailing_metadata() or ())
        try:
            outcomes = decode_details(trailers.get(STATUS_DETAILS_KEY, b""))
        except DecodeError:
            outcomes = []
        failures = [
            Failure(
                index=index,
                code=outcome.code,
                message=outcome.message,
                update=updates[index] if index < len(updates) else None,
            )
            for index, outcome in enumerate(outcomes)
            if outcome.code is not Code.OK
        ]
        return cls(operation, code, message, failures)
