"""One connection to a switch: program, tables, groups, counters and cells, all over P4Runtime.

Cells are registers, and BMv2 does not let P4Runtime read registers.  So the controller asks the P4 program itself: it
sends a query frame by packet-out, and the program answers with a state frame by packet-in.  That works on every switch.
Where registers can be read, `read_numbers` reads all cells of a job at once: a job's start waits for it.
Packet-outs and packet-ins may be lost, so `_exchange` sends again what was not answered.
"""

from __future__ import annotations

import hashlib
import queue
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from switchsum_protocol.errors import SwitchLost
from switchsum_protocol.frame import AT, MAX_WORKERS, REASONS, Header, Kind, Reason
from switchsum_protocol.wire import Packet, build_frame, parse_frame
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError, decode_uint, parse_p4info, v1
from switchsum_switch.messages.samples import SampledFrame, SampleRequest
from switchsum_switch.process.start_limit import HINT, start_limit
from switchsum_switch.wires.headers import Address

from ..jobs.slots import Cell
from ..tables.entries import Change, Entry, Group, SwitchState, Write
from ..tables.names import ADMISSION, IDENTITY, RESULT_ADDRESS
from .client import P4RuntimeClient, Pipeline
from .lldp import LLDP_HEAD
from .schema import Schema, decode_group, encode_group

CELL_MEMBERS: Final = "SwitchIngress.dispatch.cells.seen_members"
"""Register array with one value for each cell; a slot has two cells.  Its low half is the bitmap of contributors."""
CELL_TAGS: Final = "SwitchIngress.dispatch.cells.tags"
"""Register array of what the contributions to a cell have in common; the first 32 of its bits are the number."""
_TAG_BEHIND_NUMBER: Final = 88
"""Bits of a tag behind the number (`SLOT_ALL_BUT_NUMBER` in p4src/slot.p4)."""
COUNTERS: Final = ("SwitchIngress.reply.events", "SwitchEgress.events")
MEMBER_EVENTS: Final = "SwitchIngress.reply.member_events"
"""Counter by multicast group, rank and reason, of what is not CONTRIBUTED."""
MEMBER_REASONS: Final = (
    *(Reason.OVERFLOW, Reason.MISMATCH, Reason.HELD, Reason.REPEATED, Reason.STALE, Reason.TAKEN),
    *(Reason.OPERATOR, Reason.FORMAT, Reason.SLOT, Reason.PADDING, Reason.COOKIE),
)
"""Reasons, other than CONTRIBUTED, of contributions that have a member's address."""
CPU_SOURCE: Final = Address(mac=0x02_00_00_00_00_FF, ip=0, port=0)
"""Source address of query frames; answers go to the CPU port, whatever their address."""

QUERY_WINDOW: Final = 32
"""Most queries without an answer at a time; BMv2 queues 64 answers for the CPU port and drops further ones."""
QUERY_TIMEOUT_S: Final = 0.25
QUERY_S: Final = 10.0
"""Seconds that the switch may answer no query: a few ms if cores are free, far more beside twenty other processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One build of the P4 program, compiled for a number of lanes per frame."""

    lanes_per_frame: int
    """Lanes of 32 bits in one frame."""
    device_config: bytes
    """BMv2 JSON."""
    p4info: str
    """P4Info in protobuf's text format."""

    @property
    def digest(self) -> str:
        """SHA-256 of the build, in hexadecimal."""
        return hashlib.sha256(self.device_config + b"\0" + self.p4info.encode()).hexdigest()

    @property
    def cookie(self) -> int:
        """The first 64 bits of the digest, by which the controller recognises its program on the switch."""
        return int(self.digest[:16], 16)

    @property
    def total_slots(self) -> int:
        """Number of slots of the switch; raises UsageError if the P4Info is not that of this program."""
        return Schema(parse_p4info(self.p4info)).register_size(CELL_MEMBERS) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a switch that do not follow from its program."""

    growth_bytes: int = 0xFFFF
    """Most bytes by which a frame may grow; 65535: no limit."""
    port_frames: int | None = None
    """Number of frames that each port holds before it drops any. None: no limit."""


BMV2_LIMITS: Final = Limits(growth_bytes=512, port_frames=32)
"""BMv2 aborts if a frame grows further, and its receive ring drops the rest of a burst without counting it."""


class Session:
    """One connection to a switch, which runs the program from `connect` on.

    `on_hello` is called with the ingress port and each hello, `on_lldp` with each packet-in of LLDP (`lldp`), `on_end`
    with the reason when the connection ends.  All run on the thread that reads the stream, and must not wait for this
    object.  Methods raise P4RuntimeError or SwitchLost.
    """

    def __init__(
        self,
        program: Build,
        address: str,
        *,
        device_id: int = 0,
        election_id: int | None = None,
        on_hello: Callable[[int, Packet], None] = lambda port, packet: None,
        on_lldp: Callable[[bytes], None] = lambda payload: None,
        on_end: Callable[[P4RuntimeError], None] = lambda error: None,
    ) -> None:
        self._program = program
        self._p4info = parse_p4info(program.p4info)
        self._schema = Schema(self._p4info)
        self._on_hello = on_hello
        self._on_lldp = on_lldp
        self._answers: queue.SimpleQueue[Header] = queue.SimpleQueue()
        self._exchanging = threading.Lock()
        """Held while cells are asked for: answers come to one caller at a time."""
        self._has_registers = False
        """P4Runtime reads this switch's registers, as far as `find_limits` has found: it is none of BMv2's."""
        self._client = P4RuntimeClient(
            address, device_id=device_id, election_id=election_id, on_packet=self._take_packet, on_end=on_end
        )

    def connect(self, *, may_replace: bool = True) -> bool:
        """Become primary and load the program unless the switch runs it; return whether it was loaded.

        A program that runs is never loaded again, since that would clear all slots.  Another one is left where it is,
        and P4RuntimeError raised, unless it may be replaced and is not in use.
        """
        self._client.connect()
        try:
            running = self._client.get_pipeline()
            # The cookie tells at a glance; the whole program is compared, too, since another client may set any cookie.
            same = (
                running is not None
                and running.cookie == self._program.cookie
                and running.device_config == self._program.device_config
            )
            if not same:
                if running is not None and not may_replace:
                    text = "it runs another program, which stays there (a controller would replace it)"
                    raise P4RuntimeError("GetForwardingPipelineConfig", Code.FAILED_PRECONDITION, text)
                if running is not None:
                    self._check_unused(running)
                    self._delete_replication()
                self._client.set_pipeline(
                    Pipeline(
                        p4info=self._p4info,
                        device_config=self._program.device_config,
                        cookie=self._program.cookie,
                    )
                )
        except P4RuntimeError:
            self._client.close()
            raise
        return not same

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open, and this controller primary."""
        return self._client.is_connected

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def find_limits(self) -> Limits:
        """Return the limits of the switch; one whose registers P4Runtime cannot read is taken for BMv2."""
        try:
            self._client.read([self._schema.register_cell(CELL_MEMBERS, 0)])
        except P4RuntimeError as error:
            if error.code is Code.UNIMPLEMENTED:
                return BMV2_LIMITS
            raise
        self._has_registers = True
        return Limits()

    def read_state(self) -> SwitchState:
        """Read all table entries, the switch's identity and all multicast groups."""
        wanted = [self._schema.wildcard(table) for table in self._schema.tables]
        wanted.append(self._schema.wildcard(IDENTITY, is_default=True))
        entries = [self._schema.decode_entry(entity.table_entry) for entity in self._client.read(wanted)]
        return SwitchState.of([*entries, *(decode_group(message) for message in self._read_groups())])

    def keeps_metadata(self, state: SwitchState) -> bool:
        """Return whether the switch gives back the metadata of its identity, as it is in a state that was written."""
        wanted = [self._schema.wildcard(IDENTITY, is_default=True)]
        found = [self._schema.decode_entry(entity.table_entry) for entity in self._client.read(wanted)]
        return {entry.metadata for entry in found} == {entry.metadata for entry in state.table(IDENTITY)}

    def write(self, steps: Sequence[Sequence[Write]], timeout_s: float | None = None) -> None:
        """Carry out writes, one step after the other; the switch has `timeout_s` for each answer, if that is given.

        On BMv2 a new group is inserted, deleted and inserted again.  BMv2 keeps the replicas of groups when a program
        is loaded, and an insert adds to them: without the delete every packet would be copied twice.
        """
        for step in steps:
            new_groups = [
                write.item for write in step if write.change is Change.INSERT and isinstance(write.item, Group)
            ]
            if new_groups and not self._has_registers:
                self._client.write([_update(Change.INSERT, encode_group(group)) for group in new_groups], timeout_s)
                self._client.write([_update(Change.DELETE, encode_group(group)) for group in new_groups], timeout_s)
            self._client.write([_update(write.change, self._entity(write.item)) for write in step], timeout_s)

    def query(self, cells: Sequence[tuple[int, int]]) -> list[Cell]:
        """Read cells, given as (slot, version), by query frames to the switch's own address; any thread may call it."""
        return self._exchange(Kind.QUERY, cells)

    def read_numbers(self, cells: Sequence[tuple[int, int]]) -> list[Cell]:
        """Read number and contributors alone of cells, given as (slot, version), that no frame changes meanwhile."""
        if not self._has_registers:
            return self.query(cells)
        indices = [2 * slot + version for slot, version in cells]
        members = self._read_registers(CELL_MEMBERS, indices)
        tags = self._read_registers(CELL_TAGS, [index for index in indices if members[index]])
        return [
            Cell(
                slot=slot,
                version=version,
                number=tags.get(2 * slot + version, 0) >> _TAG_BEHIND_NUMBER,
                seen=members[2 * slot + version] & 0xFFFF_FFFF,
            )
            for slot, version in cells
        ]

    def _read_registers(self, name: str, indices: Sequence[int]) -> dict[int, int]:
        """Return the values of cells of a register array, by index."""
        if not indices:
            return {}
        found = self._client.read([self._schema.register_cell(name, index) for index in indices])
        return {
            entity.register_entry.index.index: decode_uint(entity.register_entry.data.bitstring) for entity in found
        }

    def clear(self, cells: Sequence[Cell]) -> None:
        """Set cells to the state of cells that were never used."""
        self._exchange(Kind.SET, [(cell.slot, cell.version) for cell in cells])

    def send_frames(self, frames: Sequence[tuple[int, bytes]]) -> None:
        """Let frames leave by ports; the switch confirms none of them."""
        self._client.send_packets(
            [self._schema.encode_packet_out(frame, {"egress_port": port, "unused": 0}) for port, frame in frames]
        )

    def count_events(self) -> dict[int, tuple[int, int]]:
        """Return packets and bytes by reason, of ingress and egress together."""
        totals: dict[int, tuple[int, int]] = {}
        for entity in self._client.read([self._schema.counter_cells(name) for name in COUNTERS]):
            cell = entity.counter_entry
            packets, octets = totals.get(cell.index.index, (0, 0))
            totals[cell.index.index] = packets + cell.data.packet_count, octets + cell.data.byte_count
        return totals

    def count_frames(self) -> dict[tuple[str, int, int], tuple[int, int]]:
        """Return packets and bytes by table (ADMISSION: what came, RESULT_ADDRESS: what went), job number and rank."""
        counts: dict[tuple[str, int, int], tuple[int, int]] = {}
        for entity in self._client.read([self._schema.direct_counters(name) for name in (ADMISSION, RESULT_ADDRESS)]):
            table, match = self._schema.decode_counted(entity.direct_counter_entry)
            data = entity.direct_counter_entry.data
            if isinstance(job := match.get("job"), int) and isinstance(rank := match.get("rank"), int):
                packets, octets = counts.get((table, job, rank), (0, 0))  # a member has an entry for each tree
                counts[table, job, rank] = packets + data.packet_count, octets + data.byte_count
        return counts

    def count_reasons(self, groups: Mapping[int, int]) -> dict[tuple[int, int], dict[Reason, int]]:
        """Return packets by reason for each group and rank, given each group's ranks; groups beyond the last lack."""
        cells = dict(self._member_cells(groups))
        found: dict[tuple[int, int], dict[Reason, int]] = {}
        if not cells:
            return found
        for entity in self._client.read([self._schema.counter_cell(MEMBER_EVENTS, index) for index in cells]):
            group, rank, reason = cells[entity.counter_entry.index.index]
            found.setdefault((group, rank), {})[reason] = entity.counter_entry.data.packet_count
        return found

    def clear_reasons(self, group: int, ranks: int) -> None:
        """Begin to count a group's frames from 0."""
        cells = [self._schema.counter_cell(MEMBER_EVENTS, index) for index, _ in self._member_cells({group: ranks})]
        if cells:
            self._client.write([_update(Change.MODIFY, cell) for cell in cells])

    def _member_cells(self, groups: Mapping[int, int]) -> Iterator[tuple[int, tuple[int, int, Reason]]]:
        """Yield index, and group, rank and reason, of the cells that may be counted in."""
        size = self._schema.counter_size(MEMBER_EVENTS)
        for group, ranks in groups.items():
            if ranks > MAX_WORKERS:  # ranks 0 and 32 share cells
                continue
            for rank in range(ranks):
                first = (group * MAX_WORKERS + rank) * REASONS
                if first < size:
                    yield from ((first + reason, (group, rank, reason)) for reason in MEMBER_REASONS)

    def _own_address(self) -> Address:
        """Read the switch's own address, to which query frames are sent."""
        entity = self._client.read([self._schema.wildcard(IDENTITY, is_default=True)])[0]
        params = self._schema.decode_entry(entity.table_entry).params
        return Address(mac=params["mac"], ip=params["ip"], port=params["port"])

    def _exchange(self, kind: Kind, cells: Sequence[tuple[int, int]]) -> list[Cell]:
        """Send one frame for each cell and collect the answers; frames without an answer are sent again.

        The switch returns all fields that it does not fill in.  `tree` holds the version, because the number of an
        unused cell does not tell it.  `job` and `epoch` hold a token that tells late answers to an earlier call.
        """
        if not cells:
            return []
        with self._exchanging:
            found = self._answers_to(kind, cells)
        return [found[cell] for cell in cells]

    def _answers_to(self, kind: Kind, cells: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Cell]:
        """Return the answers by (slot, version)."""
        own, token = self._own_address(), secrets.randbits(32)
        waiting = list(reversed(cells))
        under_way: set[tuple[int, int]] = set()
        found: dict[tuple[int, int], Cell] = {}
        silent_s, pause_s, limit_s = 0.0, QUERY_TIMEOUT_S, start_limit(QUERY_S)
        while len(found) < len(cells):
            fresh = [waiting.pop() for _ in range(min(len(waiting), QUERY_WINDOW - len(under_way)))]
            under_way.update(fresh)
            self._send(kind, fresh, own, token)
            try:
                header = self._answers.get(timeout=pause_s)
            except queue.Empty:
                silent_s, pause_s = silent_s + pause_s, 2 * pause_s  # it may be busy with these very frames
                if not self._client.is_connected:
                    raise SwitchLost(f"the switch at {self._client.address} no longer answers") from None
                if silent_s >= limit_s:
                    raise SwitchLost(
                        f"the switch at {self._client.address} is connected but has not answered {kind.name} frames "
                        f"about its slots for {limit_s:g} s: it is stopped, or gets no processor time ({HINT})"
                    ) from None
                self._send(kind, list(under_way), own, token)
                continue
            # A repeated query has two answers, and the second one finds its key gone.
            key = header.slot, header.cell_version
            if key in under_way and (header.job << 16 | header.epoch) == token:
                under_way.remove(key)
                found[key] = cell_of(header)
                silent_s, pause_s = 0.0, QUERY_TIMEOUT_S
        return found

    def _send(self, kind: Kind, cells: Sequence[tuple[int, int]], own: Address, token: int) -> None:
        packets = []
        for slot, version in cells:
            # `tree` is read as `Header.cell_version`.
            header = Header(kind=kind, job=token >> 16, epoch=token & 0xFFFF, tree=version, slot=slot, number=version)
            frame = build_frame(CPU_SOURCE, own, header)
            packets.append(self._schema.encode_packet_out(frame, {"egress_port": 0, "unused": 0}))
        self._client.send_packets(packets)

    def sample(self, slot: int, seconds: float) -> list[SampledFrame]:
        """Return frames of a slot that pass within some time; any thread may call it."""
        return self._client.sample(
            SampleRequest(offset=AT.slot, pattern=slot.to_bytes(4).hex(), seconds=seconds)
        ).frames

    def _take_packet(self, message: Any) -> None:
        """Pass a packet-in on if it is an answer to a query, a hello or LLDP; ignore all others."""
        if message.payload.startswith(LLDP_HEAD):
            self._on_lldp(message.payload)
            return
        packet = parse_frame(message.payload)
        if packet is None:
            return
        if packet.header.kind == Kind.STATE:
            self._answers.put(packet.header)
        elif packet.header.kind == Kind.HELLO:
            self._on_hello(self._schema.decode_packet_in(message)["ingress_port"], packet)

    def _entity(self, item: Entry | Group) -> Any:
        return encode_group(item) if isinstance(item, Group) else v1.Entity(table_entry=self._schema.encode_entry(item))

    def _read_groups(self) -> list[Any]:
        anything = v1.PacketReplicationEngineEntry(multicast_group_entry=v1.MulticastGroupEntry())
        entities = self._client.read([v1.Entity(packet_replication_engine_entry=anything)])
        return [entity.packet_replication_engine_entry.multicast_group_entry for entity in entities]

    def _check_unused(self, running: Pipeline) -> None:
        """Raise P4RuntimeError if another program is in use: ours by entries of members, others by any."""
        tables = {table.preamble.name: table for table in running.p4info.tables if not table.is_const_table}
        is_ours = ADMISSION in tables
        wanted = [tables[ADMISSION]] if is_ours else tables.values()
        asked = [v1.Entity(table_entry=v1.TableEntry(table_id=table.preamble.id)) for table in wanted]
        if not asked or not (count := len(self._client.read(asked))):
            return
        if is_ours:
            text = (
                f"it runs another build of this program ({running.cookie:016x}, where this controller has "
                f"{self._program.cookie:016x}), and a job with {count} entries of members: the controller of that job "
                "has its version and --lanes"
            )
        else:
            text = f"it runs another program, with {count} entries of another controller"
        text += ". A switch that is started anew takes any program"
        raise P4RuntimeError("SetForwardingPipelineConfig", Code.FAILED_PRECONDITION, text)

    def _delete_replication(self) -> None:
        """Delete all multicast groups and clone sessions: BMv2 would keep them under the next program."""
        for kind in ("multicast_group_entry", "clone_session_entry"):
            anything = v1.PacketReplicationEngineEntry()
            getattr(anything, kind).SetInParent()
            found = self._client.read([v1.Entity(packet_replication_engine_entry=anything)])
            if found:
                self._client.write([_update(Change.DELETE, entity) for entity in found])


def _update(change: Change, entity: Any) -> Any:
    return v1.Update(type=change.name, entity=entity)


def cell_of(header: Header) -> Cell:
    """Return what the answer to a query says of a cell."""
    return Cell(
        slot=header.slot,
        version=header.cell_version,
        number=header.number,
        seen=header.bitmap,
        flags=int(header.flags),
        block=header.block,
        next_block=header.next_block,
        holder=header.cookie >> 48,
    )
