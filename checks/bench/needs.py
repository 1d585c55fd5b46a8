"""What parts of the benchmark want of a machine: said in a line before anything is measured."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something that a machine may lack."""

    is_there: Callable[[], bool]
    remedy: str
    """What to do about it."""
    without: Mapping[str, str]
    """Part -> what it leaves out without; `everything` if it cannot run."""


EVERYTHING: Final = "everything"
_LINKS: Final = {"links": EVERYTHING, "veth": EVERYTHING, "scaling": EVERYTHING, "interfaces": EVERYTHING}
_TOOLS: Final = ("ethtool", "ip", "tc", "unshare", "nsenter")

NEEDS: Final = {
    "root": Need(
        is_there=lambda: os.geteuid() == 0,
        remedy="run as root",
        without={**_LINKS, "train": "limited links", "switch": "BMv2"},
    ),
    "ethtool, iproute2 and util-linux": Need(
        is_there=lambda: all(map(shutil.which, _TOOLS)),
        remedy="apt install ethtool iproute2 util-linux",
        without={**_LINKS, "train": EVERYTHING},
    ),
    "simple_switch_grpc": Need(
        is_there=lambda: shutil.which("simple_switch_grpc") is not None,
        remedy="switchsum doctor says how",
        without=dict.fromkeys(("switch", "programs", "interfaces", "veth"), "BMv2"),
    ),
    "torch": Need(
        is_there=lambda: find_spec("torch") is not None,
        remedy="make torch",
        without={**dict.fromkeys(("allreduce", "links", "udp", "scaling", "start"), "gloo"), "train": EVERYTHING},
    ),
    "mpirun": Need(
        is_there=lambda: shutil.which("mpirun") is not None,
        remedy="apt install openmpi-bin",
        without=dict.fromkeys(("allreduce", "links", "scaling", "start"), "Open MPI"),
    ),
}


def missing(parts: Sequence[str], needs: Mapping[str, Need] = NEEDS) -> tuple[list[str], list[str]]:
    """Return lines that say what is missing for some parts, and the parts that can run without it."""
    lines, running = [], list(parts)
    for name, need in needs.items():
        lost = [(part, need.without[part]) for part in parts if part in need.without]
        if lost and not need.is_there():
            lines.append(f"no {name} ({need.remedy}): " + ", ".join(f"{part} without {what}" for part, what in lost))
            running = [part for part in running if (part, EVERYTHING) not in lost]
    return [line.replace(f"without {EVERYTHING}", "not measured") for line in lines], running
