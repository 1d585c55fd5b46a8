"""The text of an STF file as typed statements.

STF ("simple test format") is the format of p4c's tests.  A line is one statement, `#` begins a comment, and keywords
may be written in capitals:

    add ipv4 100 ip.dst:0x0a0000** ip.ttl:0x40 forward(port:2) = $A   # an entry with priority 100 and the label A
    add routes ip.dst:0x0a000000/8 forward(port:3)
    setdefault ipv4 drop()
    remove all
    packet 1 0102 0a000001
    expect 2 0102 0a00****                # a prefix; a star is any digit
    expect 2 0102 0a000001 $              # the whole frame
    expect 3                              # any frame
    no_packet
    wait
    check_counter ipv4($A) packets == 1
    mirroring_add 5 2

Commands of simple_switch_CLI for replication, registers, counters, meters and value sets stand as it takes them
(`DIRECT`).  The grammar is documented in p4c's tools/stf.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from switchsum_switch.errors import UsageError

DIRECT: Final = {
    "mirroring_add": (2, 2),
    "mirroring_add_mc": (2, 2),
    "mirroring_delete": (1, 1),
    "mirroring_get": (1, 1),
    "mc_mgrp_create": (1, 1),
    "mc_node_create": (1, None),
    "mc_node_update": (1, None),
    "mc_node_associate": (2, 2),
    "counter_read": (2, 2),
    "counter_write": (4, 4),
    "register_read": (2, 2),
    "register_write": (3, 3),
    "register_reset": (1, 1),
    "meter_get_rates": (2, 2),
    "meter_set_rates": (3, None),
    "meter_array_set_rates": (2, None),
    "parse_vset_add": (2, 2),
}
"""Commands that are those of simple_switch_CLI, and the least and the largest number of their words."""
_COMPARISONS: Final = ("==", "!=", "<=", ">=", "<", ">")
_STATEMENT: Final = re.compile(r'(?:"[^"]*"|[^#])*')
"""What stands before a comment, for names in quotes may have a `#`."""
_TOKEN: Final = re.compile(
    r"""\s*(?:"([^"]*)"|([A-Za-z_$][\w$]*(?:\[\d+\])?(?:\.[\w$]+(?:\[\d+\])?)*)|(0[xXbBoO][0-9a-fA-F*]+|\d+)"""
    r"""|(==|!=|<=|>=|&&&|\.\.|[<>:,()=/.-]))"""
)


class StfError(UsageError):
    """The text is no STF; the message names the line."""


@dataclass(frozen=True, slots=True)
class MatchValue:
    """A number as it is written, with its wildcards: stars for digits, a prefix length, a mask or a range."""

    text: str
    prefix_len: int | None = None
    mask: str | None = None
    high: str | None = None

    def number(self) -> int:
        """Return the number, with 0 for each star."""
        return int(self.text.replace("*", "0"), 0)

    def written_mask(self) -> int:
        """Return the mask that the written digits give: ones but for the stars, zeros above the first digit."""
        if self.mask is not None:
            return int(self.mask, 0)
        if self.text[:2].lower() not in ("0x", "0b", "0o"):
            return (1 << max(1, self.number().bit_length())) - 1
        base, digits = self.text[:2], self.text[2:]
        full = {"x": "f", "b": "1", "o": "7"}[base[1].lower()]
        return int(base + "".join("0" if digit == "*" else full for digit in digits), 0)

    def starred_bits(self) -> int:
        """Return the bits of the stars at the end."""
        stars = len(self.text) - len(self.text.rstrip("*"))
        return stars * {"0x": 4, "0b": 1, "0o": 3}.get(self.text[:2].lower(), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An action and its arguments by name."""

    action: str
    arguments: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """Add an entry to a table."""

    line: int
    table: str
    priority: int | None
    """The largest wins."""
    keys: tuple[tuple[str, MatchValue], ...]
    call: Call
    label: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDefault:
    """Set a table's default action."""

    line: int
    table: str
    call: Call


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAll:
    """Remove all entries of all tables."""

    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A frame arrives."""

    line: int
    port: int
    frame: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """A frame leaves; those of a port leave in the order in which the file expects them."""

    line: int
    port: int
    digits: str | None
    """Hexadecimal, with stars; None: any frame."""
    whole: bool
    """The frame ends with the digits; else it may be longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPacket:
    """Nothing leaves until the next `expect` or the end."""

    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A second passes."""

    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCounter:
    """A counter's cell, or a direct counter's entry, has a value."""

    line: int
    counter: str
    index: int | str
    """A cell, or the label of an entry."""
    unit: str
    """packets or bytes."""
    comparison: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """A command of simple_switch_CLI."""

    line: int
    command: str
    words: tuple[str, ...]


Line = Add | SetDefault | RemoveAll | Send | Expect | NoPacket | Wait | CheckCounter | Direct


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """The statements of a file."""

    __test__ = False  # pytest takes classes of this name for tests

    name: str
    statements: tuple[Line, ...]

    @property
    def ports(self) -> frozenset[int]:
        """Return the ports that the test names; frames that leave others are not looked at, as in p4c."""
        return frozenset(one.port for one in self.statements if isinstance(one, Send | Expect))


def parse(text: str, name: str = "test") -> Test:
    """Return the statements of an STF text; raises StfError, with the line."""
    made: list[Line] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = _STATEMENT.match(line)[0].split(None, 1)  # type: ignore[index] # matches any line
        if not words:
            continue
        keyword, rest = words[0].lower(), words[1].strip() if len(words) > 1 else ""
        read = _STATEMENTS.get(keyword) or (_direct(keyword) if keyword in DIRECT else None)
        if read is None:
            raise StfError(f"{name}:{number}: STF has no statement {words[0]!r}")
        try:
            made.append(read(number, rest))
        except ValueError as error:
            raise StfError(f"{name}:{number}: {error}") from None
    return Test(name=name, statements=tuple(made))


class _Tokens:
    """The tokens of a line, taken one after the other."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"{text[at:].strip()!r} is not understood")
            quoted, name, number, sign = found.groups()
            self._tokens.append(
                ("name", quoted or name) if quoted or name else ("number", number) if number else ("sign", sign)
            )
            at = found.end()

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        """Return the kind and text of a token without taking it; ("end", "") behind the last."""
        return self._tokens[ahead] if ahead < len(self._tokens) else ("end", "")

    def take(self, kind: str, what: str) -> str:
        """Take the next token, which is `what` and of that kind; raises ValueError."""
        found, text = self.peek()
        if found != kind:
            raise ValueError(f"{what} is missing" + (f" before {text!r}" if text else ""))
        del self._tokens[0]
        return text

    def skip(self, sign: str) -> bool:
        """Take a sign if it comes next; return whether it did."""
        if self.peek() != ("sign", sign):
            return False
        del self._tokens[0]
        return True

    def end(self) -> None:
        """Raise ValueError if anything is left."""
        if self._tokens:
            raise ValueError(f"{self.peek()[1]!r} is too much")


def _add(line: int, text: str) -> Line:
    tokens = _Tokens(text)
    table = tokens.take("name", "the table's name")
    priority = int(tokens.take("number", "a priority")) if tokens.peek()[0] == "number" else None
    keys = []
    while tokens.peek()[0] == "name" and tokens.peek(1) == ("sign", ":"):
        key = tokens.take("name", "a key's name")
        tokens.skip(":")
        keys.append((key, _value(tokens)))
    call = _call(tokens)
    label = tokens.take("name", "a label") if tokens.skip("=") else None
    tokens.end()
    return Add(line=line, table=table, priority=priority, keys=tuple(keys), call=call, label=label)


def _value(tokens: _Tokens) -> MatchValue:
    text = tokens.take("number", "a value")
    if tokens.skip("/"):
        return MatchValue(text, prefix_len=int(tokens.take("number", "a prefix length"), 0))
    if tokens.skip("&&&"):
        return MatchValue(text, mask=tokens.take("number", "a mask"))
    if tokens.skip(".."):
        return MatchValue(text, high=tokens.take("number", "the end of a range"))
    return MatchValue(text)


def _call(tokens: _Tokens) -> Call:
    action = tokens.take("name", "an action's name")
    if not tokens.skip("("):
        raise ValueError(f"the action {action} has no arguments in brackets")
    arguments = []
    while not tokens.skip(")"):
        name = tokens.take("name", "an argument's name")
        if not tokens.skip(":"):
            raise ValueError(f"the argument {name} has no value")
        arguments.append((name, int(tokens.take("number", "a value"), 0)))
        if not tokens.skip(",") and tokens.peek() != ("sign", ")"):
            raise ValueError(f"a comma or bracket is missing behind the argument {name}")
    return Call(action=action, arguments=tuple(arguments))


def _set_default(line: int, text: str) -> Line:
    tokens = _Tokens(text)
    made = SetDefault(line=line, table=tokens.take("name", "the table's name"), call=_call(tokens))
    tokens.end()
    return made


def _remove(line: int, text: str) -> Line:
    if text.lower() != "all":
        raise ValueError("only `remove all` is known")
    return RemoveAll(line=line)


def _packet(line: int, text: str) -> Line:
    port, data = _port_and_data(text)
    return Send(line=line, port=port, frame=bytes.fromhex(data))


def _expect(line: int, text: str) -> Line:
    port, data = _port_and_data(text)
    digits, whole = data.removesuffix("$"), data.endswith("$")
    if re.fullmatch(r"[0-9a-fA-F*]*", digits) is None:
        raise ValueError(f"{data!r} must be hexadecimal digits and stars")
    return Expect(line=line, port=port, digits=digits.lower() if digits or whole else None, whole=whole)


def _port_and_data(text: str) -> tuple[int, str]:
    port, *data = text.split()
    return int(port), "".join(word.removeprefix("0x") for word in data)


def _no_packet(line: int, text: str) -> Line:
    if text:
        raise ValueError("no_packet has no arguments")
    return NoPacket(line=line)


def _wait(line: int, text: str) -> Line:
    return Wait(line=line)


def _check_counter(line: int, text: str) -> Line:
    tokens = _Tokens(text)
    counter = tokens.take("name", "the counter's name")
    if not tokens.skip("("):
        raise ValueError(f"the counter {counter} has no index in brackets")
    index: int | str
    index = tokens.take("name", "an index") if tokens.peek()[0] == "name" else int(tokens.take("number", "an index"), 0)
    if not tokens.skip(")"):
        raise ValueError("the index has no closing bracket")
    unit, comparison, number = "packets", "==", 0
    if tokens.peek()[0] != "end":
        unit = tokens.take("name", "packets or bytes").lower() if tokens.peek()[0] == "name" else unit
        if unit not in ("packets", "bytes"):
            raise ValueError(f"a counter has packets and bytes, no {unit}")
        comparison = tokens.take("sign", "a comparison")
        if comparison not in _COMPARISONS:
            raise ValueError(f"{comparison!r} is not a comparison: use {', '.join(_COMPARISONS)}")
        number = int(tokens.take("number", "a number"), 0)
    tokens.end()
    return CheckCounter(line=line, counter=counter, index=index, unit=unit, comparison=comparison, number=number)


def _direct(command: str) -> Callable[[int, str], Line]:
    least, most = DIRECT[command]

    def read(line: int, text: str) -> Line:
        words = tuple(text.split())
        if len(words) < least or (most is not None and len(words) > most):
            raise ValueError(f"{command} takes {least}{'' if most else ' or more'} words, not {len(words)}")
        return Direct(line=line, command=command, words=words)

    return read


_STATEMENTS: Final[dict[str, Callable[[int, str], Line]]] = {
    "add": _add,
    "setdefault": _set_default,
    "remove": _remove,
    "packet": _packet,
    "expect": _expect,
    "no_packet": _no_packet,
    "wait": _wait,
    "check_counter": _check_counter,
}
