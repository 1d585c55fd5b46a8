"""Role configs: what a role may write and hears (P4Runtime specification, section 5.2).

The specification leaves the scheme open.  This is Stratum's, whose message `stratum.P4RoleConfig` finsy also has
(stratum/public/proto/p4_role_config.proto).  Its class is made here from a description of the same names and numbers,
in a pool of its own, so that another copy in this process is left alone.  A role without a config may do everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from switchsum_switch.messages.p4runtime import v1

from .refusal import invalid

_NAME: Final = "stratum.P4RoleConfig"
_FIELDS: Final = {
    "P4RoleConfig": (
        "exclusive_p4_ids *uint32",
        "shared_p4_ids *uint32",
        "packet_in_filter PacketFilter",
        "receives_packet_ins bool",
        "can_push_pipeline bool",
    ),
    "P4RoleConfig.PacketFilter": ("metadata_id uint32", "value bytes"),
}
"""Messages and their fields, numbered from 1; a star is before repeated ones."""
_IDS: Final = {
    "table_entry": "table_id",
    "action_profile_member": "action_profile_id",
    "action_profile_group": "action_profile_id",
    "meter_entry": "meter_id",
    "counter_entry": "counter_id",
    "value_set_entry": "value_set_id",
    "register_entry": "register_id",
    "digest_entry": "digest_id",
}
"""The id that an entity belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleConfig:
    """What the clients of a role may do."""

    exclusive: frozenset[int] = frozenset()
    """Ids of P4Info that this role may write, and no other role with a config."""
    shared: frozenset[int] = frozenset()
    """Ids that it may write as others may."""
    packet_filter: tuple[int, bytes] | None = None
    """It hears packet-ins whose metadata of this id has this value; None: all."""
    receives_packet_ins: bool = False
    can_push_pipeline: bool = False
    message: Any = field(default=None, compare=False)
    """Message as a client wrote it."""

    def permits(self, entity: Any) -> bool:
        """Return whether the role may write an entity; it also reads no others.

        Multicast groups and clone sessions have no ids in P4Info, and every role may write them.
        """
        kind = entity.WhichOneof("entity")
        if kind in ("direct_counter_entry", "direct_meter_entry"):
            return self._has(getattr(entity, kind).table_entry.table_id)
        return kind not in _IDS or self._has(getattr(getattr(entity, kind), _IDS[kind]))

    def heard(self, response: Any) -> Any:
        """Return what the role hears of a StreamMessageResponse; None: nothing."""
        match response.WhichOneof("update"):
            case "packet":
                return response if self._hears(response.packet) else None
            case "digest":
                return response if self._has(response.digest.digest_id) else None
            case "idle_timeout_notification":
                notice = response.idle_timeout_notification
                entries = [entry for entry in notice.table_entry if self._has(entry.table_id)]
                made = v1.IdleTimeoutNotification(table_entry=entries, timestamp=notice.timestamp)
                return v1.StreamMessageResponse(idle_timeout_notification=made) if entries else None
        return response

    def overlaps(self, other: RoleConfig) -> bool:
        """Return whether one of two roles claims for itself what the other one may write."""
        return bool(self.exclusive & (other.exclusive | other.shared) or self.shared & other.exclusive)

    def _has(self, identifier: int) -> bool:
        return identifier in self.exclusive or identifier in self.shared

    def _hears(self, packet: Any) -> bool:
        return self.receives_packet_ins and (
            self.packet_filter is None
            or any((one.metadata_id, one.value) == self.packet_filter for one in packet.metadata)
        )


def decode_role_config(packed: Any) -> RoleConfig:
    """Read the config of a role, a google.protobuf.Any; raises Refused for one of another scheme."""
    if packed.type_url.rpartition("/")[2] != _NAME:
        raise invalid(f"a role's config is a {_NAME}, not {packed.type_url or 'something without a type'}")
    try:
        message = MESSAGE.FromString(packed.value)
    except DecodeError as error:
        raise invalid(f"the role's config is no {_NAME}") from error
    wanted = message.packet_in_filter
    made = RoleConfig(
        exclusive=frozenset(message.exclusive_p4_ids),
        shared=frozenset(message.shared_p4_ids),
        packet_filter=(wanted.metadata_id, wanted.value) if message.HasField("packet_in_filter") else None,
        receives_packet_ins=message.receives_packet_ins,
        can_push_pipeline=message.can_push_pipeline,
        message=packed,
    )
    if made.exclusive & made.shared:
        both = ", ".join(map(str, sorted(made.exclusive & made.shared)))
        raise invalid(f"a role shares what it claims for itself: {both}")
    return made


def _make_class() -> Any:
    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {"uint32": kinds.TYPE_UINT32, "bool": kinds.TYPE_BOOL, "bytes": kinds.TYPE_BYTES}
    package, _, first = _NAME.rpartition(".")
    file = descriptor_pb2.FileDescriptorProto(name="switchsum/role_config.proto", package=package, syntax="proto3")
    outer = file.message_type.add(name=first)
    for name, fields in _FIELDS.items():
        message = outer if name == first else outer.nested_type.add(name=name.rpartition(".")[2])
        for number, text in enumerate(fields, 1):
            label, kind = text.split()
            repeated = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            made = message.field.add(name=label, number=number, label=repeated)
            kind = kind.lstrip("*")
            if kind in scalars:
                made.type = scalars[kind]
            else:
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".{_NAME}.{kind}"
    pool: Any = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    factory: Any = message_factory
    descriptor = pool.FindMessageTypeByName(_NAME)
    if hasattr(factory, "GetMessageClass"):
        return factory.GetMessageClass(descriptor)
    return factory.MessageFactory(pool).GetPrototype(descriptor)  # protobuf before 4.22


MESSAGE: Final[Any] = _make_class()
"""The class of `stratum.P4RoleConfig`."""
