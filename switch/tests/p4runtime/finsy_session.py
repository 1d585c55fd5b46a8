"""What a controller written with finsy does, as a script; prints what came back as JSON.

Run by a Python that has finsy (3.10 and later) with the server's address, P4Info and BMv2 JSON as arguments.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

fy: Any = importlib.import_module("finsy")
entities: Any = importlib.import_module("finsy.p4entity")
roles: Any = importlib.import_module("finsy.proto.stratum1.p4_role_config_pb2")

DEVICE_ID = 7
LONG_S = 20 * float(os.environ.get("SWITCHSUM_TEST_SLOWNESS", "1"))


def entry(table: str, action: str, priority: int = 0, args: dict[str, Any] | None = None, **match: Any) -> Any:
    """Return a table entry."""
    return fy.P4TableEntry(
        table, match=fy.P4TableMatch(match), action=fy.P4TableAction(action, **(args or {})), priority=priority
    )


async def error_of(call: Any) -> str:
    """Return the text of the error that a call raises."""
    try:
        await call
    except fy.P4ClientError as error:
        return str(error)
    return "no error"


async def collect(found: Any) -> list[Any]:
    """Return all that a read yields."""
    return [one async for one in found] if hasattr(found, "__aiter__") else list(await found)


async def tables(switch: Any) -> dict[str, Any]:
    """Insert into tables of every match kind, read everything back, modify, delete."""
    station = entry("stations", "forward", args={"port": 3}, destination="00:00:00:00:00:01")
    await switch.insert([station])
    twice = await error_of(switch.insert([station]))
    await switch.modify([entry("stations", "forward", args={"port": 4}, destination="00:00:00:00:00:01")])
    rule = {"a": 1, "c": "0x10/&0xff0", "d": "5...4095", "b": 7, "e": "192.168.0.0/16"}
    await switch.insert([entry("rules", "mark", 9, {"value": 2}, **rule)])
    await switch.insert([entry("routes", "mark", args={"value": 1}, e="10.0.0.0/8")])
    absent = await error_of(switch.delete([entry("routes", "mark", args={"value": 1}, e="10.1.0.0/16")]))
    read = await collect(switch.read(fy.P4TableEntry()))
    counted = await collect(switch.read(fy.P4TableEntry("stations", counter_data=fy.P4CounterData())))
    return {
        "entries": sorted(one.table_id for one in read),
        "ports": [one.action.args["port"] for one in counted],
        "counted": [one.counter_data is not None for one in counted],
        "errors": [twice, absent],
    }


async def others(switch: Any) -> dict[str, Any]:
    """Write and read counters, registers, groups with backups and clone sessions."""
    counts = fy.P4CounterData(packet_count=5, byte_count=500)
    await switch.modify([fy.P4CounterEntry("by_port", index=3, data=counts)])
    await switch.modify([fy.P4RegisterEntry("words", index=2, data=9)])
    backed = entities.P4Replica(1, instance=3, backup_replicas=[entities.P4BackupReplica(2, instance=4)])
    group = fy.P4MulticastGroupEntry(4, replicas=[backed, entities.P4Replica(3)])
    await switch.insert([group, fy.P4CloneSessionEntry(5, replicas=[entities.P4Replica(255)], packet_length_bytes=64)])
    counters = await collect(switch.read(fy.P4CounterEntry("by_port")))
    registers = await collect(switch.read(fy.P4RegisterEntry("words")))
    groups = await collect(switch.read(fy.P4MulticastGroupEntry()))
    sessions = await collect(switch.read(fy.P4CloneSessionEntry()))
    return {
        "counters": [one.data.packet_count for one in counters],
        "registers": [one.data for one in registers],
        "groups": [
            [len(getattr(replica, "backup_replicas", None) or ()) for replica in one.replicas] for one in groups
        ],
        "sessions": [one.packet_length_bytes for one in sessions],
    }


async def packets(switch: Any) -> dict[str, Any]:
    """Send a packet-out to the CPU port and wait for it to come back as a packet-in."""
    await switch.write([fy.P4PacketOut(b"from finsy", egress_port=255, _pad=0)])
    async for packet in switch.read_packets():
        return {"payload": packet.payload.hex(), "metadata": packet.metadata}
    return {}


async def role(address: str, files: tuple[Path, Path], table: int) -> dict[str, Any]:
    """Take a role that may write one table, beside the controller that has everything."""
    options = fy.SwitchOptions(
        p4info=files[0],
        device_id=DEVICE_ID,
        role_name="stations",
        role_config=roles.P4RoleConfig(exclusive_p4_ids=[table]),
    )
    async with fy.Switch("part", address, options) as switch:
        own = await error_of(switch.insert([entry("stations", "to_controller", destination=2)]))
        other = await error_of(switch.insert([entry("routes", "mark", args={"value": 1}, e="11.0.0.0/8")]))
        return {"own": own, "other": other, "is_primary": switch.is_primary}


async def session(address: str, files: tuple[Path, Path]) -> dict[str, Any]:
    """Run all of it."""
    options = fy.SwitchOptions(p4info=files[0], p4blob=files[1], device_id=DEVICE_ID)
    async with fy.Switch("all", address, options) as switch:
        found: dict[str, Any] = {
            "version": str(switch.p4runtime_version),
            "tables": await tables(switch),
            "others": await others(switch),
            "packets": await packets(switch),
            "role": await role(address, files, switch.p4info.tables["stations"].id),
        }
        await switch.delete_all()
        found["left"] = len(await collect(switch.read(fy.P4TableEntry("stations"))))
    return found


def main() -> None:
    """Print what was found."""
    address, p4info, program = sys.argv[1:]
    made = asyncio.run(asyncio.wait_for(session(address, (Path(p4info), Path(program))), LONG_S))
    sys.stdout.write("\n" + json.dumps(made))


main()
