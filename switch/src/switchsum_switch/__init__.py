"""A P4 switch in Python: BMv2's JSON compiled to native code, for tests, notebooks and networks.

    from switchsum_switch import Switch

    switch = Switch.from_file("router.json", "router.p4info.txtpb")
    switch.tables["ingress.ipv4"].insert({"hdr.ipv4.dst": "10.0.0.0/8"}, "ingress.forward", port=3)
    assert switch.process(1, frame) == [(3, expected)]

switch/README.md says what else there is: the switch as a process with ports and a P4Runtime server, networks of
switches, and pages about each.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's, which takes a hundredth of a second to import
if TYPE_CHECKING:
    from .api.switch import Switch
    from .errors import BadEntry, EntryExists, EntryMissing, InUse, ProgramError, ReadOnly, StateError, TableFull
    from .execution.trace import Step
    from .names.named_profiles import NamedProfile
    from .names.named_tables import NamedTable, ShownEntry
    from .state.clock import Clock
    from .state.meters import MeterRates
    from .state.snapshots import Snapshot
    from .state.state import Replica
    from .state.tables import Group, ProfileMember

__version__ = "0.2.0"

__all__ = [
    "BadEntry",
    "Clock",
    "EntryExists",
    "EntryMissing",
    "Group",
    "InUse",
    "MeterRates",
    "NamedProfile",
    "NamedTable",
    "ProfileMember",
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

_ELSEWHERE = {
    "BadEntry": "errors",
    "Clock": "state.clock",
    "EntryExists": "errors",
    "EntryMissing": "errors",
    "Group": "state.tables",
    "InUse": "errors",
    "ProfileMember": "state.tables",
    "MeterRates": "state.meters",
    "NamedProfile": "names.named_profiles",
    "NamedTable": "names.named_tables",
    "ProgramError": "errors",
    "ReadOnly": "errors",
    "Replica": "state.state",
    "ShownEntry": "names.named_tables",
    "Snapshot": "state.snapshots",
    "StateError": "errors",
    "Step": "execution.trace",
    "Switch": "api.switch",
    "TableFull": "errors",
}
"""Modules of these names.  They are imported when they are used: headers, errors and process parts of this package
serve commands that compile nothing.
"""


def __dir__() -> list[str]:
    """List the public names, those included that are imported when they are first asked for."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    value = globals()[name] = getattr(import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
    return value
