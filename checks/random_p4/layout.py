"""What a random program declares: header types and instances, metadata, arrays; and which of it may be read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random
from typing import Final

from .expressions import Variable

WHERE: Final = ("ingress", "egress")
_WIDTHS: Final = (1, 2, 3, 5, 7, 8, 9, 11, 13, 16, 17, 24, 31, 32, 33, 48, 64, 71, 128)
_READ: Final = re.compile(r"\b(h\.(?:[xy]\d|[vw]|u\.[pq])|m\.copy)\.(?!isValid|setValid|setInvalid)|h\.(s)\[(\d?)")


@dataclass(slots=True)
class HeaderType:
    """A header type."""

    name: str
    fields: list[Variable]

    def declaration(self) -> str:
        """Return its declaration."""
        return "\n".join([f"header {self.name} {{", *(f"    {one.type} {one.name};" for one in self.fields), "}"])

    def of(self, instance: str) -> list[Variable]:
        """Return the fields of an instance."""
        return [Variable(f"{instance}.{one.name}", one.width, one.signed) for one in self.fields]


@dataclass(slots=True)
class Layout:
    """The declarations of one program."""

    types: list[HeaderType]
    stack: bool
    union: bool
    varbit: bool
    metadata: list[Variable]
    registers: list[tuple[str, int]]
    value_set: bool
    random_numbers: bool
    payload: bool
    """A checksum has the payload, too.  After `truncate` BMv2 leaves out a part of that."""
    lists: dict[str, str] = field(default_factory=dict)
    """The annotation of each field of the metadata."""

    def instances(self) -> dict[str, HeaderType]:
        """Return the instances whose types are drawn."""
        made = {f"h.x{number}": kind for number, kind in enumerate(self.types)}
        return {**made, "h.y0": self.types[0], "m.copy": self.types[0]}

    def headers(self) -> list[str]:
        """Return all header instances that may be invalid."""
        made = [*self.instances(), *(["h.s[0]", "h.s[1]"] * self.stack), *(["h.u.p", "h.u.q"] * self.union)]
        return made + ["h.v", "h.w"] * self.varbit

    def base(self) -> list[Variable]:
        """Return what is always there."""
        made = [
            Variable("h.base.kind", 8),
            *(Variable(f"h.base.{name}", 8) for name in "stu"),
            Variable("h.base.w", 32),
        ]
        made += [Variable("m.byte", 8), Variable("m.third", 13), Variable("m.hashed", 16), Variable("m.last", 32)]
        for name in ("l", "k"):
            made += [Variable(f"m.{name}.a", 8), Variable(f"m.{name}.b", 17, signed=True)]
        return [*made, *self.metadata]

    def read_only(self, where: str) -> list[Variable]:
        """Return the standard metadata that may be read somewhere."""
        made = [("ingress_port", 9), ("instance_type", 32), ("packet_length", 32)]
        made += [("egress_spec", 9), ("mcast_grp", 16), ("checksum_error", 1)] if where != "egress" else []
        made += [("egress_port", 9), ("egress_rid", 16)] if where == "egress" else []
        return [Variable(f"sm.{name}", width, fixed=True) for name, width in made]

    def of(self, header: str) -> list[Variable]:
        """Return the fields of a header that may be invalid."""
        if header in (instances := self.instances()):
            return instances[header].of(header)
        if header.startswith("h.s"):
            return [Variable(f"{header}.v", 8), Variable(f"{header}.k", 4), Variable(f"{header}.n", 4)]
        if header.startswith("h.u"):
            return [Variable(f"{header}.v", 8 if header.endswith("p") else 16)]
        return [Variable(f"{header}.length", 8, fixed=True)]

    def readable(self, random: Random, where: str) -> list[Variable]:
        """Return what a statement may read and write: what is always there, and the fields of a few headers."""
        chosen = random.sample(self.headers(), random.choice((0, 1, 1, 2)))
        made = [*self.base(), *self.read_only(where)]
        return made + [place for header in chosen for place in self.of(header) for _ in range(2)]


def guard(text: str) -> str:
    """Return the condition under which all headers are there that a text reads fields of; nothing if it reads none."""
    found = set[str]()
    for header, stack, index in _READ.findall(text):
        found |= {f"h.s[{index}]"} if index else {"h.s[0]", "h.s[1]"} if stack else {header}
    return " && ".join(f"{header}.isValid()" for header in sorted(found))


def draw(random: Random) -> Layout:
    """Draw the declarations of a program."""
    widths = [random.choice((1, 5, 8, 9, 16, 17, 32, 48, 70)) for _ in range(random.randint(3, 6))]
    metadata = [
        Variable(f"m.f{number}", width, width > 1 and random.random() < 0.2) for number, width in enumerate(widths)
    ]
    lists = ("", "@field_list(1) ", "@field_list(2) ", "@field_list(1, 2) ")
    return Layout(
        types=[_header(random, f"h{number}_t") for number in range(random.randint(2, 4))],
        stack=random.random() < 0.6,
        union=random.random() < 0.35,
        varbit=random.random() < 0.35,
        metadata=metadata,
        registers=[(f"reg{number}", random.choice((1, 8, 13, 32, 48, 80))) for number in range(2)],
        value_set=random.random() < 0.25,
        random_numbers=random.random() < 0.1,
        payload=random.random() < 0.15,
        lists={place.name: random.choice(lists) for place in metadata},
    )


def _header(random: Random, name: str) -> HeaderType:
    fields, bits = list[Variable](), 0
    for number in range(random.randint(1, 5)):
        width = random.choice(_WIDTHS)
        fields.append(Variable(f"f{number}", width, width > 1 and random.random() < 0.2))
        bits += width
    if bits % 8:
        fields.append(Variable("fill", 8 - bits % 8))
    return HeaderType(name, fields)
