"""Reads the file of several switches, as docs/controller-trees.md describes it, and says what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from switchsum_protocol.errors import UsageError
from switchsum_switch.connections.addresses import LAST_PORT as LAST_UDP_PORT
from switchsum_switch.connections.addresses import check_form, is_number
from switchsum_switch.wires.headers import Address, parse_ip, parse_mac

from ..tables.names import CPU_PORT
from .fabric import MOST_TREES, Fabric, FabricSwitch

UDP_PORT: Final = 1
"""Number of the embedded switch's port that is a UDP socket, where it has no interfaces."""
LAST_PORT: Final = 510
MOST_SHARE: Final = 1e9
"""Shares are rates in Mbit/s or small numbers; their sum has to be a number, too."""
FIRST_GROUP_OCTET: Final = 224
"""First octet of IPv4 addresses of groups. From there on, no address is a host's."""
_TOP: Final = {"switches", "trees", "link_bytes", "shared_slots", "spread_jobs"}
_KEYS: Final = {"p4runtime", "udp", "port", "ports", "stations", "above", "role"}
_AGGREGATOR: Final = "aggregator"
"""The one role that a switch may have: it is no part of a tree, but the fallback of jobs that share slots."""
_MOST_SHARED: Final = 512
_TREE: Final = {"above", "share"}


def load(path: Path, lanes_per_frame: int) -> Fabric:
    """Read a fabric from a JSON file, as docs/controller-trees.md describes it; raises UsageError."""
    try:
        return parse(path.read_text(encoding="utf-8"), lanes_per_frame)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{path} cannot be read: {reason}") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def parse(text: str, lanes_per_frame: int) -> Fabric:
    """Read a fabric from JSON; raises UsageError."""
    top = read_json(text)
    given = top.get("switches") if isinstance(top, dict) else None
    if not isinstance(given, dict) or not given or not all(isinstance(one, dict) for one in given.values()):
        raise UsageError(
            'it must have the form {"switches": {NAME: {"p4runtime": ADDRESS, "udp": HOST:PORT, "above": NAME}}}'
        )
    _check_keys(top, _TOP, "a fleet")
    for name in given:
        if not name or not name.isprintable():
            raise UsageError(f"a switch's name must be printable text, not {name!r}")
    link_bytes = top.get("link_bytes", 0)
    if not _is_natural(link_bytes):
        raise UsageError(f"link_bytes must be a number of bytes, not {link_bytes!r}")
    fallback, shared_slots = _read_fallback(top, given)
    all_parents, shares = _read_trees(top, {name: one for name, one in given.items() if name != fallback})
    spreads_jobs = top.get("spread_jobs", False)
    if not isinstance(spreads_jobs, bool):
        raise UsageError(f"spread_jobs must be true or false, not {spreads_jobs!r}")
    if spreads_jobs and len(all_parents) > 1:
        raise UsageError("spread_jobs gives each job one tree of its own, so that the file names one tree, not several")
    switches = {}
    first = all_parents[0]
    # Sockets reach one another, whatever the trees are.
    by_udp = {name for name, one in given.items() if one.get("udp") is not None and one.get("ports") is None}
    order_of = [*given]

    def place(name: str) -> tuple[bool, bool, int]:
        return name == fallback, name in first or name not in {*first.values()}, order_of.index(name)

    for name in sorted(given, key=place):
        near = {far for parents in all_parents for far, above in parents.items() if above == name}
        near |= {parents[name] for parents in all_parents if name in parents}
        ports = given[name].get("ports")
        if unknown := [far for far in ports if far not in given or far == name] if isinstance(ports, dict) else ():
            raise UsageError(f"switch {name}: ports names {unknown[0]!r}, which is not another switch of this file")
        reaches = by_udp if name in by_udp else {*ports} if isinstance(ports, dict) else set()
        order = [far for far in given if far != name and (far in near or far in reaches)]
        switches[name] = _read_switch(name, given[name], [far for far in order if far in near], order)
    check_apart(switches)
    return Fabric(
        switches=switches,
        parents=first,
        others=all_parents[1:],
        shares=shares,
        link_bytes=link_bytes,
        lanes_per_frame=lanes_per_frame,
        fallback=fallback,
        shared_slots=shared_slots,
        spreads_jobs=spreads_jobs,
    )


def _read_fallback(top: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, int]:
    """Return the switch that is the fallback of jobs that share slots, and how many are shared; raises UsageError."""
    names = [name for name, one in given.items() if one.get("role") is not None]
    for name in names:
        if given[name]["role"] != _AGGREGATOR:
            raise UsageError(f"switch {name}: role must be {_AGGREGATOR!r}, not {given[name]['role']!r}")
        if given[name].get("above") is not None:
            raise UsageError(f"switch {name}: an aggregator is no part of a tree, and has no key `above`")
    if len(names) > 1 or len(names) == len(given):
        raise UsageError(f"{' and '.join(names)}: one switch may be an aggregator, beside others that are not")
    shared = top.get("shared_slots", 256 if names else 0)
    if not _is_natural(shared) or shared > _MOST_SHARED or bool(shared) != bool(names):
        raise UsageError(
            f"shared_slots must be 1 to {_MOST_SHARED} where a switch is an aggregator, and is left out elsewhere, "
            f"not {shared!r}"
        )
    return (names[0] if names else ""), shared


def read_json(text: str) -> Any:
    """Read JSON of which no object has a key twice: Python lets the last one win.  Raises UsageError."""
    try:
        return json.loads(text, object_pairs_hook=_once)
    except UsageError:
        raise
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is no JSON: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise UsageError(f"{max(names, key=names.count)!r} is given twice")
    return found


def _check_keys(given: Iterable[str], known: set[str], what: str) -> None:
    for key in given:
        if key not in known:
            raise UsageError(f"{what} may have {', '.join(sorted(known))}, but not {key!r}")


def _read_trees(top: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[list[dict[str, str]], list[float]]:
    """Return the switches above others in each tree, and the shares of the trees; raises UsageError."""
    single = {name: one["above"] for name, one in given.items() if one.get("above") is not None}
    trees = top.get("trees", [{"above": single}])
    if not isinstance(trees, list) or not 1 <= len(trees) <= MOST_TREES or ("trees" in top and single):
        raise UsageError(f"trees must be a list of 1 to {MOST_TREES} trees; with it, no switch has a key `above`")
    shares = []
    for tree in trees:
        above, share = (tree.get("above"), tree.get("share", 1)) if isinstance(tree, dict) else (None, 1)
        are_names = isinstance(above, dict) and all(isinstance(name, str) for name in above.values())
        is_share = isinstance(share, int | float) and not isinstance(share, bool) and 0 < share <= MOST_SHARE
        if not isinstance(above, dict) or not are_names or not is_share:
            raise UsageError(f'a tree must have the form {{"above": {{NAME: NAME}}, "share": NUMBER}}, not {tree!r}')
        _check_keys(tree, _TREE, "a tree")
        names = list(given if "trees" not in top else {**above, **dict.fromkeys(above.values())})
        _check_parents(names, above, roots={name for name in names if given.get(name, {}).get("above", "") is None})
        if unknown := [name for name in (*above, *above.values()) if name not in given]:
            raise UsageError(f"a tree names switch {unknown[0]!r}, which is not among the switches")
        shares.append(float(share))
    return [dict(tree["above"]) for tree in trees], shares


def _read_switch(name: str, given: Mapping[str, Any], near: Sequence[str], reaches: Sequence[str]) -> FabricSwitch:
    _check_keys(given, _KEYS, f"switch {name}: it")
    if not isinstance(given.get("p4runtime"), str):
        raise UsageError(
            f"switch {name}: p4runtime is missing: it must be the address of the switch's P4Runtime server"
        )
    try:
        check_form(given["p4runtime"])
    except UsageError as error:
        raise UsageError(f"switch {name}: p4runtime: {error}") from error
    port, ports = given.get("port", UDP_PORT), given.get("ports")
    if not _is_port(port):
        raise UsageError(f"switch {name}: port must be the number of its port towards other switches, not {port!r}")
    if ports is None:
        ports = dict.fromkeys(reaches, port)
    elif not isinstance(ports, dict) or not all(map(_is_port, ports.values())) or not set(near) <= ports.keys():
        raise UsageError(f"switch {name}: ports must give a port number for each neighbour: {', '.join(near)}")
    has_socket = bool(reaches) and (given.get("udp") is not None or given.get("ports") is None)
    return FabricSwitch(
        p4runtime=given["p4runtime"],
        address=_read_udp(name, given.get("udp")) if has_socket else None,
        ports={far: ports[far] for far in reaches},
        stations=_read_stations(name, given.get("stations", {})),
    )


def _read_udp(name: str, given: object) -> Address:
    host, _, port = str(given).rpartition(":")
    try:
        ip = parse_ip(host)
    except ValueError:
        ip = 0
    if not 0 < ip >> 24 < FIRST_GROUP_OCTET or not is_number(port, LAST_UDP_PORT) or int(port) == 0:
        raise UsageError(f"switch {name}: udp must be IP:PORT, at which other switches reach it, not {given!r}")
    return Address(mac=0, ip=ip, port=int(port))


def _read_stations(name: str, given: object) -> dict[int, int]:
    try:
        if isinstance(given, dict) and all(map(_is_port, given.values())):
            stations = {parse_mac(mac): port for mac, port in given.items()}
            if len(stations) == len(given) and not any(mac >> 40 & 1 for mac in stations):  # groups are no stations
                return stations
    except ValueError:
        pass
    raise UsageError(f"switch {name}: stations must map Ethernet addresses to port numbers, not {given!r}")


def check_apart(switches: Mapping[str, FabricSwitch]) -> None:
    """Raise UsageError if two switches are one, or two switches are behind one port of another."""
    for what in ("p4runtime", "address"):
        owners: dict[object, str] = {}
        for name, switch in switches.items():
            place = getattr(switch, what)
            if place is not None and owners.setdefault(place, name) != name:
                raise UsageError(f"switches {owners[place]} and {name} have the same {what}, {place}")
    for name, switch in switches.items():
        # Without interfaces all other switches are behind the UDP socket, and are told apart by address.
        behind = [far for far in switch.ports if switch.address is None]
        ports = {switch.ports[far]: far for far in behind}
        if len(ports) < len(behind):
            raise UsageError(
                f"switch {name}: two of {', '.join(behind)} have the same port: give each its own, or set udp"
            )


def _check_parents(names: Sequence[str], parents: Mapping[str, Any], roots: Collection[str]) -> None:
    """Raise UsageError unless all ways up end at one switch, or at those that the file says to be `roots`."""
    for name, above in parents.items():
        if above not in names:
            raise UsageError(f"switch {name}: there is no switch {above!r} above it")
    found = [name for name in names if name not in parents and name not in roots]
    if len(found) > 1:
        raise UsageError(
            f"{' and '.join(found)} have no switch above, but a tree has one root (for rails, give each root "
            '"above": null)'
        )
    for name in names:
        way = [name]
        while way[-1] in parents:
            way.append(parents[way[-1]])
            if way[-1] in way[:-1]:
                raise UsageError(f"switches form a circle through their `above`: {', '.join(way)}")


def _is_port(value: Any) -> bool:
    return _is_natural(value) and value <= LAST_PORT and value != CPU_PORT


def _is_natural(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
