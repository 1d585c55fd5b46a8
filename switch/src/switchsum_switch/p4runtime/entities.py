"""One loaded program as the entities of P4Runtime: updates go in, entities come out (sections 12 and 13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from switchsum_switch.messages.p4runtime import Code, Outcome, v1

from ..errors import ProgramError, StateError
from ..state.clock import Clock
from ..state.state import ProgramState
from .arrays import Counters, Meters, Registers
from .digest_entries import DigestEntries
from .idle import IdleTimeouts
from .profile_entries import Profiles
from .refusal import Refused, as_refused, invalid, refusals
from .replication import ReplicationEngine
from .schema import bind
from .table_entries import DELETE, INSERT, MODIFY, TableEntries
from .targets import Undo
from .value_set_entries import ValueSets

Writer = Callable[[int, Any], Undo]
Reader = Callable[[Any], Iterator[Any]]
Permits = Callable[[Any], bool]
"""Whether a client may write an entity."""

_DONE: Final = Outcome()
_ABORTED: Final = Outcome(code=Code.ABORTED, message="another update of this atomic batch failed")


class Entities:
    """The entities of one loaded program."""

    def __init__(self, config: Any, state: ProgramState, clock: Clock | None = None) -> None:
        self.config = config
        """The ForwardingPipelineConfig from which it was loaded."""
        self.state = state
        self.schema = bind(config.p4info, state)
        self._clock = clock or Clock()
        tables, counters = TableEntries(self.schema, self._clock), Counters(self.schema)
        meters = Meters(self.schema)
        value_sets, profiles = ValueSets(self.schema), Profiles(self.schema)
        registers, replication = Registers(self.schema), ReplicationEngine(state)
        self.digests = DigestEntries(self.schema)
        self._idle = IdleTimeouts(self.schema, tables)
        self._handlers: dict[str, tuple[Writer, Reader]] = {
            "table_entry": (tables.write, tables.read),
            "action_profile_member": (profiles.write_member, profiles.read_member),
            "action_profile_group": (profiles.write_group, profiles.read_group),
            "direct_counter_entry": (tables.write_counter, tables.read_counter),
            "direct_meter_entry": (tables.write_meter, tables.read_meter),
            "meter_entry": (meters.write, meters.read),
            "value_set_entry": (value_sets.write, value_sets.read),
            "counter_entry": (counters.write, counters.read),
            "register_entry": (registers.write, registers.read),
            "digest_entry": (self.digests.write, self.digests.read),
            "packet_replication_engine_entry": (replication.write, replication.read),
            "extern_entry": (_refuse_extern, _no_externs),
        }

    def write(self, updates: Sequence[Any], atomicity: int, permits: Permits | None = None) -> list[Outcome]:
        """Carry out a batch of updates and return the outcome of each; of entities that `permits` forbids, none.

        An atomic batch is carried out as a whole or not at all, and no packet sees a part of it.  Otherwise packets may
        run between any two updates, and an update that fails does not stop the others.
        """
        if atomicity == v1.WriteRequest.CONTINUE_ON_ERROR:
            return [self._attempt(update, permits)[0] for update in updates]
        with self.state.lock:
            return self._write_atomically(updates, permits)

    def read(self, query: Any) -> list[Any]:
        """Return the entities that an entity selects; raises Refused if it is no valid query."""
        kind = query.WhichOneof("entity")
        _, read = self._handler(kind)
        with self.state.lock, refusals():
            return [v1.Entity(**{kind: message}) for message in read(getattr(query, kind))]

    @property
    def tells(self) -> bool:
        """Whether `due` may ever have a message for the stream."""
        return bool(self.schema.digests) or self._idle.has_tables

    def due(self) -> list[Any]:
        """Return the messages of the stream that time or packets have made due."""
        made: list[Any] = []
        if self.digests.are_waiting:
            with self.state.lock:
                lists = self.digests.due(1000 * self._clock.now_us(), self._clock.epoch_ns())
            made += [v1.StreamMessageResponse(digest=one) for one in lists]
        if self._idle.is_due(self._clock.now_us()):
            with self.state.lock:
                entries = self._idle.due(self._clock.now_us())
            if entries:
                notice = v1.IdleTimeoutNotification(table_entry=entries, timestamp=self._clock.epoch_ns())
                made.append(v1.StreamMessageResponse(idle_timeout_notification=notice))
        return made

    def acknowledge(self, message: Any) -> None:
        """Take a DigestListAck; raises Refused for a digest that P4Info does not have."""
        with self.state.lock:
            self.digests.acknowledge(message)

    def _write_atomically(self, updates: Sequence[Any], permits: Permits | None) -> list[Outcome]:
        # Updates are carried out in order; if one fails, those before it are undone, the newest first.
        undos: list[Undo] = []
        for index, update in enumerate(updates):
            outcome, undo = self._attempt(update, permits)
            if outcome.code is not Code.OK:
                for step in reversed(undos):
                    step()
                return [outcome if position == index else _ABORTED for position in range(len(updates))]
            undos.append(undo)
        return [Outcome()] * len(updates)

    def _attempt(self, update: Any, permits: Permits | None) -> tuple[Outcome, Undo]:
        try:
            if permits is not None and not permits(update.entity):
                raise Refused(Code.PERMISSION_DENIED, "the role may not write this entity")
            with self.state.lock:
                return _DONE, self._write(update)
        except (Refused, StateError, ProgramError) as error:
            refused = as_refused(error)
            return Outcome(code=refused.code, message=refused.message), _nothing

    def _write(self, update: Any) -> Undo:
        if update.type not in (INSERT, MODIFY, DELETE):
            raise invalid("the update is neither INSERT, MODIFY nor DELETE")
        entity = update.entity
        kind = entity.WhichOneof("entity")
        write, _ = self._handler(kind)
        return write(update.type, getattr(entity, kind))

    def _handler(self, kind: str | None) -> tuple[Writer, Reader]:
        if kind is None:
            raise invalid("no entity is given")
        if kind not in self._handlers:
            raise Refused(Code.UNIMPLEMENTED, f"{kind} is not supported")
        return self._handlers[kind]


def _refuse_extern(_kind: int, _message: Any) -> Undo:
    raise Refused(Code.UNIMPLEMENTED, "extern_entry is not supported")


def _no_externs(query: Any) -> Iterator[Any]:
    """Yield nothing where all externs are asked for: no program has any.  Raises Refused for one of them."""
    if query.extern_type_id or query.extern_id:
        raise invalid(f"P4Info has no extern {query.extern_id} of type {query.extern_type_id}")
    return iter(())


def _nothing() -> None:
    """Undo an update that was refused: nothing was done."""
