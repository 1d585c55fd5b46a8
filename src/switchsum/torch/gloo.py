"""The gloo behind a group: which address it listens at, and that it connects only where it is used.

gloo by itself listens at the address that this machine's own name has, which is 127.0.1.1 on every Debian: out of reach
for other machines.  Here it takes the address by which this machine reaches the job's other parts, as our own links do,
and opens connections when a call first needs them.
"""

from __future__ import annotations

import ipaddress
import operator
import os
import socket
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

import torch.distributed as dist

INTERFACE: Final = "GLOO_SOCKET_IFNAME"
"""torch's environment variable: the interface that gloo takes, whatever is found here."""
LOOPBACK: Final = "127.0.0.1"
_ANY_PORT: Final = 9  # no datagram is sent


def own_address(hosts: Iterable[str]) -> str:
    """Return this machine's address on the way to the first of some hosts that is not itself, else the loopback's."""
    for host in hosts:
        address = _source(host)
        if address is not None and not is_loopback(address):
            return address
    return LOOPBACK


def is_loopback(address: str) -> bool:
    """Return whether an address means each machine itself."""
    return ipaddress.ip_address(address).is_loopback


def open_gloo(store: dist.Store, rank: int, size: int, timeout: timedelta, address: str) -> dist.ProcessGroupGloo:
    """Return a gloo of the group's ranks that listens at an address and connects to others when it must."""
    interface = os.environ.get(INTERFACE)
    where = {"interface": interface.partition(",")[0]} if interface else {"hostname": address}
    options = dist.ProcessGroupGloo._Options()
    options._timeout = timeout
    options._devices = [dist.ProcessGroupGloo.create_device(**where, lazy_init=True)]
    return dist.ProcessGroupGloo(dist.PrefixStore("gloo/", store), rank, size, options)


_TIMEOUT: Final = operator.attrgetter("_timeout")
"""Reads the time-out of a gloo's options, which torch's Python has under this name alone."""


def timeout_of(gloo: dist.ProcessGroupGloo) -> timedelta:
    """Return a gloo's time-out: that of its group, which `set_timeout` and torch's `_set_pg_timeout` change."""
    timeout: timedelta = _TIMEOUT(gloo.options)
    return timeout


def _source(host: str) -> str | None:
    """Return the address that datagrams to a host would come from; None where there is no way to it."""
    try:
        places = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, _, _, place in places:
        try:
            with socket.socket(family, kind) as probe:
                probe.connect(place)
                return str(probe.getsockname()[0]).partition("%")[0]
        except OSError:
            continue
    return None
