"""A topology: switches, hosts and the links between them, read from a YAML file and checked.

docs/topologies.md describes the format.  `parse` collects all that is wrong, so that one look at the output is
enough to mend a file.  The network itself is `topologies.network`'s.  scipy and PyYAML come with the extra `trees`.
"""

from __future__ import annotations

import ipaddress
import math
import reprlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from switchsum.topologies import Cable, Network, parts
from switchsum_protocol.errors import LocalError
from switchsum_protocol.reports import printable

try:
    import scipy  # noqa: F401 - not needed here, but whoever reads a topology plans trees over it
    import yaml
except ImportError as error:
    raise LocalError(
        f"topologies and trees need scipy and pyyaml, and {error.name} is missing: "
        f"{sys.executable} -m pip install 'switchsum[trees]'"
    ) from error

DEFAULT_MBIT: Final = 1000.0
"""Capacity of a link of a named shape that says none."""
MOST_MBIT: Final = 1e9
"""More than any link has: a slip of the pen, with which linear programs come to no end."""
MOST_BYTES: Final = 1 << 20
"""Largest size of a file, in bytes: twenty times as much as ten thousand links take."""
MOST_VALUES: Final = 200_000
"""Names, numbers, lists and mappings of a file, those counted again that an alias repeats."""
MOST_NUMBER: Final = 1 << 1000
"""A whole number beyond it is none that Python makes a float of."""
MOST_REASON: Final = 400
"""Characters of what the reader of YAML says."""
MOST_CHARACTERS: Final = 100
"""Longest name, in characters."""
MOST_PROBLEMS: Final = 50
"""Lines of an error; how many more there are is said."""
_TOP: Final = {"switches", "hosts", "links", "jobs", "mbit"}
_LINK: Final = {"between", "mbit", "reserved", "delay_ms"}
MOST_DELAY_MS: Final = 1e7


class TopologyError(LocalError):
    """A topology, or a job in it, is at fault."""


def load(path: Path, common_mbit: float | None = None) -> Network:
    """Read a topology from a YAML file; raises TopologyError with everything that is wrong, a line for each.

    `common_mbit` takes the place of the file's own `mbit`, the capacity of links that give none.
    """
    network, found = parse(read_text(path), common_mbit)
    if found:
        raise TopologyError(f"{path}: " + "\n".join(in_short(found)))
    return network


def in_short(found: Sequence[str]) -> list[str]:
    """Return the first of many problems, and how many more there are."""
    more = len(found) - MOST_PROBLEMS
    return [*found[:MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]


def read_text(path: Path) -> str:
    """Read a file; raises TopologyError."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise TopologyError(f"{path} has more than {MOST_BYTES:,} bytes, which no topology needs")
        return data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise TopologyError(f"{path} cannot be read: {reason}") from error


def parse(text: str, common_mbit: float | None = None) -> tuple[Network, list[str]]:
    """Read a topology from YAML; return what could be read, and a line for each thing that is wrong."""
    found: list[str] = []
    top = _load_yaml(text, found)
    if not isinstance(top, dict):
        found.append("the file is no mapping with switches, hosts and links")
        top = {}
    found += [f"unknown key {_shown(key)}: a topology has {', '.join(sorted(_TOP))}" for key in top if key not in _TOP]
    switches = tuple(_names(top.get("switches"), "switches", found))
    hosts, addresses = _hosts(top.get("hosts"), found)
    links, common = top.get("links"), top.get("mbit") if common_mbit is None else common_mbit
    if common_mbit is not None and isinstance(links, list) and all(_has_own(link) for link in links):
        found.append("each link has an `mbit` of its own, so that a rate for all says nothing: leave it out")
    cables = tuple(_cables(links, common, found))
    network = Network(
        switches=switches, hosts=hosts, cables=cables, addresses=addresses, jobs=_jobs(top.get("jobs"), found)
    )
    return network, found + problems(network)


def problems(network: Network) -> list[str]:
    """Return what is wrong with a topology, a line for each thing."""
    found = [f"no {what}" for what in ("switches", "hosts", "cables") if not getattr(network, what)]
    found = [line.replace("cables", "links") for line in found]
    counts = Counter([*network.switches, *network.hosts])
    found += [f"{name}: {count} nodes have this name" for name, count in counts.items() if count > 1]
    found += _wrong_addresses(network.addresses)
    known, hosts = set(counts), set(network.hosts)
    for cable in network.cables:
        found += _wrong_cable(cable, known, hosts)
    found += _wrong_jobs(network, hosts)
    if not found:  # reachability says nothing new about a file whose links are wrong
        found += _wrong_paths(network)
    return found


def _wrong_addresses(addresses: Mapping[str, str]) -> Iterator[str]:
    seen: dict[Any, str] = {}
    for host, text in addresses.items():
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            yield f"{host}: {text!r} is no IP address"
            continue
        if address in seen:
            yield f"{seen[address]} and {host} have the same address, {text}"
        seen.setdefault(address, host)


def _wrong_cable(cable: Cable, known: set[str], hosts: set[str]) -> Iterator[str]:
    for end in dict.fromkeys(cable.ends):
        if end not in known:
            yield f"link {cable}: there is no node {end}"
    if cable.ends[0] == cable.ends[1]:
        yield f"link {cable}: both ends are the same node"
    elif set(cable.ends) <= hosts:
        yield f"link {cable}: hosts do not forward, so one end of a link is a switch"
    if not (math.isfinite(cable.mbit) and cable.mbit > 0):
        yield f"link {cable}: a capacity is more than 0 Mbit/s, not {cable.mbit:g}"
    elif cable.mbit > MOST_MBIT:
        yield f"link {cable}: a capacity is at most {MOST_MBIT:g} Mbit/s, not {cable.mbit:g}"
    elif cable.delay_ms is not None and not 0 <= cable.delay_ms <= MOST_DELAY_MS:
        yield f"link {cable}: a delay is 0 to {MOST_DELAY_MS:g} ms, not {cable.delay_ms:g}"
    elif not 0 <= cable.reserved_mbit <= cable.mbit:
        yield f"link {cable}: {cable.reserved_mbit:g} reserved of {cable.mbit:g} Mbit/s"


def _wrong_jobs(network: Network, hosts: set[str]) -> Iterator[str]:
    for job, members in network.jobs.items():
        for host, count in Counter(members).items():
            if host not in hosts:
                yield f"job {job}: there is no host {host}"
            elif count > 1:
                yield f"job {job}: host {host} is in it {count} times"
        if not members:
            yield f"job {job}: it has no hosts"


def _wrong_paths(network: Network) -> Iterator[str]:
    """Yield hosts without a link, parts that nothing connects, and jobs whose hosts no free path connects."""
    linked = {end for cable in network.cables for end in cable.ends}
    lone = [host for host in network.hosts if host not in linked]
    yield from (f"host {host}: it has no link, so nothing reaches it" for host in lone)
    nodes = [*network.switches, *(host for host in network.hosts if host in linked)]
    islands = sorted(parts(nodes, [cable.ends for cable in network.cables]), key=lambda part: (-len(part), min(part)))
    for island in islands[1:]:
        yield f"island: nothing connects {_some(sorted(island))} with {min(islands[0])}"
    for job, members in network.jobs.items():
        missing = unserved(network, members)
        if missing and not set(missing) & set(lone):
            yield f"job {job}: no path with free capacity connects {_some(missing)} with {members[0]}"


def unserved(network: Network, members: Sequence[str]) -> list[str]:
    """Return the hosts that no path of switches and free links connects with the job's first host."""
    # A host with several links does not forward: from host to host the search goes over switches alone.
    free = [cable.ends for cable in network.cables if cable.free_mbit > 0]
    part_of = {node: number for number, part in enumerate(parts(network.switches, free)) for node in part}
    reached: dict[str, set[int]] = {host: set() for host in members}
    for one, far in (way for ends in free for way in (ends, ends[::-1])):
        if one in reached and far in part_of:
            reached[one].add(part_of[far])
    own = [reached[host] for host in members]
    shared = [number for number in own[0] if all(number in part for part in own)]
    if shared or len(members) < 2:
        return []
    best = max(sorted(own[0]), key=lambda number: sum(number in part for part in own), default=-1)
    return [host for host, part in zip(members, own, strict=True) if best not in part and host != members[0]] or [
        members[0]
    ]


def _some(names: Iterable[str], most: int = 4) -> str:
    """Return the first names of many, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def _load_yaml(text: str, found: list[str]) -> Any:
    try:
        loader = yaml.SafeLoader(text)
        try:
            root = loader.get_single_node()
            _count(root, {})
            found.extend(_doubled(root))
            return loader.construct_document(root) if root is not None else None
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split())
        found.append(f"the file is no YAML: {printable(reason, MOST_REASON)}")
        return {}


def _count(node: Any, counted: dict[int, int]) -> int:
    """Return of how many values a node is, with those that aliases repeat; raises ValueError for too many.

    Eight lines of lists of nine aliases each are 43 million values.
    """
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in counted:
        counted[id(node)] = MOST_VALUES  # what it has inside itself has no end
        inside = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        counted[id(node)] = 1 + sum(_count(part, counted) for part in inside)
    if counted[id(node)] > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES:,} values, counting those that its aliases repeat")
    return counted[id(node)]


def _shown(value: Any) -> str:
    """Write a value as an error names it: its beginning."""
    try:
        text = repr(value) if isinstance(value, str) and len(value) <= MOST_CHARACTERS else reprlib.repr(value)
    except ValueError:  # a number of thousands of digits, which Python does not write
        return "a number of thousands of digits"
    return text


def _doubled(root: Any) -> Iterator[str]:
    """Yield keys that a mapping has twice: PyYAML lets the last one win, and a host written twice is a mistake."""
    waiting, seen = [root], set()
    for node in waiting:  # grows while it is read; an alias leads to a node that was seen
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))
        is_mapping = isinstance(node, yaml.MappingNode)
        waiting += [part for pair in node.value for part in pair] if is_mapping else node.value
        keys = Counter(str(key.value)[:MOST_CHARACTERS] for key, _ in node.value) if is_mapping else Counter[str]()
        for key, count in keys.items():
            if count > 1:
                yield f"{key if key.isprintable() else _shown(key)}: it stands there {count} times"


def _names(value: Any, what: str, found: list[str]) -> Iterator[str]:
    """Yield the names of a list or of a mapping's keys."""
    if value is not None and not isinstance(value, list | dict):
        found.append(f"{what}: a list of names, not {_shown(value)}")
        return
    for name in value or ():
        if _is_name(name):
            yield name
        else:
            what_is = f"at most {MOST_CHARACTERS} characters" if _is_long(name) else "a text without commas"
            found.append(f"{what}: {_shown(name)} is no name ({what_is}; quote numbers, yes and no)")


def _hosts(value: Any, found: list[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    names = tuple(_names(value, "hosts", found))
    addresses = {}
    for name in names if isinstance(value, dict) else ():
        if isinstance(value[name], str) and len(value[name]) <= MOST_CHARACTERS:
            addresses[name] = value[name]
        elif value[name] is not None:
            found.append(f"{name}: {_shown(value[name])} is no IP address")
    return names, addresses


def _has_own(link: Any) -> bool:
    return isinstance(link, dict) and "mbit" in link


def _cables(value: Any, common: Any, found: list[str]) -> Iterator[Cable]:
    if value is not None and not isinstance(value, list):
        found.append("links: a list of {between: [NODE, NODE], mbit: CAPACITY}")
        return
    for number, link in enumerate(value or (), 1):
        ends = link.get("between") if isinstance(link, dict) else None
        if not (isinstance(ends, list) and len(ends) == 2 and all(_is_name(end) for end in ends)):
            found.append(f"link {number}: it is no {{between: [NODE, NODE], mbit: CAPACITY}}")
            continue
        name = f"link {ends[0]} to {ends[1]}"
        found += [f"{name}: unknown key {_shown(key)}" for key in link if key not in _LINK]
        mbit, reserved = link.get("mbit", common), link.get("reserved", 0)
        if not (_is_number(mbit) and _is_number(reserved)):
            found.append(f"{name}: its capacity (mbit) and what is reserved of it are numbers of Mbit/s")
            continue
        delay = link.get("delay_ms")
        if not (delay is None or _is_number(delay)):
            found.append(f"{name}: its delay (delay_ms) is a number of milliseconds")
            continue
        yield Cable(
            ends=(ends[0], ends[1]),
            mbit=float(mbit),
            reserved_mbit=float(reserved),
            delay_ms=None if delay is None else float(delay),
        )


def _jobs(value: Any, found: list[str]) -> dict[str, tuple[str, ...]]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        found.append("jobs: a mapping of names to lists of hosts")
        return {}
    named = {name if isinstance(name, str) else _shown(name): members for name, members in value.items()}
    return {name: tuple(_names(named[name], f"job {name}", found)) for name in _names(named, "jobs", found)}


def _is_name(value: Any) -> bool:
    is_text = isinstance(value, str) and value != "" and not _is_long(value)
    return is_text and value.isprintable() and "," not in value


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > MOST_CHARACTERS


def _is_number(value: Any) -> bool:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < MOST_NUMBER
    return is_whole or isinstance(value, float)
