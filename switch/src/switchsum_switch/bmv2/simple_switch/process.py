"""A `simple_switch_grpc` that runs one program, as the target of STF tests and of `switchsum differ`."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from switchsum_switch.bmv2.process import PROGRAM, command_line, free_port
from switchsum_switch.errors import LocalError
from switchsum_switch.messages.matches import Exact, Lpm, Match, Range, Ternary
from switchsum_switch.process.children import Children
from switchsum_switch.process.start_limit import start_limit
from switchsum_switch.program.reader import read_program
from switchsum_switch.stf import Left, Names, Outcome, Test, run

from ..thrift import Client, Int64, Items, Refused, Struct
from .frames import FramePair

START_S: Final = 30.0
QUIET_S: Final = 0.25
"""BMv2 is through with the frames that it was given when none has left it for so long."""
CONTEXT: Final = 0
_FIRST_PRIORITY: Final = 1 << 24
"""BMv2's smallest priority wins, P4Runtime's and STF's largest."""
_EXACT, _LPM, _TERNARY, _VALID, _RANGE = range(5)
_PRIVATE_GROUP: Final = 1 << 15
"""Groups from here on stand for clone sessions with several replicas."""
_MAP_PORTS: Final = 512


@dataclass(frozen=True, slots=True)
class PcapFiles:
    """Files from which BMv2 takes frames and to which it writes them: `1_in.pcap` and `1_out.pcap` of port 1."""

    folder: Path
    ports: tuple[int, ...]
    wait_s: int
    """Seconds from its start until it begins to read."""

    def options(self) -> list[str]:
        """Return BMv2's options."""
        ports = [word for port in self.ports for word in ("--interface", f"{port}@{self.folder}/{port}")]
        return [*ports, "--use-files", str(self.wait_s)]


class SimpleSwitch:
    """BMv2 with a program."""

    def __init__(
        self,
        device_config: bytes | str,
        *,
        quiet_s: float = QUIET_S,
        options: Sequence[str] = (),
        log: bool = False,
        files: PcapFiles | None = None,
    ) -> None:
        """Start it, with a log if wanted; raises LocalError if it ends, as it does on a program that it refuses.

        `files`: where frames come from in place of `send`, and where they go.
        """
        text = device_config.encode() if isinstance(device_config, str) else device_config
        self.names, document = Names(read_program(text)), json.loads(text)
        self._tables = {table.name: table for table in self.names.tables()}
        self._profiles = {
            table["name"]: table.get("action_profile", "")
            for pipeline in document["pipelines"]
            for table in pipeline["tables"]
        }
        self._set_bits = {one["name"]: one["compressed_bitwidth"] for one in document.get("parse_vsets", [])}
        self._quiet_s = quiet_s
        self._scratch = tempfile.TemporaryDirectory(prefix="switchsum-test-")
        folder = Path(self._scratch.name)
        (folder / "program.json").write_bytes(text)
        self._children = Children()
        port = free_port()
        own = ["--packet-in", f"ipc://{folder}/frames"] if files is None else files.options()
        own += ["--notifications-addr", f"ipc://{folder}/notes"]
        own += ["--log-file", f"{folder}/log", "--log-flush"] if log else []
        command = command_line(
            [PROGRAM],
            f"unix:{folder}/p4runtime",
            program=folder / "program.json",
            thrift_port=port,
            log_level="trace" if log else "off",
            cpu_port=None,
            options=own,
            server_options=options,
        )
        self.child = self._children.start("bmv2", command, quiet=True)
        self._groups: dict[int, tuple[int, list[int]]] = {}
        self._left: list[Left] = []
        self._line = 0
        self._is_busy = False
        try:
            self._client = self._connect(port)
            self._frames = FramePair(f"ipc://{folder}/frames") if files is None else None
        except BaseException:
            self._children.stop()
            self._scratch.cleanup()
            raise

    def _connect(self, port: int) -> Client:
        limit_s = start_limit(START_S)
        for _ in range(int(limit_s / 0.2)):
            if (code := self.child.process.poll()) is not None:
                raise LocalError(f"{PROGRAM} ended with {code}: it does not take the program")
            try:
                client = Client(port, 0.2)
            except LocalError:
                continue
            try:  # this service comes last; a call before it ends the connection
                client.call("simple_switch:get_time_elapsed_us")
                return client
            except LocalError:
                client.close()
                time.sleep(0.02)
        raise LocalError(f"{PROGRAM} has not begun to serve Thrift for {limit_s:g} s")

    def __enter__(self) -> SimpleSwitch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End BMv2."""
        if self._frames is not None:
            self._frames.close()
        self._client.close()
        self._children.stop()
        self._scratch.cleanup()

    @property
    def exit_code(self) -> int | None:
        """The code with which BMv2 has ended; None while it runs."""
        return self.child.process.poll()

    def has_ended(self) -> bool:
        """Return whether BMv2 has ended."""
        return self.exit_code is not None

    def insert(self, table: str, match: tuple[Match, ...], priority: int, action: str, params: tuple[int, ...]) -> int:
        """Add an entry and return its handle."""
        found = self._tables[table]
        if found.kind == "indirect_ws":
            return self.insert_group(table, match, [(action, params)], priority=priority)
        keys = [key for key in found.keys if key.kind != "selector"]
        encoded = Items([_match(key.kind, one, self.names.width(key)) for key, one in zip(keys, match, strict=True)])
        options = Struct({1: _FIRST_PRIORITY - priority if priority else None})
        data = self._data(table, action, params)
        if found.kind == "simple":
            return int(self._call("standard:bm_mt_add_entry", CONTEXT, table, encoded, action, data, options))
        member = self._call("standard:bm_mt_act_prof_add_member", CONTEXT, self._profiles[table], action, data)
        return int(self._call("standard:bm_mt_indirect_add_entry", CONTEXT, table, encoded, member, options))

    def insert_group(
        self,
        table: str,
        match: tuple[Match, ...],
        members: Sequence[tuple[str, tuple[int, ...]]],
        *,
        priority: int = 0,
    ) -> int:
        """Add an entry whose action a selector chooses among members; return its handle."""
        keys = [key for key in self._tables[table].keys if key.kind != "selector"]
        encoded = Items([_match(key.kind, one, self.names.width(key)) for key, one in zip(keys, match, strict=True)])
        options = Struct({1: _FIRST_PRIORITY - priority if priority else None})
        profile = self._profiles[table]
        group = self._call("standard:bm_mt_act_prof_create_group", CONTEXT, profile)
        for action, params in members:
            data = self._data(table, action, params)
            member = self._call("standard:bm_mt_act_prof_add_member", CONTEXT, profile, action, data)
            self._call("standard:bm_mt_act_prof_add_member_to_group", CONTEXT, profile, member, group)
        return int(self._call("standard:bm_mt_indirect_ws_add_entry", CONTEXT, table, encoded, group, options))

    def lengthen_queues(self, frames: int) -> None:
        """Let every egress queue hold so many frames: the 65th that waits is dropped otherwise."""
        self._call("simple_switch:set_all_egress_queue_depths", frames)

    def set_default(self, table: str, action: str, params: tuple[int, ...]) -> None:
        """Set a table's default action."""
        found = self._tables[table]
        data = self._data(table, action, params)
        if found.kind == "simple":
            self._call("standard:bm_mt_set_default_action", CONTEXT, table, action, data)
            return
        profile = self._profiles[table]
        member = self._call("standard:bm_mt_act_prof_add_member", CONTEXT, profile, action, data)
        self._call("standard:bm_mt_indirect_set_default_member", CONTEXT, table, member)

    def clear(self, table: str) -> None:
        """Remove all entries of a table."""
        self._call("standard:bm_mt_clear_entries", CONTEXT, table, False)

    def entry_counter(self, table: str, entry: Any) -> tuple[int, int]:
        """Return packets and bytes that an entry has counted."""
        found = self._call("standard:bm_mt_read_counter", CONTEXT, table, entry)
        return found[2], found[1]

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        """Return packets and bytes of a cell."""
        found = self._call("standard:bm_counter_read", CONTEXT, name, index)
        return found[2], found[1]

    def write_counter(self, name: str, index: int, packets: int, count_bytes: int) -> None:
        """Set a cell."""
        value = Struct({1: Int64(count_bytes), 2: Int64(packets)})
        self._call("standard:bm_counter_write", CONTEXT, name, index, value)

    def read_register(self, name: str, index: int) -> int:
        """Return the low 63 bits of a cell; Thrift has no more."""
        return int(self._call("standard:bm_register_read", CONTEXT, name, index))

    def read_registers(self, name: str) -> list[int]:
        """Return the low 63 bits of all cells."""
        return [int(value) for value in self._call("standard:bm_register_read_all", CONTEXT, name)]

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set a cell's value."""
        self._call("standard:bm_register_write", CONTEXT, name, index, Int64(value))

    def set_meter(self, name: str, index: int, rates: Sequence[tuple[float, int]]) -> None:
        """Set the rates of a cell."""
        made = Items([Struct({1: rate, 2: burst}) for rate, burst in rates])
        self._call("standard:bm_meter_set_rates", CONTEXT, name, index, made)

    def add_member(self, value_set: str, value: int) -> None:
        """Add a member to a parser value set."""
        made = _bytes(value, self._set_bits[value_set])
        self._call("standard:bm_parse_vset_add", CONTEXT, value_set, made)

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Set a multicast group: a node for each replica."""
        service = "simple_pre_lag"
        if group not in self._groups:
            self._groups[group] = self._call(f"{service}:bm_mc_mgrp_create", CONTEXT, group), []
        handle, nodes = self._groups[group]
        while nodes:
            node = nodes.pop()
            self._call(f"{service}:bm_mc_node_dissociate", CONTEXT, handle, node)
            self._call(f"{service}:bm_mc_node_destroy", CONTEXT, node)
        for port, instance in replicas:
            ports = f"{1 << port:0{_MAP_PORTS}b}"
            node = self._call(f"{service}:bm_mc_node_create", CONTEXT, instance, ports, "")
            self._call(f"{service}:bm_mc_node_associate", CONTEXT, handle, node)
            nodes.append(node)

    def set_session(self, session: int, replicas: Sequence[tuple[int, int]] | None) -> None:
        """Set or remove a mirroring session."""
        if replicas is None:
            self._call("simple_switch:mirroring_session_delete", session)
            return
        if len(replicas) == 1 and replicas[0][1] == 0:
            config = Struct({1: replicas[0][0]})
        else:
            self.set_group(_PRIVATE_GROUP + session, replicas)
            config = Struct({2: _PRIVATE_GROUP + session})
        self._call("simple_switch:mirroring_session_add", session, config)

    def send(self, port: int, frame: bytes, line: int = 0) -> None:
        """Let a frame arrive."""
        self._line = line
        self._is_busy = True
        self._connected().send(port, frame)

    def wait(self) -> None:
        """Let BMv2 come through; there is no clock to set, and no test needs the second."""
        self._settle()

    def collect(self) -> list[Left]:
        """Return the frames that have left since the last call, after BMv2 has come through."""
        self._settle()
        return self.take()

    def take(self) -> list[Left]:
        """Return the frames that have been received since the last call, without waiting for more."""
        left, self._left = self._left, []
        return left

    def receive(self, count: int, patience_s: float) -> None:
        """Note frames that leave until there are `count`, or none has come for `patience_s`."""
        while len(self._left) < count and (frame := self._connected().receive(patience_s)) is not None:
            self._left.append(Left(*frame, self._line))

    def _connected(self) -> FramePair:
        if self._frames is None:
            raise LocalError("frames come from files here")
        return self._frames

    def log(self) -> list[str]:
        """Return the lines of the log."""
        files = sorted(Path(self._scratch.name).glob("log*"))
        return [line for file in files for line in file.read_text(errors="replace").splitlines()]

    def _settle(self) -> None:
        while self._is_busy:
            frame = self._connected().receive(self._quiet_s)
            if frame is None:
                self._is_busy = False
            else:
                self._left.append(Left(*frame, self._line))

    def _call(self, method: str, *arguments: Any) -> Any:
        self._settle()  # a change of an entry must not overtake the frames before it
        if (code := self.exit_code) is not None:
            raise LocalError(f"{PROGRAM} has ended with {code}")
        return self._client.call(method, *arguments)

    def _data(self, table: str, action: str, params: tuple[int, ...]) -> Items:
        found = self._tables[table]
        for number in found.action_ids:
            one = self.names.action(number)
            if one.name == action:
                widths = [width for _, width in one.params]
                return Items([_bytes(value, width) for value, width in zip(params, widths, strict=True)])
        raise Refused(f"table {table} has no action {action}")


def run_bmv2(device_config: bytes, test: Test, *, options: Sequence[str] = ()) -> Outcome:
    """Run a test on the BMv2 that is on PATH; raises LocalError if it does not take the program."""
    with SimpleSwitch(device_config, options=options) as switch:
        return run(test, switch.names, switch)


def _match(kind: str, match: Match, width: int) -> Struct:
    match match:
        case Exact(value) if kind == "valid":
            return Struct({1: _VALID, 5: Struct({1: bool(value)})})
        case Exact(value):
            return Struct({1: _EXACT, 2: Struct({1: _bytes(value, width)})})
        case Lpm(value, length):
            return Struct({1: _LPM, 3: Struct({1: _bytes(value, width), 2: length})})
        case Ternary(value, mask):
            return Struct({1: _TERNARY, 4: Struct({1: _bytes(value, width), 2: _bytes(mask, width)})})
        case Range(low, high):
            return Struct({1: _RANGE, 6: Struct({1: _bytes(low, width), 2: _bytes(high, width)})})


def _bytes(value: int, width: int) -> bytes:
    return value.to_bytes((width + 7) // 8, "big")
