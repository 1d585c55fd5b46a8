"""A training on several machines that was given no controller: a switch on each, which adds for the ranks there.

Rank 0 starts a switch and the controller.  The first rank of each other machine starts a switch.  So a machine sends
and gets each value once, however many ranks it has.  With two machines rank 0's switch is the root of the tree, and a
rank that is alone on the other machine needs no switch.  With more machines, each switch is the root of a tree for its
share of the slots, so that no link carries more than twice the values (as OmniReduce's sharded aggregators).

Ranks hand each other addresses and certificates through torch's store.  With these certificates only the controller can
give orders to switches, and only these ranks to the controller.  The store has no protection: everybody who can read it
has the certificates.
"""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from switchsum.torch.gloo import own_address
from switchsum.torch.services import LocalServices
from switchsum.torch.store import STARTS, Meeting, fetch, tell_error
from switchsum_protocol.builds import largest_build
from switchsum_protocol.errors import UsageError
from switchsum_switch.connections import tls
from switchsum_switch.notices import say
from switchsum_switch.wires.messages import receive_bytes

LEAF_VARIABLE: Final = "SWITCHSUM_LEAF"
"""Environment variable: 0 on rank 0 leaves switches of other machines out."""
CERTIFICATE_DAYS: Final = 365
MOST_OF_ONE_TREE: Final = 2
"""Machines: with more, each one's switch is the root of a tree over all, for its share of the slots."""
_TASKS: Final = "switchsum/tasks"
_PART: Final = "switchsum/part"
_IP_MTU: Final = 14  # of Linux; the socket module has no name for it

Certificate = dict[str, str]
"""The files of one certificate (`tls.FILES`), as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of a job on one machine, as its first rank tells it."""

    name: str
    mtu: int
    """MTU of the way to rank 0's machine, or from there to another one."""
    receive_bytes: int
    """Bytes that may wait in a UDP socket there, as the kernel counts them."""
    udp: str = ""
    """UDP address at which its switch receives frames of other switches."""
    p4runtime: str = ""
    """Address of its switch's P4Runtime server; empty: it has no switch."""
    link: str = ""
    """Link of its ranks to its switch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The services, links and certificate that rank 0 has made for the job."""

    services: LocalServices
    links: list[str]
    """Link of each rank."""
    certificate: Certificate
    """Certificate of the ranks for the controller."""


def first_ranks(machines: Sequence[str]) -> list[int]:
    """Return the first rank of each machine, in the order of ranks."""
    return sorted(machines.index(machine) for machine in set(machines))


def advice(machines: Sequence[str]) -> str | None:
    """Return what to say once where a ring is as good for dense sums, given the machine of each rank; else None."""
    if len(set(machines)) < len(machines):
        return None
    return (
        "one rank on each machine, and switches on the machines: a ring moves as few bytes, so use gloo for dense "
        "float32 here; compression and DiLoCo are what helps (docs/slow-links.md)"
    )


def lead(meeting: Meeting, machines: Sequence[str], hosts: Sequence[str], beacon: str) -> Found:
    """Start rank 0's switch and controller, when the others have told theirs; raises LocalError and others' errors.

    `machines` names the machine of each rank, `hosts` are on the way to others, and so is `beacon`.
    """
    if (text := advice(machines)) is not None:
        say(text)
    services = LocalServices()
    try:
        meeting.store.set(f"{STARTS}/0", "")
        certificates = _make_certificates(services.scratch)
        others = first_ranks(machines)[1:]
        tasks = {"beacon": beacon, "ranks": {rank: _has_switch(rank, machines) for rank in others}}
        meeting.store.set(_TASKS, json.dumps({**tasks, "certificate": _read(certificates / "switch" / tls.P4RUNTIME)}))
        address = own_address([*hosts, beacon])
        own = _start_part(services, 0, address, beacon, "", certificates / "switch")
        what = "starts what its machine needs"
        parts = {rank: Part(**fetch(meeting, f"{_PART}/{rank}", what, rank)) for rank in others}
        lanes = largest_build(min(part.mtu for part in (own, *parts.values())))
        services.start_fleet(f"{address}:0", _fleet(own, parts), lanes, certificates / "controller")
        links = {machines[rank]: part.link or f"udp:{own.udp}" for rank, part in {0: own, **parts}.items()}
        certificate = _read(certificates / "worker" / tls.HOSTS)
        return Found(services=services, links=[links[machine] for machine in machines], certificate=certificate)
    except BaseException:
        services.stop()
        raise


def _has_switch(rank: int, machines: Sequence[str]) -> bool:
    """Return whether a machine has a switch of its own, given its first rank."""
    if os.environ.get(LEAF_VARIABLE) == "0":
        return False
    # A rank alone gains nothing from a switch between it and rank 0's, unless that adds a share of the slots.
    return Counter(machines)[machines[rank]] > 1 or len(set(machines)) > MOST_OF_ONE_TREE


def no_tasks(meeting: Meeting) -> None:
    """Tell the others that they have nothing to start."""
    meeting.store.set(_TASKS, json.dumps({"ranks": {}}))


def fail(meeting: Meeting, error: Exception) -> None:
    """Tell the others why there is nothing to start."""
    tell_error(meeting, _TASKS, error)


def follow(meeting: Meeting, hosts: Sequence[str]) -> LocalServices | None:
    """Start what rank 0 asks of this rank, if it does; raises LocalError, and what rank 0 has failed with."""
    # Rank 0 waits as long for all to come, and says for whom it has waited in vain.
    tasks = fetch(meeting, _TASKS, "looks for switch and controller or starts them", 0, 5, has_machine=True)
    has_switch = tasks["ranks"].get(str(meeting.rank))
    if has_switch is None:
        return None
    beacon, key = tasks["beacon"], f"{_PART}/{meeting.rank}"
    address = own_address([*hosts, beacon])
    services = None
    try:
        if has_switch:
            meeting.store.set(f"{STARTS}/{meeting.rank}", "")
            services = LocalServices()
            folder = _write(tasks["certificate"], services.scratch / "tls" / tls.P4RUNTIME)
            part = _start_part(services, meeting.rank, address, beacon, f"{address}:0", folder)
        else:
            part = _part(meeting.rank, beacon)
        meeting.store.set(key, json.dumps(asdict(part)))
    except BaseException as error:
        if isinstance(error, Exception):
            tell_error(meeting, key, error)
        if services is not None:
            services.stop()
        raise
    return services


def trust(controller: str, certificate: Certificate) -> None:
    """Show a certificate to the controller at an address, from now on."""
    authority, own, key = (certificate[name].encode() for name in tls.FILES)
    tls.give(controller, (authority, own, key))


def _start_part(services: LocalServices, rank: int, address: str, beacon: str, listen: str, certificates: Path) -> Part:
    """Start a machine's switch, and describe it."""
    udp = f"{address}:{_free_port(address)}"
    services.start_switch(listen, udp, certificates)
    return _part(rank, beacon, udp=udp, p4runtime=services.p4runtime, link=services.link)


def _part(rank: int, beacon: str, *, udp: str = "", p4runtime: str = "", link: str = "") -> Part:
    name = f"{socket.gethostname()}/{rank}"
    return Part(name=name, mtu=_mtu_to(beacon), receive_bytes=receive_bytes(), udp=udp, p4runtime=p4runtime, link=link)


def _fleet(own: Part, parts: dict[int, Part]) -> dict[str, Any]:
    """Return the file of `switchsum controller --fleet`."""
    from switchsum_controller.trees.fabric import MOST_TREES  # noqa: PLC0415 - ranks of one machine need no controller

    having = [part for part in (own, *parts.values()) if part.p4runtime]
    switches = {part.name: {"p4runtime": part.p4runtime, "udp": part.udp} for part in having}
    # One root's link would carry all other machines' values; where each is the root of a tree, it carries its share.
    roots = [*switches][: MOST_TREES if len(having) > MOST_OF_ONE_TREE else 1]
    trees = [{"above": {name: root for name in switches if name != root}} for root in roots]
    link_bytes = min(part.receive_bytes for part in (own, *parts.values()))
    return {"switches": switches, "trees": trees, "link_bytes": link_bytes}


def _make_certificates(scratch: Path) -> Path:
    """Return a new folder with certificates by role; raises UsageError without the package that makes them."""
    try:
        from switchsum.launch import authority  # noqa: PLC0415  (the only part that needs cryptography)
    except ImportError as error:
        raise UsageError(
            "ranks on several machines keep strangers out of their switches by certificates, which need the package "
            "cryptography on rank 0: pip install 'switchsum[torch]'; or start switch and controller yourself, and set "
            "SWITCHSUM_CONTROLLER and SWITCHSUM_LINK"
        ) from error
    authority.make(scratch / "tls", CERTIFICATE_DAYS)
    return scratch / "tls"


def _read(folder: Path) -> Certificate:
    return {name: (folder / name).read_text() for name in tls.FILES}


def _write(certificate: Certificate, folder: Path) -> Path:
    """Write a certificate into a folder of its kind; return the folder for SWITCHSUM_TLS."""
    folder.mkdir(parents=True, mode=0o700)
    for name in tls.FILES:
        with os.fdopen(os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
            file.write(certificate[name])
    return folder.parent


def _mtu_to(host: str) -> int:
    """Return the MTU of the way to a host, as far as this machine knows it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))  # no datagram is sent
            return probe.getsockopt(socket.IPPROTO_IP, _IP_MTU)
        except OSError as error:
            raise UsageError(f"there is no way to {host}, where other ranks are: {error.strerror}") from error


def _free_port(address: str) -> int:
    """Return a UDP port of an address that is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port
