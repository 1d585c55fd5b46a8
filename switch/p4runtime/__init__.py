"""The P4Runtime server of the embedded switch."""

from __future__ import annotations

from switchsum.switch.p4runtime.device import Device
from switchsum.switch.p4runtime.refusal import Refused
from switchsum.switch.p4runtime.server import Server
from switchsum.switch.p4runtime.service import Service

__all__ = ["Device", "Refused", "Server", "Service"]
