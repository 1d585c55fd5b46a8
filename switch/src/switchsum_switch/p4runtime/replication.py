"""Multicast groups and clone sessions: PacketReplicationEngineEntry (P4Runtime specification, 9.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from switchsum_switch.messages.p4runtime import encode_uint, v1

from ..errors import EntryExists, EntryMissing
from ..state.state import CloneSession, ProgramState, Replica
from .refusal import invalid
from .table_entries import DELETE, INSERT
from .targets import Undo
from .translate import PORT_BITS, decode_value

Stored = TypeVar("Stored")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenAs:
    """The form in which a client wrote a group or session; the switch does not use it, but reads give it back."""

    port_numbers: bool = False
    """The client named ports in the deprecated field `egress_port`, and reads them there."""
    metadata: bytes = b""


class ReplicationEngine:
    """The replication engine of one program; every method is called under the program's lock."""

    def __init__(self, state: ProgramState) -> None:
        self._multicast = state.multicast
        self._clones = state.clones
        self._queues = state.queues
        self._forms: dict[tuple[str, int], WrittenAs] = {}

    def write(self, kind: int, message: Any) -> Undo:
        """Carry out an update of a PacketReplicationEngineEntry."""
        match message.WhichOneof("type"):
            case "multicast_group_entry":
                return self._write_group(kind, message.multicast_group_entry)
            case "clone_session_entry":
                return self._write_session(kind, message.clone_session_entry)
        raise invalid("neither a multicast group nor a clone session is given")

    def read(self, query: Any) -> Iterator[Any]:
        """Yield the groups or sessions that a PacketReplicationEngineEntry selects; id 0 stands for all."""
        match query.WhichOneof("type"):
            case "multicast_group_entry":
                group = query.multicast_group_entry.multicast_group_id
                groups = {group: self._multicast.get(group)} if group else self._multicast.groups()
                for number, replicas in groups.items():
                    yield self._encode_group(number, replicas)
            case "clone_session_entry":
                session = query.clone_session_entry.session_id
                sessions = {session: self._clones.get(session)} if session else self._clones.sessions()
                for number, stored in sessions.items():
                    yield self._encode_session(number, stored)
            case _:
                raise invalid("neither multicast groups nor clone sessions are asked for")

    def _write_group(self, kind: int, message: Any) -> Undo:
        group, multicast = message.multicast_group_id, self._multicast
        old = _current("multicast group", kind, group, multicast.get)
        if kind == DELETE:
            multicast.delete(group)
            form = WrittenAs()
        else:
            replicas, port_numbers = _decode_replicas(message.replicas)
            multicast.set(group, replicas)
            form = WrittenAs(port_numbers=port_numbers, metadata=message.metadata)
        restore_form = self._remember(("group", group), form)

        def undo() -> None:
            restore_form()
            if old is None:
                multicast.delete(group)
            else:
                multicast.set(group, old)

        return undo

    def _write_session(self, kind: int, message: Any) -> Undo:
        session, clones = message.session_id, self._clones
        old = _current("clone session", kind, session, clones.get)
        if kind == DELETE:
            clones.delete(session)
            form = WrittenAs()
        else:
            # The form is kept beside the switch's own object: reads give back what the client wrote.
            if message.class_of_service >= self._queues.count:
                raise invalid(f"class of service {message.class_of_service}: a port has {self._queues.count} queues")
            if message.packet_length_bytes < 0:
                raise invalid("packet_length_bytes is negative")
            replicas, port_numbers = _decode_replicas(message.replicas)
            clones.set(session, replicas, message.packet_length_bytes, message.class_of_service)
            form = WrittenAs(port_numbers=port_numbers)
        restore_form = self._remember(("session", session), form)

        def undo() -> None:
            restore_form()
            if old is None:
                clones.delete(session)
            else:
                clones.set(session, old.replicas, old.length_limit, old.class_of_service)

        return undo

    def _remember(self, place: tuple[str, int], form: WrittenAs) -> Undo:
        """Keep the form of an entry; return a function that restores the old form."""
        old = self._forms.get(place, WrittenAs())
        self._put_form(place, form)
        return lambda: self._put_form(place, old)

    def _put_form(self, place: tuple[str, int], form: WrittenAs) -> None:
        if form == WrittenAs():
            self._forms.pop(place, None)
        else:
            self._forms[place] = form

    def _encode_group(self, group: int, replicas: Iterable[Replica]) -> Any:
        form = self._forms.get(("group", group), WrittenAs())
        message = v1.PacketReplicationEngineEntry()
        entry = message.multicast_group_entry
        entry.multicast_group_id, entry.metadata = group, form.metadata
        entry.replicas.extend(_encode_replicas(replicas, form))
        return message

    def _encode_session(self, session: int, stored: CloneSession) -> Any:
        form = self._forms.get(("session", session), WrittenAs())
        message = v1.PacketReplicationEngineEntry()
        entry = message.clone_session_entry
        entry.session_id, entry.packet_length_bytes = session, stored.length_limit
        entry.class_of_service = stored.class_of_service
        entry.replicas.extend(_encode_replicas(stored.replicas, form))
        return message


def _current(what: str, kind: int, number: int, get: Callable[[int], Stored]) -> Stored | None:
    """Return what is stored under a number, None if nothing is; raises Refused if the kind of update forbids that."""
    if not number:
        raise invalid(f"no {what} has the number 0")
    try:
        stored = get(number)
    except EntryMissing:
        if kind == INSERT:
            return None
        raise
    if kind == INSERT:
        raise EntryExists(f"{what} {number} is there already")
    return stored


def _decode_replicas(messages: Iterable[Any]) -> tuple[list[Replica], bool]:
    """Read replicas; also return whether all name their port in the deprecated field."""
    replicas, kinds = [], set()
    for message in messages:
        kind = message.WhichOneof("port_kind")
        if kind is None:
            raise invalid("a replica names no port")
        port = message.egress_port if kind == "egress_port" else decode_value(message.port, PORT_BITS, "port")
        backups = tuple(
            Replica(decode_value(backup.port, PORT_BITS, "port of a backup"), backup.instance)
            for backup in message.backup_replicas
        )
        replicas.append(Replica(port, message.instance, backups))
        kinds.add(kind)
    return replicas, kinds == {"egress_port"}


def _encode_replicas(replicas: Iterable[Replica], form: WrittenAs) -> list[Any]:
    made = []
    for replica in replicas:
        port = {"egress_port": replica.port} if form.port_numbers else {"port": encode_uint(replica.port)}
        message = v1.Replica(**port, instance=replica.instance)
        for backup in replica.backups:
            message.backup_replicas.add(port=encode_uint(backup.port), instance=backup.instance)
        made.append(message)
    return made
