"""What a switch must be told, and the kit with it: one job, its slots and its members.

A controller of switchsum tells both.  For any other switch a person writes the same facts into a file, and enters them
on the switch in the switch's own way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import AGGREGATION_PORT, MAX_WORKERS, WIRE_VERSION
from switchsum_protocol.slot_rules import AdmittedMember
from switchsum_switch.wires.headers import Address, parse_ip, parse_mac

LEAST_SLOTS: Final = 4
"""Two are kept for the rounds that open cells which were never used."""
LEAST_MEMBERS: Final = 2
_JOB: Final = {"lanes", "job", "epoch", "first_slot", "slot_count", "members"}
_MORE: Final = {"wire_version", "growth_bytes", "tree", "first_number", "fresh", "switch"}
_MEMBER: Final = {"cookie", "port"}
_MORE_OF_A_MEMBER: Final = {"ip", "mac"}
_SWITCH: Final = {"ip", "mac", "port"}
ANYWHERE: Final = Address(mac=0, ip=0, port=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFacts:
    """One member of the job."""

    cookie: int
    """64 bits."""
    address: Address
    """Source address of its frames."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the kit knows of the switch and of the job."""

    lanes: int
    """32-bit lanes of a frame."""
    growth_bytes: int | None = None
    """Bytes by which the switch's frames may grow. None: no limit."""
    switch: Address
    job: int
    epoch: int
    tree: int = 0
    first_slot: int
    slot_count: int
    first_number: int = 0
    """Number of the first round of every slot: cells have none that is newer."""
    fresh: bool = False
    """True: no cell of the job's slots was ever used."""
    members: tuple[MemberFacts, ...]
    """Members in the order of ranks."""

    def admission(self, member: MemberFacts) -> AdmittedMember:
        """Return a member's entry on the reference, where rank r is behind port r + 1."""
        rank = self.members.index(member)
        return AdmittedMember(
            job=self.job,
            rank=rank,
            epoch=self.epoch,
            cookie=member.cookie,
            address=member.address,
            port=rank + 1,
            workers=len(self.members),
            first_slot=self.first_slot,
            slot_count=self.slot_count,
            tree=self.tree,
        )


def check(facts: Facts) -> Facts:
    """Return facts that the kit can play; raises UsageError for others."""
    if not LEAST_MEMBERS <= len(facts.members) <= MAX_WORKERS:
        raise UsageError(f"the kit plays jobs of {LEAST_MEMBERS} to {MAX_WORKERS} members, not {len(facts.members)}")
    if facts.slot_count < LEAST_SLOTS:
        raise UsageError(f"the kit needs {LEAST_SLOTS} slots or more, not {facts.slot_count}")
    if facts.lanes < 1 or facts.lanes % 2:
        raise UsageError(f"a frame has an even number of lanes, not {facts.lanes}")
    return facts


def read_facts(path: Path) -> Facts:
    """Read a file of facts, JSON or YAML; raises UsageError that names the file and the key."""
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not text in UTF-8") from error
    try:
        return check(_facts(_load(path, text)))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _load(path: Path, text: str) -> object:
    if path.suffix not in (".yaml", ".yml"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise UsageError(f"not JSON: {error}") from error
    try:
        import yaml  # noqa: PLC0415 - JSON does without it
    except ModuleNotFoundError:
        raise UsageError("YAML needs pyyaml (`pip install switchsum[trees]`); JSON needs nothing") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"not YAML: {' '.join(str(error).split())}") from error


def _facts(top: object) -> Facts:
    given = _keys("the file", top, _JOB, _MORE)
    version = given.get("wire_version", WIRE_VERSION)
    if version != WIRE_VERSION:
        raise UsageError(f"wire_version is {version!r}, and this kit speaks version {WIRE_VERSION}")
    members = given["members"]
    if not isinstance(members, list):
        raise UsageError("members is a list, with a mapping for each rank")
    growth, fresh = given.get("growth_bytes"), given.get("fresh", False)
    if not isinstance(fresh, bool):
        raise UsageError(f"fresh is true or false, not {fresh!r}")
    return Facts(
        lanes=_number(given, "lanes", 16),
        growth_bytes=None if growth is None else _number(given, "growth_bytes", 16),
        switch=_address("switch", _keys("switch", given.get("switch", {}), set(), _SWITCH), AGGREGATION_PORT),
        job=_number(given, "job", 16),
        epoch=_number(given, "epoch", 16),
        tree=_number(given, "tree", 16, 0),
        first_slot=_number(given, "first_slot", 32),
        slot_count=_number(given, "slot_count", 32),
        first_number=_number(given, "first_number", 32, 0),
        fresh=fresh,
        members=tuple(_member(rank, each) for rank, each in enumerate(members)),
    )


def _member(rank: int, each: object) -> MemberFacts:
    name = f"members[{rank}]"
    given = _keys(name, each, _MEMBER, _MORE_OF_A_MEMBER)
    return MemberFacts(cookie=_number(given, "cookie", 64, within=name), address=_address(name, given))


def _address(name: str, given: Mapping[str, Any], port: int | None = None) -> Address:
    try:
        ip = parse_ip(str(given.get("ip", "0.0.0.0")))
        mac = parse_mac(str(given.get("mac", "00:00:00:00:00:00")))
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error
    return Address(mac=mac, ip=ip, port=_number(given, "port", 16, port, within=name))


def _keys(name: str, given: object, needed: set[str], more: set[str]) -> Mapping[str, Any]:
    """Return a mapping whose keys are all known, and none missing."""
    if not isinstance(given, dict):
        raise UsageError(f"{name} is a mapping of keys, not {type(given).__name__}")
    if unknown := sorted(map(str, set(given) - needed - more)):
        raise UsageError(f"{name} has unknown keys: {', '.join(unknown)}; there are {', '.join(sorted(needed | more))}")
    if missing := sorted(needed - set(given)):
        raise UsageError(f"{name} lacks {', '.join(missing)}")
    return given


def _number(given: Mapping[str, Any], name: str, bits: int, default: int | None = None, *, within: str = "") -> int:
    """Return a number of so many bits; text such as "0x1f" is one as well."""
    value = given.get(name, default)
    where = f"{within}.{name}" if within else name
    try:
        number = int(value, 0) if isinstance(value, str) else value
    except ValueError:
        number = None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << bits:
        raise UsageError(f"{where} is a number from 0 to {(1 << bits) - 1:#x}, not {value!r}")
    return number
