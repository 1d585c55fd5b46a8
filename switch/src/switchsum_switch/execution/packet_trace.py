"""Traces as BMv2's `packet_trace.proto` (2026) has them: stages that a packet entered and left, and what became of it.

BMv2 writes each as a text file `trace_N.txtpb`.  The schema has one trace for each copy of a packet that leaves or is
dropped, and knows no tables, fields or entries: `Step` has these.  The classes of the messages are made here from a
description of the same names and numbers, in a pool of their own, so that another copy in this process is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

if TYPE_CHECKING:
    from .trace import Step

_PACKAGE: Final = "p4.bm"
_FIELDS: Final = {
    "PacketTrace": ("input InputPacket", "root TraceTree"),
    "InputPacket": ("packet_id uint64", "ingress_port uint32"),
    "TraceTree": ("events *TraceEvent", "transmit outcome.Transmit", "drop outcome.Drop"),
    "TraceEvent": ("pipeline_stage event.PipelineStageEvent",),
    "PipelineStageEvent": ("stage_name string", "stage_kind +StageKind", "direction +Direction"),
    "Transmit": ("egress_port uint32", "packet_size uint32"),
    "Drop": (),
}
"""Messages and their fields, numbered from 1: a star is before repeated ones, the name of a oneof and a dot before its
own, a plus before enumerations of the message."""
_ENUMS: Final = {
    "StageKind": ("STAGE_KIND_UNSPECIFIED", "PARSER", "CONTROL", "DEPARSER"),
    "Direction": ("DIRECTION_UNSPECIFIED", "ENTER", "EXIT"),
}
_PARSER, _CONTROL, _DEPARSER = 1, 2, 3
_ENTER, _EXIT = 1, 2
_STAGES: Final = {"parser": _PARSER, "ingress": _CONTROL, "egress": _CONTROL, "deparser": _DEPARSER}
"""Stages, by the names that they have in BMv2's JSON, which our steps have for kinds."""


def _file() -> descriptor_pb2.FileDescriptorProto:
    field = descriptor_pb2.FieldDescriptorProto
    scalars = {"uint64": field.TYPE_UINT64, "uint32": field.TYPE_UINT32, "string": field.TYPE_STRING}
    file = descriptor_pb2.FileDescriptorProto(name="switchsum/packet_trace.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, text in enumerate(fields, 1):
            label, kind = text.split()
            made = message.field.add(name=label, number=number, label=field.LABEL_OPTIONAL)
            if kind in scalars:
                made.type = scalars[kind]
                continue
            if kind.startswith("*"):
                made.label = field.LABEL_REPEATED
            oneof, _, kind_name = kind.lstrip("*+").rpartition(".")
            if oneof:
                if not message.oneof_decl:
                    message.oneof_decl.add(name=oneof)
                made.oneof_index = 0
            if kind.startswith("+"):
                made.type, made.type_name = field.TYPE_ENUM, f".{_PACKAGE}.{name}.{kind_name}"
                values = message.enum_type.add(name=kind_name).value
                for value, word in enumerate(_ENUMS[kind_name]):
                    values.add(name=word, number=value)
            else:
                made.type, made.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind_name}"
    return file


def _message_class(name: str) -> Any:
    pool: Any = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_file().SerializeToString())
    factory: Any = message_factory
    descriptor = pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
    if hasattr(factory, "GetMessageClass"):
        return factory.GetMessageClass(descriptor)
    return factory.MessageFactory(pool).GetPrototype(descriptor)  # protobuf before 4.22


PacketTrace: Final[Any] = _message_class("PacketTrace")
"""The class of the message `p4.bm.PacketTrace`."""


def packet_traces(frame: Step, packet_id: int = 0) -> list[Any]:
    """Return a `PacketTrace` for each copy of a frame that has left or was dropped, in order.

    `packet_id` is that of the first; those of further copies follow it, since BMv2 names files by it.
    """
    made = []
    for number, (stages, end) in enumerate(_copies(frame.steps, [])):
        trace = PacketTrace()
        trace.input.packet_id, trace.input.ingress_port = packet_id + number, frame.detail["port"]
        for stage in stages:
            for direction in (_ENTER, _EXIT):
                event = trace.root.events.add().pipeline_stage
                event.stage_name, event.stage_kind, event.direction = stage, _STAGES[stage], direction
        if end.kind == "send":
            trace.root.transmit.egress_port = end.detail["port"]
            trace.root.transmit.packet_size = len(end.detail["frame"]) // 2
        else:
            trace.root.drop.SetInParent()
        made.append(trace)
    return made


def _copies(steps: Sequence[Step], before: list[str]) -> Iterator[tuple[list[str], Step]]:
    """Yield the stages that each copy went through, and how it ended; `before`: stages of what it is a copy of."""
    # Copies share the stages before egress, each has an egress of its own.
    shared = own = before
    for step in steps:
        match step.kind:
            case "parser" | "ingress":
                shared = own = [*shared, step.kind]
            case "egress":
                own = [*shared, step.kind]
            case "send":
                yield [*own, "deparser"], step
            case "drop":
                yield own, step
            case "recirculate":
                shared = own = [*own, "deparser"]
            case "clone" | "copy":
                yield from _copies(step.steps, own)


def write_packet_traces(frame: Step, folder: Path, packet_id: int = 0) -> list[Path]:
    """Write what `packet_traces` returns as BMv2 does: a text file for each; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for trace in packet_traces(frame, packet_id):
        made.append(folder / f"trace_{trace.input.packet_id}.txtpb")
        made[-1].write_text(text_format.MessageToString(trace))
    return made
