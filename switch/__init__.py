"""A P4 switch in Python: BMv2's JSON compiled to native code, for tests, notebooks and networks.

    from switchsum.switch import Switch

    switch = Switch.from_file("router.json", "router.p4info.txtpb")
    switch.tables["ingress.ipv4"].insert({"hdr.ipv4.dst": "10.0.0.0/8"}, "ingress.forward", port=3)
    assert switch.process(1, frame) == [(3, expected)]

The README of this folder says what else is in it: the switch as a process with ports and a P4Runtime server, and the
compiler.
"""

from __future__ import annotations

from .clock import Clock
from .errors import (
    BadEntry,
    EntryExists,
    EntryMissing,
    InUse,
    ProgramError,
    ReadOnly,
    StateError,
    TableFull,
)
from .meters import MeterRates
from .named_profiles import NamedProfile
from .named_tables import NamedTable, ShownEntry
from .snapshots import Snapshot
from .state import Replica
from .switch import Switch
from .tables import Group, Member
from .trace import Step

__all__ = [
    "BadEntry",
    "Clock",
    "EntryExists",
    "EntryMissing",
    "Group",
    "InUse",
    "Member",
    "MeterRates",
    "NamedProfile",
    "NamedTable",
    "ProgramError",
    "ReadOnly",
    "Replica",
    "ShownEntry",
    "Snapshot",
    "StateError",
    "Step",
    "Switch",
    "TableFull",
]
