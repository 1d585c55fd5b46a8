"""Commands of jobs whose ranks run a program of their own, on one machine or on a star of limited links."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from switchsum.launch.link_options import MTU
from switchsum_lab.sweeps.star import UNLIMITED


def over_switch(workers: int, rate: str, rank: Sequence[str], *, mtu: int = MTU) -> list[str]:
    """Return the command of a job of ours with links of a rate, or without any, and else a user's defaults."""
    links = [] if rate == UNLIMITED else ["--links", "veth", "--rate", rate, "--mtu", str(mtu)]
    return [sys.executable, "-m", "switchsum", "run", "-n", str(workers), "--timeout", "60", *links, "--", *rank]


def over_bridge(workers: int, rate: str, rank: Sequence[str], *, peer: str = "gloo", mtu: int = MTU) -> list[str]:
    """Return the command of a peer's job over a bridge of the kernel and links of the same kind, or the loopback."""
    apart = [] if rate == UNLIMITED else ["unshare", "--net", "--"]
    return [*apart, sys.executable, "-m", "switchsum_lab.sweeps.star", peer, str(workers), rate, str(mtu), *rank]
