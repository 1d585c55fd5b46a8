"""What a program did to one frame: states, tables, actions, fields before and after, registers, replicas, as a tree.

The interpreter tells a `Tracer` what it does, and the tracer writes it down as steps.  A step such as "egress to port
2" has what happened there below it, so that the copies of a packet stand side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from ..names.named_tables import describe
from ..names.values import text_of
from ..program import ir
from ..program.graph import JOINED
from ..program.lower.parser import PARTS_OF_STATES
from ..program.passes.analysis import written
from ..state.tables import KeySpec, ParamSpec, Table

_OWN: Final = "$"
"""Headers and fields whose names begin with it are the switch's own; programs do not see them."""
_SHOWN_BYTES: Final = 80
"""Bytes of a frame that a trace shows."""
_BRACES: Final = re.compile(r"(?<!\\)\{.*?(?<!\\)\}")
_ESCAPED: Final = re.compile(r"\\([{}])")
"""In texts of log_msg."""


@dataclass(slots=True)
class Step:
    """One thing that happened."""

    kind: str
    """frame, parser, verify, ingress, egress, update, state, extract, lookup, set, valid, register, counter, meter,
    digest, log, assert, clone, copy, resubmit, recirculate, drop or send."""
    text: str
    """The same for a reader."""
    detail: dict[str, Any]
    """The same for a program: names, and numbers."""
    steps: list[Step] = field(default_factory=list)
    """Steps within it."""

    def as_json(self) -> dict[str, Any]:
        """Return the step as JSON has it."""
        made = {"kind": self.kind, "text": self.text, **self.detail}
        return made | {"steps": [step.as_json() for step in self.steps]} if self.steps else made

    def find(self, kind: str) -> list[Step]:
        """Return all steps of a kind, in order.

        Args:
            kind: One of those of `kind` above, such as "lookup".

        Returns:
            The steps, this one and those within it.

        """
        found = [self] if self.kind == kind else []
        return found + [step for inner in self.steps for step in inner.find(kind)]

    def lines(self, depth: int = 0) -> Iterator[str]:
        """Yield the lines of a text that shows the step and what is below it.

        Args:
            depth: How far the first line is indented, in pairs of spaces.

        """
        yield "  " * depth + self.text
        for step in self.steps:
            yield from step.lines(depth + 1)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class Tracer:
    """Writes down what an interpreter does to one frame."""

    def __init__(self, program: ir.Program, port: int, frame: bytes) -> None:
        shown = frame[:_SHOWN_BYTES].hex() + ("..." if len(frame) > _SHOWN_BYTES else "")
        detail = {"port": port, "bytes": len(frame), "frame": frame.hex()}
        self.root = Step("frame", f"frame of {len(frame)} bytes on port {port}: {shown}", detail)
        self._program = program
        self._open = [self.root]
        self._values: list[int] = []
        self._variable = {field.length: slot for slot, field in enumerate(program.fields) if field.length is not None}
        """The fields of variable length by the slots of their lengths."""
        self._structs = _names_of_metadata(program)

    def note(self, kind: str, text: str, **detail: Any) -> Step:
        """Write down a step."""
        step = Step(kind, text, detail)
        self._open[-1].steps.append(step)
        return step

    @contextmanager
    def inside(self, kind: str, text: str, **detail: Any) -> Iterator[None]:
        """Write down a step, and what happens meanwhile below it."""
        self._open.append(self.note(kind, text, **detail))
        try:
            yield
        finally:
            self._open.pop()

    def begin(self, fields: Sequence[int]) -> None:
        """Take the values of a packet's fields as those before the next statement."""
        self._values = list(fields)

    def block(self, block: ir.Block) -> None:
        """Note that a block of a graph begins; of the parser's blocks those count that begin a state."""
        if self._open[-1].kind == "parser":
            for name in block.name.split(JOINED):
                if name.rpartition(".")[2] not in PARTS_OF_STATES:
                    self.note("state", f"state {name}", name=name)

    def lookup(self, table: Table, key: tuple[int, ...], row: int, action: str, params: tuple[int, ...]) -> None:
        """Note a lookup, the entry that it found, and the action that runs."""
        spec = table.spec
        shown = _named(zip(spec.keys, key, strict=True))
        entry = table.entry_of(row)
        pairs = zip(spec.action(action).params, params, strict=True)
        runs = f" -> {action}({_named(pairs)})"
        if entry is None:
            found = f"miss{runs}"
        else:
            found = f"hit: {describe(entry, table)}" + (runs if entry.via is not None else "")
        names = [one.name for one in spec.keys]
        self.note(
            *("lookup", f"table {spec.name} ({shown}) {found}"),
            table=spec.name,
            key=dict(zip(names, key, strict=True)),
            hit=bool(row),
            action=action,
            params=list(params),
        )

    def statement(self, fields: Sequence[int], statement: ir.Statement) -> None:
        """Note what a statement has changed."""
        program = self._program
        match statement:
            case ir.Extract(header):
                info = program.headers[header]
                values = {program.fields[slot].name: fields[slot] for slot in info.slots}
                shown = ", ".join(
                    f"{program.fields[slot].name.rpartition('.')[2]}={self._text(slot, fields)}" for slot in info.wire
                )
                self.note("extract", f"extract {info.name}: {shown}", header=info.name, fields=values)
            case ir.SetValid(header) | ir.SetInvalid(header):
                is_valid, name = isinstance(statement, ir.SetValid), program.headers[header].name
                self.note("valid", f"{name}.{'setValid' if is_valid else 'setInvalid'}()", header=name, valid=is_valid)
            case ir.CopyHeader(target, source):
                to, of = program.headers[target].name, program.headers[source].name
                self.note("valid", f"{to} = {of}", header=to, source=of)
            case ir.Learn(digest):
                name = program.digests[digest].name
                self.note("digest", f"digest {name}", digest=name)
        if not isinstance(statement, ir.Extract):
            self._changes(fields, written(program, statement))
        self._values = list(fields)

    def access(self, kind: str, verb: str, name: str, index: int, size: int, outcome: str = "", **detail: Any) -> None:
        """Note that a cell of a register, counter or meter array is used, or that there is no such cell."""
        place = f"{verb} {name}[{index}]"
        if index >= size:
            self.note(kind, f"{place}: beyond its {size} cells", **{kind: name}, index=index, beyond=True)
        else:
            self.note(kind, f"{place}{outcome}", **{kind: name}, index=index, **detail)

    def say(self, text: str, values: Sequence[int]) -> None:
        """Note what the program says: a text of log_msg, with values in place of its braces."""
        given = iter(values)
        shown = _ESCAPED.sub(r"\1", _BRACES.sub(lambda braces: str(next(given, braces[0])), text))
        self.note("log", f"log: {shown}", message=shown, values=list(values))

    def failed(self, fields: Sequence[int]) -> None:
        """Note that the parser has ended early."""
        error = fields[self._program.intrinsics.parser_error]
        self.note("state", f"the packet is too short: parser_error = {error}", error=error)

    def _changes(self, fields: Sequence[int], slots: set[int]) -> None:
        for slot in sorted(slots):
            before, after = self._values[slot], fields[slot]
            variable = self._variable.get(slot)
            if before != after and variable is not None:
                # The bytes of a field of variable length come first, and then its length.
                name = self._program.fields[variable].name
                self.note(
                    "set", f"{self._shown(name)} = {self._text(variable, fields)}", field=name, after=fields[variable]
                )
            elif before != after and not _is_own(self._program.fields[slot].name):
                name = self._program.fields[slot].name
                now, was = self._text(slot, fields), self._text(slot, self._values)
                if now != was:
                    self.note("set", f"{self._shown(name)} = {now} (was {was})", field=name, before=before, after=after)

    def kept(self, values: Mapping[int, int]) -> str:
        """Return the metadata that a packet keeps for its next life."""
        fields = [0] * len(self._program.fields)
        for slot, value in values.items():
            fields[slot] = value
        named = {slot: self._program.fields[slot].name for slot in values}
        shown = [f"{self._shown(name)}={self._text(slot, fields)}" for slot, name in named.items() if not _is_own(name)]
        return f"keeps {', '.join(shown)}" if shown else "keeps no metadata"

    def _shown(self, name: str) -> str:
        """Return a field's name as the program's keys have it, if it is of metadata."""
        struct, dot, last = _without_scalars(name).rpartition(".")
        return f"{self._structs.get(struct, struct)}{dot}{last}"

    def _text(self, slot: int, fields: Sequence[int]) -> str:
        info = self._program.fields[slot]
        width, length = info.width, info.length
        if length is None:
            return text_of(fields[slot], width, info.name)
        return f"0x{fields[slot].to_bytes(width // 8, 'big')[: fields[length] // 8].hex()}"


def _named(pairs: Iterable[tuple[KeySpec | ParamSpec, int]]) -> str:
    return ", ".join(f"{one.name}={text_of(value, one.width, one.name)}" for one, value in pairs)


def _names_of_metadata(program: ir.Program) -> dict[str, str]:
    """Return how the program's keys name the structs of metadata: `{"metadata_t": "meta"}` after a key `meta.port`.

    p4c names these fields by the struct's type, and keys as the P4 source does.
    """
    names: dict[str, str] = {}
    for table in (*program.tables, *program.fixed_tables):
        for spec, value in zip(table.spec.keys, table.keys, strict=True):
            inner = value.left if isinstance(value, ir.Binary) else value
            if not isinstance(inner, ir.Field) or not program.headers[program.fields[inner.slot].header].metadata:
                continue
            struct, _, last = _without_scalars(program.fields[inner.slot].name).rpartition(".")
            called, _, end = spec.name.rpartition(".")
            if struct and called and last == end:
                names.setdefault(struct, called)
    return names


def _without_scalars(name: str) -> str:
    """Return a field's name without that of the header in which p4c keeps metadata and variables."""
    return name.removeprefix("scalars.")


def _is_own(name: str) -> bool:
    return _OWN in (name[0], name.rpartition(".")[2][0])
