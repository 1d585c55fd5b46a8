"""The switches of `switchsum run --topology`: a process for each that adds, connected by UDP on the loopback.

Only the switches of the tree are started; `planning.py` says which ones these are, and where the workers stand.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from switchsum.launch.bmv2 import free_port
from switchsum.launch.options import Links, RunOptions

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePlan:
    """Which switch is above which, and where each worker stands."""

    parents: dict[str, str]
    """The switch above each switch but the root."""
    root: str
    leaves: tuple[str, ...]
    """The switch of each rank."""
    link_bytes: int
    """Bytes that may wait at a switch for all that come from other switches, as the kernel counts."""

    @property
    def switches(self) -> list[str]:
        """The names of all switches, the root first."""
        return [self.root, *self.parents]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where one switch of the tree listens."""

    name: str
    p4runtime: str
    udp: str
    link: str
    """Link of its workers, in the form of `switchsum.connect`."""

    def command(self, options: RunOptions) -> list[str]:
        """Return the `switchsum` command that starts it."""
        command = ["switch", "--listen", self.p4runtime, "--udp", self.udp]
        if options.link_kind is Links.SHM:
            command += ["--shm", self.link.removeprefix("shm:")]
        return command + ["--verbose"] * options.verbose


def lay_out(tree: TreePlan, links: Links, scratch: Path) -> dict[str, Site]:
    """Choose addresses for all switches, with sockets in the folder `scratch`."""
    sites = {}
    for number, name in enumerate(tree.switches):
        udp = f"{LOOPBACK}:{free_port()}"
        link = f"udp:{udp}" if links is Links.UDP else f"shm:{scratch}/links{number}"
        sites[name] = Site(name=name, p4runtime=f"unix:{scratch}/p4runtime{number}", udp=udp, link=link)
    return sites


def write_fleet(path: Path, tree: TreePlan, sites: dict[str, Site]) -> None:
    """Write the file of `switchsum controller --fleet`."""
    switches = {
        name: {"p4runtime": site.p4runtime, "udp": site.udp, "above": tree.parents.get(name)}
        for name, site in sites.items()
    }
    path.write_text(json.dumps({"switches": switches, "link_bytes": tree.link_bytes}, indent=1), encoding="utf-8")
