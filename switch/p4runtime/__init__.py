"""The P4Runtime server of the embedded switch.

Where to begin: `service.py` (the gRPC methods), `arbitration.py` (who may write), `device.py` (which program runs),
`program.py` (the entities of a program).  `schema.py` binds P4Info to the program.  Section numbers are those of the
P4Runtime specification 1.4.
"""

from __future__ import annotations

from switchsum.switch.p4runtime.device import Device
from switchsum.switch.p4runtime.refusal import Refused
from switchsum.switch.p4runtime.server import Server
from switchsum.switch.p4runtime.service import Service

__all__ = ["Device", "Refused", "Server", "Service"]
