"""Names of the tables that the controller writes to, and numbers in them that have a meaning of their own."""

from __future__ import annotations

from typing import Final

from .entries import Entry, SwitchState

IDENTITY: Final = "SwitchIngress.identity"
ADMISSION: Final = "SwitchIngress.validate.admission.admission"
"""Table of members and their slots. A packet without an entry uses nothing else of a job."""
RESULT_ADDRESS: Final = "SwitchEgress.result_address"
"""Table of the addresses that results go to. It also has the jobs' records, under a rank that no member has."""
SLOT: Final = "SwitchIngress.dispatch.cells.slot"
UPLINK: Final = f"{SLOT}.uplink"
"""Table that says where partial sums go, and as which member of the switch above."""
FALLBACK: Final = "SwitchIngress.dispatch.cells.fallback"
"""Control with the table of the fallbacks of jobs that share slots."""
ABOVE: Final = "SwitchIngress.validate.above"
FROM_ABOVE: Final = f"{ABOVE}.above"
"""Table of the switch above as a sender: where results of the whole job come from, and for which job."""
FORWARDING: Final = "SwitchIngress.dispatch.forwarding"
STATIONS: Final = f"{FORWARDING}.stations"
INGRESS_LOSS: Final = "SwitchIngress.ingress_loss"
EGRESS_LOSS: Final = "SwitchEgress.egress_loss"

CPU_PORT: Final = 255
"""Port behind which the controller is: BMv2's option --cpu-port."""
RECORD_RANK: Final = 0xFFFF
"""Rank of a job's record in `RESULT_ADDRESS`."""
FLOOD_GROUP: Final = 1
BROADCAST: Final = 0xFFFF_FFFF_FFFF
LLDP_MAC: Final = 0x01_80_C2_00_00_0E
"""Nearest bridge: no bridge forwards it (802.1AB, table 7-1)."""


def lldp_entry() -> Entry:
    """Return the entry that brings LLDP frames of other switches to the controller."""
    return Entry(table=STATIONS, match={"mac": LLDP_MAC}, action=f"{FORWARDING}.forward", params={"port": CPU_PORT})


def station_ports(state: SwitchState) -> set[int]:
    """Return the ports of a switch to which its entries send the frames of stations: hosts are there."""
    return {
        entry.params["port"]
        for entry in state.table(STATIONS)
        if entry.action == f"{FORWARDING}.forward" and entry.match["mac"] != LLDP_MAC
    }
