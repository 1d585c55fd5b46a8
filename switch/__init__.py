"""The embedded switch: BMv2 JSON compiled to native code, behind ports and a P4Runtime server."""

from __future__ import annotations

from .batch import Output
from .errors import (
    BadEntry,
    EntryExists,
    EntryMissing,
    ProgramError,
    ReadOnly,
    StateError,
    TableFull,
)
from .meters import Meter, MeterRates, MeterUnit
from .pipeline import Pipeline
from .state import CloneSession, CloneSessions, Counter, Multicast, Register, Replica
from .tables import (
    ActionSpec,
    Entry,
    Exact,
    KeySpec,
    Lpm,
    Match,
    MatchKind,
    ParamSpec,
    Range,
    Table,
    TableSpec,
    Ternary,
)

__all__ = [
    "ActionSpec",
    "BadEntry",
    "CloneSession",
    "CloneSessions",
    "Counter",
    "Entry",
    "EntryExists",
    "EntryMissing",
    "Exact",
    "KeySpec",
    "Lpm",
    "Match",
    "MatchKind",
    "Meter",
    "MeterRates",
    "MeterUnit",
    "Multicast",
    "Output",
    "ParamSpec",
    "Pipeline",
    "ProgramError",
    "Range",
    "ReadOnly",
    "Register",
    "Replica",
    "StateError",
    "Table",
    "TableFull",
    "TableSpec",
    "Ternary",
]
