"""Finds how the switches of a fleet are connected, before they have a controller: it connects, asks, and lets go."""

from __future__ import annotations

import json
import queue
import secrets
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from switchsum_protocol.errors import LocalError, UsageError
from switchsum_protocol.rpc import LinkFault
from switchsum_switch.connections import tls
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError

from ..tables.entries import Change, SwitchState, Write
from ..tables.names import lldp_entry, station_ports
from ..trees import fleet_file
from ..trees.fabric import Fabric, FabricSwitch
from .neighbours import FoundLink, Neighbours, is_bare, with_tree
from .switch_session import Build, Session

REPEAT_S: Final = 0.5
"""Pause between two rounds of frames."""
QUIET_S: Final = 1.5
"""Seconds without a new link after which no more are waited for."""
KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The links and faults that were found in a fleet."""

    given: Mapping[str, Any]
    """The file of switches and addresses."""
    links: tuple[FoundLink, ...]
    faults: tuple[LinkFault, ...]
    """Switches that cannot be asked, and cables that are no links."""


def read_fleet(path: Path) -> dict[str, Any]:
    """Read the switches and addresses of a fleet's file, whatever it says of trees; raises UsageError."""
    try:
        given = fleet_file.read_json(path.read_text(encoding="utf-8"))
        switches = given["switches"]
        # Each by itself has to be right: as long as no tree is known, nothing connects them.
        others = {key: value for key, value in given.items() if key != "trees"}
        read: dict[str, FabricSwitch] = {}
        for name, one in switches.items():
            bare = {key: one[key] for key in one if key not in ("udp", "port", "ports", "above")}
            read |= fleet_file.parse(json.dumps({**others, "switches": {name: bare}}), 0).switches
        fleet_file.check_apart(read)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f'{path} must have the form {{"switches": {{NAME: {{"p4runtime": ADDRESS}}}}}}: {error}'
        ) from error
    return dict(given)


def discover(given: Mapping[str, Any], program: Build, *, may_load: bool = False, **options: Any) -> Found:
    """Connect to all switches, find their links, and let them go; a switch that cannot be asked is a fault.

    A switch that runs another program keeps it unless `may_load`.
    """
    heard: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
    faults: list[LinkFault] = []
    with ExitStack() as stack:
        switches, hosts = {}, {}
        for name, one in given["switches"].items():
            on_lldp = partial(_note, heard, name)
            switch = Session(program, one["p4runtime"], on_lldp=on_lldp, **options)
            try:
                switch.connect(may_replace=may_load)
                stack.callback(switch.close)
                state = _open_way(switch)
            except P4RuntimeError as error:
                reason = tls.in_words(error.message) if error.code is Code.UNAVAILABLE else error.message
                faults.append(LinkFault(text=f"{name} at {one['p4runtime']}: {reason}", switches=[name]))
            else:
                switches[name] = switch
                hosts[name] = station_ports(state) | set(one.get("stations", {}).values())
        neighbours = Neighbours(list(switches), secrets.token_bytes(KEY_BYTES))
        neighbours.hosts = hosts
        links, wrong = _listen(neighbours, switches, heard)
    return Found(given=given, links=tuple(links), faults=(*faults, *wrong))


def _note(heard: queue.SimpleQueue[tuple[str, bytes]], name: str, payload: bytes) -> None:
    heard.put((name, payload))


def _open_way(switch: Session) -> SwitchState:
    """Give a switch the entry that brings LLDP frames to its controller, unless it has it; return what it had."""
    entry, state = lldp_entry(), switch.read_state()
    if not state.has(entry):
        switch.write([[Write(change=Change.INSERT, item=entry)]])
    return state


def _listen(
    neighbours: Neighbours, switches: Mapping[str, Session], heard: queue.SimpleQueue[tuple[str, bytes]]
) -> tuple[list[FoundLink], list[LinkFault]]:
    """Send from all ports until nothing new is heard for a while; return links and faults."""
    found, changed_s = neighbours.look(0.0), time.monotonic()
    while switches and (now := time.monotonic()) - changed_s < QUIET_S:
        if neighbours.is_due(now, REPEAT_S):
            for name, switch in switches.items():
                switch.send_frames(neighbours.frames(name))
        try:
            name, payload = heard.get(timeout=REPEAT_S / 5)
        except queue.Empty:
            continue
        neighbours.hear(name, payload, now)
        if (latest := neighbours.look(now)) != found:
            found, changed_s = latest, now
    return found


def read(path: Path, lanes_per_frame: int) -> Fabric | dict[str, Any]:
    """Read a fleet's file: its tree, or the switches alone where it is bare; raises UsageError."""
    try:
        is_undetermined = is_bare(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        is_undetermined = False  # `fleet_file.load` says what is wrong
    return read_fleet(path) if is_undetermined else fleet_file.load(path, lanes_per_frame)


def load(path: Path, program: Build, **options: Any) -> Fabric:
    """Read a fleet's file; where it is bare, the switches get the program and the tree follows from their links.

    Raises UsageError for the file, and LocalError as long as links or switches are not as a tree needs them.
    """
    given = read(path, program.lanes_per_frame)
    if isinstance(given, Fabric):
        return given
    found = discover(given, program, may_load=True, **options)
    if found.faults:
        raise LocalError("; ".join(map(str, found.faults)))
    complete = fleet_file.parse(json.dumps(with_tree(given, found.links)), program.lanes_per_frame)
    return replace(complete, is_discovered=True, spreads_jobs=True)
