"""What a user types into p4runtime-shell, as a script; prints what came back as JSON.

Run by the shell's own Python (3.7 and later) with the server's address, P4Info and BMv2 JSON as arguments.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

sh: Any = importlib.import_module("p4runtime_sh.shell")
errors: Any = importlib.import_module("p4runtime_sh.p4runtime")

DEVICE_ID = 7
LONG_S = 20 * float(os.environ.get("SWITCHSUM_TEST_SLOWNESS", "1"))
TABLES = ["TestIngress.stations", "TestIngress.routes", "TestIngress.rules", "TestIngress.fixed"]


def error_of(call: Callable[[], object]) -> str:
    """Return the text of the error that a call raises."""
    try:
        call()
    except (errors.P4RuntimeException, errors.P4RuntimeWriteException) as error:
        return str(error)
    return "no error"


def tables() -> dict[str, Any]:
    """Insert into tables of every match kind, read everything back, modify, delete."""
    station = sh.TableEntry("TestIngress.stations")(action="forward")
    station.match["destination"] = "00:00:00:00:00:01"
    station.action["port"] = "3"
    station.metadata = b"kept"
    station.insert()
    twice = error_of(station.insert)
    station.action["port"] = "4"
    station.modify()

    to_controller = sh.TableEntry("TestIngress.stations")(action="to_controller")
    to_controller.match["destination"] = "00:00:00:00:00:02"
    to_controller.insert()

    route = sh.TableEntry("TestIngress.routes")(action="mark")
    route.match["e"] = "10.0.0.0/8"
    route.action["value"] = "1"
    route.insert()

    rule = sh.TableEntry("TestIngress.rules")(action="mark")
    rule.match["a"] = "1"
    rule.match["c"] = "0x10&&&0xff0"
    rule.match["d"] = "5..4095"
    rule.match["b"] = "7"
    rule.match["e"] = "192.168.0.0/16"
    rule.action["value"] = "2"
    rule.priority = 9
    rule.insert()

    default = sh.TableEntry("TestIngress.stations")(action="forward", is_default=True)
    default.action["port"] = "8"
    default.modify()

    gone = sh.TableEntry("TestIngress.routes")(action="mark")
    gone.match["e"] = "10.1.0.0/16"
    absent = error_of(gone.delete)
    return {
        "entries": {name: [str(entry) for entry in sh.TableEntry(name).read()] for name in TABLES},
        "default": [str(entry) for entry in sh.TableEntry("TestIngress.stations")(is_default=True).read()],
        "errors": [twice, absent],
    }


def counters() -> dict[str, Any]:
    """Set and read indexed and direct counters."""
    cell = sh.CounterEntry("TestIngress.by_port")
    cell.index = 3
    cell.packet_count, cell.byte_count = 5, 500
    cell.modify()
    cells = [(entry.index, entry.packet_count) for entry in sh.CounterEntry("TestIngress.by_port").read()]
    direct = sh.DirectCounterEntry("TestIngress.hits")
    direct.table_entry.match["destination"] = "00:00:00:00:00:01"
    direct.packet_count = 2
    direct.modify()
    return {
        "cells": cells,
        "direct": [entry.packet_count for entry in sh.DirectCounterEntry("TestIngress.hits").read()],
    }


def replication() -> dict[str, Any]:
    """Make a multicast group and a clone session, change and read them."""
    group = sh.MulticastGroupEntry(4).add(1, 0).add(2, 1)
    group.insert()
    group.add(3, 2)
    group.modify()
    session = sh.CloneSessionEntry(5).add(255, 0)
    session.insert()
    return {
        "groups": [str(entry) for entry in sh.MulticastGroupEntry().read()],
        "sessions": [str(entry) for entry in sh.CloneSessionEntry().read()],
    }


def packets() -> dict[str, Any]:
    """Send a packet-out to the CPU port and wait for it to come back as a packet-in."""
    packet = sh.PacketOut(b"from the shell")
    packet.metadata["egress_port"] = "255"
    packet.send()
    answer = sh.client.get_stream_packet(
        "packet", timeout=float(os.environ.get("SWITCHSUM_TEST_SLOWNESS", "1")) * 20
    ).packet
    return {"payload": answer.payload.decode("latin-1"), "metadata": [md.value.hex() for md in answer.metadata]}


def main() -> None:
    """Run all of it."""
    address, p4info, program = sys.argv[1:]
    sh.setup(
        device_id=DEVICE_ID,
        grpc_addr=address,
        election_id=(0, 1),
        config=sh.FwdPipeConfig(p4info, program),
        verbose=False,
    )
    try:
        found = {
            "version": sh.APIVersion(),
            "tables": tables(),
            "counters": counters(),
            "replication": replication(),
            "packets": packets(),
        }
    finally:
        sh.teardown()
    sys.stdout.write("\n" + json.dumps(found))


main()
