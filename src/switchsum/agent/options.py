"""What `switchsum agent` is asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass

from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import MOST_WORKERS


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """Some ranks of one job, on this machine."""

    controller: str
    """The controller's address, host:port."""
    job: str
    """Name of the job, which exists."""
    ranks: tuple[int, ...]
    """The ranks that run here, at least one."""
    link: str
    """Link of each rank to the switch, as `switchsum.connect` takes it."""


def read_ranks(text: str) -> tuple[int, ...]:
    """Read `2`, `0-3` or `0,4-7`, all different; raises UsageError."""
    ranks: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        are_numbers = text.isascii() and first.isdigit() and (last.isdigit() or not dash)
        if not are_numbers or int(last or first) >= MOST_WORKERS:
            raise UsageError(f"ranks are written like 2, 0-3 or 0,4-7, each below {MOST_WORKERS}, not {text!r}")
        ranks.extend(range(int(first), int(last or first) + 1))
    if not ranks or len(set(ranks)) != len(ranks):
        raise UsageError(f"name at least one rank, and each only once, not {text!r}")
    return tuple(ranks)


def check_trial(megabytes: float, allreduces: int) -> None:
    """Raise UsageError if no trial can be made of so many allreduces of this size."""
    if not 0 < megabytes <= 1000 or allreduces < 1:
        raise UsageError("a trial takes at least one allreduce, of more than 0 and at most 1000 megabytes")


def choose_link(interface: str | None, udp: str | None, link: str | None, controller: str) -> str:
    """Return the link that options mean, else SWITCHSUM_LINK, else UDP to the controller's host; raises UsageError."""
    given = [
        *([f"packet:{interface}"] if interface is not None else []),
        *([f"udp:{udp}"] if udp is not None else []),
        *([link] if link is not None else []),
    ]
    if len(given) > 1:
        raise UsageError("give only one of --interface, --udp and --link")
    if given:
        return given[0]
    if own := os.environ.get("SWITCHSUM_LINK"):
        return own
    if controller.startswith("unix:"):
        raise UsageError("the link to the switch is missing: give --interface eth0, --udp HOST or --link shm:NAME")
    return f"udp:{controller.rpartition(':')[0]}"
