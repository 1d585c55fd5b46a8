"""A network from a file, in the form of the p4lang tutorials' `topology.json`: hosts, switches, links.

    {
      "hosts": {"h1": {}, "h2": {}},
      "switches": {"s1": {"runtime_json": "s1-runtime.json"}},
      "links": [["h1", "s1-p1"], ["h2", "s1-p2"]]
    }

What the tutorials keep in a file of its own for each switch, `bmv2_json`, `p4info`, `table_entries`,
`multicast_group_entries` and `clone_session_entries`, may also stand in the switch itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from switchsum_switch.errors import UsageError

from ..api.switch import Switch
from ..errors import ProgramError, StateError
from ..ports.peers import SCHEME
from .ends import End, PcapEnd, TapEnd
from .network import ANY, LiveNetwork

SWITCH_FIELDS: Final = {
    *("runtime_json", "bmv2_json", "p4info", "table_entries", "multicast_group_entries", "clone_session_entries"),
    *("grpc", "device_id", "cpu_port", "target", "cli_input", "program"),
}
"""What may be said of a switch; `target`, `cli_input` and `program` are the tutorials', and have no effect."""
KINDS: Final = ("udp", "interface", "pcap", "tap")
"""What a host may be, if it is not a Python object; it is one of them."""
HOST_FIELDS: Final = {*KINDS, "record", "pace", "after_s", "ip", "mac", "commands"}
"""What may be said of a host.  `ip` and `mac` are for a TAP device.  The tutorials have them, and `commands`, for hosts
with a network stack; elsewhere they have no effect."""
_PORT: Final = re.compile(r"(.+)-p([0-9]+)")


def read_network(
    path: Path, *, folder: Path | None = None, first_grpc: int = 0, first_udp: int = 0, **options: Any
) -> LiveNetwork:
    """Return the network that a file describes, which does not run yet.

    Args:
        path: JSON, or YAML where PyYAML is installed.
        folder: Where the relative paths in it begin; None: at the file.
        first_grpc: TCP port of the first switch's P4Runtime server on 127.0.0.1, the next one's is one larger.  0: any.
        first_udp: First UDP port of the links of hosts that are other programs, two for each host.  0: hosts for which
            the file names no addresses are Python objects.
        options: As `Switch` takes them (`engine`, `traced`, ...).

    Returns:
        The network.

    Raises:
        UsageError: The file cannot be read, or says what no network has, in one line.
        ProgramError: A program cannot be loaded.

    """
    document = _mapping(_read(path), str(path))
    _only(document, {"hosts", "switches", "links"}, str(path))
    folder = path.parent if folder is None else folder
    network = LiveNetwork()
    outside: dict[str, str] = {}
    try:
        for name, fields in _nodes(document, "switches", path).items():
            listen = f"127.0.0.1:{first_grpc + len(network.nodes)}" if first_grpc else ANY
            _add_switch(network, name, fields, folder, listen, options)
        for name, fields in _nodes(document, "hosts", path).items():
            _only(fields, HOST_FIELDS, f"host {name}")
            network.host(name)
            kinds = [kind for kind in KINDS if kind in fields]
            if len(kinds) > 1:
                raise UsageError(f"host {name} has {' and '.join(kinds)}: it is one of them")
            if (end := _end_of(name, fields, folder)) is not None:
                network.attach(name, end)
            elif "udp" in fields:
                outside[name] = SCHEME + str(fields["udp"]).removeprefix(SCHEME)
            elif "interface" in fields:
                outside[name] = str(fields["interface"])
            elif first_udp:
                outside[name] = f"{SCHEME}127.0.0.1:{first_udp}/127.0.0.1:{first_udp + 1}"
                first_udp += 2
        for link in _list(document.get("links", []), f"links of {path}"):
            _add_link(network, link, outside)
    except BaseException:
        network.close()
        raise
    return network


def _add_switch(
    network: LiveNetwork, name: str, fields: Mapping[str, Any], folder: Path, listen: str, options: Mapping[str, Any]
) -> None:
    where = f"switch {name}"
    _only(fields, SWITCH_FIELDS, where)
    if "runtime_json" in fields:
        fields = {**_mapping(_read(folder / str(fields["runtime_json"])), str(fields["runtime_json"])), **fields}
        _only(fields, SWITCH_FIELDS, str(fields["runtime_json"]))
    given: dict[str, Any] = {"listen": str(fields.get("grpc", listen))}
    for one in {"device_id", "cpu_port"} & fields.keys():
        if not str(fields[one]).isdecimal():  # the tutorials write numbers as texts, too
            raise UsageError(f"{where}: {one} {fields[one]!r} is no number")
        given[one] = int(fields[one])
    if "bmv2_json" not in fields:
        if has := {"p4info", *_STATE} & fields.keys():
            raise UsageError(f"{where} has {min(has)} and no program: bmv2_json names one")
        network.bare_switch(name, **given)
        return
    p4info = folder / str(fields["p4info"]) if "p4info" in fields else None
    try:
        switch = Switch.from_file(folder / str(fields["bmv2_json"]), p4info, **options)
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from error
    network.switch(name, switch, **given)
    for kind, add in _STATE.items():
        for number, entry in enumerate(_list(fields.get(kind, []), f"{kind} of {where}"), start=1):
            try:
                add(switch, _mapping(entry, f"{where}, {kind} {number}"))
            except (StateError, ProgramError, KeyError, TypeError, ValueError) as error:
                said = f"{error.args[0]} is missing" if type(error) is KeyError else str(error)
                raise UsageError(f"{where}, {kind} {number}: {said}") from error


def _end_of(name: str, fields: Mapping[str, Any], folder: Path) -> End | None:
    """Return the capture file or the TAP device that a host is; None for another kind."""
    if further := [one for one in ("record", "pace", "after_s") if one in fields and "pcap" not in fields]:
        raise UsageError(f"host {name} has {further[0]} and no pcap")
    if "pcap" in fields:
        numbers = {one: fields[one] for one in ("pace", "after_s") if one in fields}
        for one, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise UsageError(f"host {name}: {one} {value!r} is no number")
        record = folder / str(fields["record"]) if "record" in fields else None
        return PcapEnd(folder / str(fields["pcap"]), record, **numbers)
    if "tap" in fields:
        texts = {one: str(fields[one]) for one in ("mac", "ip") if one in fields}
        return TapEnd(str(fields["tap"]), **texts)
    return None


def _add_entry(switch: Switch, entry: Mapping[str, Any]) -> None:
    table, action = switch.tables[str(entry["table"])], str(entry["action_name"])
    params = dict(entry.get("action_params", {}))
    if entry.get("default_action"):
        table.set_default(action, params)
        return
    match = {key: _key(value) for key, value in dict(entry["match"]).items()}
    table.insert(match, action, params, priority=entry.get("priority", 0))


def _key(value: Any) -> Any:
    """Return a key as a table takes it: the tutorials write pairs as lists, and some exact values as lists of one."""
    if not isinstance(value, list):
        return value
    return value[0] if len(value) == 1 else tuple(value)


def _add_group(switch: Switch, entry: Mapping[str, Any]) -> None:
    switch.multicast.set(entry["multicast_group_id"], _replicas(entry))


def _add_session(switch: Switch, entry: Mapping[str, Any]) -> None:
    switch.clones.set(entry["clone_session_id"], _replicas(entry))


def _replicas(entry: Mapping[str, Any]) -> list[tuple[int, int]]:
    return [(int(one["egress_port"]), int(one.get("instance", 0))) for one in entry["replicas"]]


_STATE: Final[Mapping[str, Callable[[Switch, Mapping[str, Any]], None]]] = {
    "table_entries": _add_entry,
    "multicast_group_entries": _add_group,
    "clone_session_entries": _add_session,
}
"""What a switch begins with, and what adds one of each."""


def _add_link(network: LiveNetwork, link: Any, outside: Mapping[str, str]) -> None:
    ends = [_end(network, str(end)) for end in _list(link, "a link")[:2]]
    if len(ends) != 2:
        raise UsageError(f"a link has two ends, such as [h1, s1-p1], not {link!r}")
    (one, port), (other, other_port) = sorted(ends, key=lambda end: end[0] in network.hosts)
    network.link(one, other, port=port, other_port=other_port, through=outside.get(other))


def _end(network: LiveNetwork, text: str) -> tuple[str, int | None]:
    """Return the node and port that a link's end names: `s1-p2`, or a node alone."""
    if text in network.hosts or text in network.nodes:
        return text, None
    found = _PORT.fullmatch(text)
    if found is None or found[1] not in network.nodes:
        raise UsageError(f"{text!r} is no end of a link: a host, or a port of a switch such as s1-p1")
    return found[1], int(found[2])


def _read(path: Path) -> Any:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'no text'}") from error
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from error
    try:
        import yaml  # noqa: PLC0415 - JSON does without it
    except ImportError as error:
        raise UsageError(f"{path}: YAML needs PyYAML (pip install pyyaml), or write the file as JSON") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from error


def _nodes(document: Mapping[str, Any], kind: str, path: Path) -> dict[str, Mapping[str, Any]]:
    nodes = document.get(kind, {})
    nodes = dict.fromkeys(nodes) if isinstance(nodes, list) else _mapping(nodes, f"{kind} of {path}")
    return {str(name): _mapping(fields or {}, f"{kind} {name}") for name, fields in nodes.items()}


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: names with values are expected, not {value!r:.40}")
    return value


def _list(value: Any, where: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise UsageError(f"{where}: a list is expected, not {value!r:.40}")
    return value


def _only(fields: Mapping[str, Any], known: set[str], where: str) -> None:
    for name in fields:
        if name not in known:
            raise UsageError(f"{where}: there is no field {name!r}; there are {', '.join(sorted(known))}")
