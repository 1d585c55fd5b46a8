"""Makes a v1model program of a seed: headers, parser, controls, tables, actions and externs, all drawn at random.

The program reads nothing that it has not: fields of a header are read where it is valid, as a rule, and an index has as
many bits as its array needs.  What it reads anyway is left out of comparisons (`switchsum.differ`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from .expressions import Expressions, Place
from .tree import Part, Program, Statement

_NAMES: Final = ("a", "b", "c", "d")
_HASHES: Final = ("crc16", "crc32", "csum16", "xor16", "identity", "crc16_custom", "crc32_custom")
STANDARD: Final = "inout standard_metadata_t sm"
PORTS: Final = 8


@dataclass(slots=True)
class _Header:
    """A header type, and the instances of it."""

    name: str
    fields: list[Place]
    instances: list[str] = field(default_factory=list)
    varbit: int = 0

    def declaration(self) -> str:
        lines = [f"    {one.type} {one.name};" for one in self.fields]
        lines += [f"    varbit<{self.varbit}> rest;"] if self.varbit else []
        return "\n".join([f"header {self.name} {{", *lines, "}"])


class Generator:
    """Makes one program."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._next = 0
        self.types = [self._header(f"h{number}_t") for number in range(self.random.randint(2, 4))]
        for number, kind in enumerate(self.types):
            kind.instances = [f"h.x{number}"]
        self.has_stack = self.random.random() < 0.6
        self.has_union = self.random.random() < 0.35
        self.has_varbit = self.random.random() < 0.35
        self.metadata = [
            Place(f"m.f{number}", self.random.choice((1, 5, 8, 9, 16, 17, 32, 48, 70)), self.random.random() < 0.2)
            for number in range(self.random.randint(3, 6))
        ]
        self.metadata = [Place(one.name, one.width, one.signed and one.width > 1) for one in self.metadata]
        self.base = [Place("h.base.kind", 8), *(Place(f"h.base.{name}", 8) for name in "stu"), Place("h.base.w", 32)]
        self.unused = [f"table{number}_{where}" for number in range(2) for where in ("ingress", "egress")]
        """Tables that no statement applies yet."""
        self.registers = [(f"reg{number}", self.random.choice((1, 8, 13, 32, 48, 80))) for number in range(2)]

    def _header(self, name: str) -> _Header:
        fields, bits = [], 0
        for number in range(self.random.randint(1, 5)):
            width = self.random.choice((1, 2, 3, 5, 7, 8, 9, 11, 13, 16, 17, 24, 31, 32, 33, 48, 64, 71, 128))
            fields.append(Place(f"f{number}", width, width > 1 and self.random.random() < 0.2))
            bits += width
        if bits % 8:
            fields.append(Place("fill", 8 - bits % 8))
        return _Header(name, fields)

    def places(self) -> list[Place]:
        """Return all fields that may be read and written."""
        made = [*self.base, *self.metadata]
        for kind in self.types:
            for instance in kind.instances:
                made += [Place(f"{instance}.{one.name}", one.width, one.signed) for one in kind.fields]
        if self.has_stack:
            made += [Place(f"h.s[{place}].{name}", 4 if name != "v" else 8) for place in (0, 1) for name in "vkn"]
        return made

    def headers(self) -> list[str]:
        """Return the header instances."""
        made = [instance for kind in self.types for instance in kind.instances]
        return made + (["h.s[0]", "h.s[1]"] if self.has_stack else []) + (["h.u.p", "h.u.q"] if self.has_union else [])

    def expressions(self, *more: Place) -> Expressions:
        """Return what makes expressions of all fields and some arguments."""
        return Expressions(self.random, [*self.places(), *more], self.headers())

    def statement(self, head: str, *blocks: tuple[str, list[Statement]]) -> Statement:
        """Return a statement with a number of its own."""
        self._next += 1
        return Statement(self._next, head, list(blocks))

    def assign(self, *more: Place) -> Statement:
        """Return an assignment to a field, to a slice of one, or of a whole header."""
        written = [place for place in (*self.places(), *more) if not place.fixed]
        made, target = self.expressions(*more), self.random.choice(written)
        if target.signed:
            return self.statement(f"{target.name} = (int<{target.width}>)({made.value(target.width)});")
        if target.width > 2 and self.random.random() < 0.2:
            low = self.random.randrange(target.width - 1)
            high = self.random.randrange(low, target.width)
            return self.statement(f"{target.name}[{high}:{low}] = {made.value(high - low + 1)};")
        return self.statement(f"{target.name} = {made.value(target.width)};")

    def block(self, depth: int, where: str, *more: Place) -> list[Statement]:
        """Return some statements."""
        return [self.any(depth, where, *more) for _ in range(self.random.randint(1, 4))]

    def any(self, depth: int, where: str, *more: Place) -> Statement:
        """Return a statement that may stand in a control (`ingress`, `egress`), an action or a sub-control."""
        random, made = self.random, self.expressions(*more)
        choose = random.random()
        if choose < 0.34 or (depth <= 0 and choose < 0.6):
            return self.assign(*more)
        if choose < 0.5 and depth > 0:
            blocks = [("", self.block(depth - 1, where, *more))]
            blocks += [("else", self.block(depth - 1, where, *more))] if random.random() < 0.5 else []
            return self.statement(f"if ({made.condition()})", *blocks)
        tables = [name for name in self.unused if name.endswith(where)]
        if tables and depth > 0 and random.random() < 0.5:
            name, kind = random.choice(tables), random.choice(("hit", "miss", "switch"))
            self.unused.remove(name)  # BMv2's tables stand in one place each
            inside = self.block(depth - 1, where, *more)
            if kind == "switch":
                case = self.statement(f"{name.replace('table', 'act')}:", ("", inside))
                return self.statement(f"switch ({name}.apply().action_run)", ("", [case]))
            return self.statement(f"if ({name}.apply().{kind})", ("", inside))
        if random.random() < 0.03 and where in ("ingress", "egress"):
            return self.statement("exit;")
        chosen = random.choice(self._options(where, made))
        if (name := chosen.removesuffix(".apply();")) in self.unused:
            self.unused.remove(name)
        return self.statement(chosen)

    def _options(self, where: str, made: Expressions) -> list[str]:
        """Return statements without blocks that may stand in a place."""
        random = self.random
        options = [
            f"{random.choice(self.headers())}.{random.choice(('setValid', 'setInvalid'))}();",
            self._hash(made),
            f"mark_to_drop({random.choice(('sm', 'sm', 'copy'))});" if where != "sub" else "mark_to_drop(sm);",
            f"sm.egress_spec = (bit<9>)({made.value(3, 1)});",
            f'log_msg("seen {{}}", {{ {made.value(8, 1)} }});',
            f"assert({made.condition(1)} || true);",
        ]
        if where in ("ingress", "egress", "sub") and self.has_stack:
            options += [f"h.s.{random.choice(('push_front', 'pop_front'))}({random.choice((1, 1, 2))});"]
            options += [f"h.s[{made.value(1, 1)}].v = {made.value(8, 1)};", f"m.byte = h.s[{made.value(1, 1)}].v;"]
        if where in ("ingress", "egress"):
            name, width = random.choice(self.registers)
            options += [
                f"{name}_{where}.read(m.{name}, (bit<32>)({made.value(2, 1)}));",
                f"{name}_{where}.write((bit<32>)({made.value(2, 1)}), {made.value(width, 1)});",
                f"count_{where}.count((bit<32>)({made.value(2, 1)}));",
                f"act_{where}({random.choice(self.places()[:4]).name}, m.byte, m.third);",
                f"deny_{where}({random.choice(('sm', 'copy'))});",
                f"sub_{where}.apply(h, m, {random.choice(('sm', 'sm', 'copy'))});",
                *(f"{name}.apply();" for name in self.unused if name.endswith(where)),
                "copy = sm;",
                f"truncate((bit<32>)({made.value(6, 1)}) + 1);",
            ]
        if where == "ingress":
            options += [
                f"clone_preserving_field_list(CloneType.I2E, {random.randint(1, 3)}, {random.choice((1, 2))});",
                f"sm.mcast_grp = (bit<16>)({made.value(2, 1)});",
                "if (sm.instance_type == 0) { resubmit_preserving_field_list(1); }",
                "digest<D>(1, { h.base.s, m.byte, m.third });",
            ]
        if where == "egress":
            first = "sm.instance_type == 0"  # copies would copy themselves for ever
            options += [
                f"if ({first}) {{ clone_preserving_field_list(CloneType.E2E, {random.randint(1, 3)}, 1); }}",
                f"if ({first} && m.again == 0) {{ m.again = 1; recirculate_preserving_field_list(2); }}",
            ]
        return options

    def _hash(self, made: Expressions) -> str:
        target = Place("m.hashed", 16) if self.metadata[0].signed else self.metadata[0]
        base, most = f"{target.width}w{self.random.randrange(2)}", f"32w{self.random.choice((1, 7, 256, 65536))}"
        data = f"{{ {made.value(8, 1)}, {made.value(16, 1)} }}"
        return f"hash({target.name}, HashAlgorithm.{self.random.choice(_HASHES)}, {base}, {data}, {most});"

    def program(self) -> Program:
        """Return the program."""
        made = Program()
        made.parts.append(Part("#include <core.p4>\n#include <v1model.p4>"))
        made.parts.append(Part(self._declarations()))
        made.parts += self._parser()
        made.parts.append(Part("control Verify(inout H h, inout M m) { apply { } }"))
        for where in ("ingress", "egress"):
            made.parts += self._control(where)
        made.parts.append(Part(self._rest()))
        return made

    def _declarations(self) -> str:
        lines = ["header base_t { bit<8> kind; bit<8> s; bit<8> t; bit<8> u; bit<32> w; }"]
        lines += [kind.declaration() for kind in self.types]
        members = ["    base_t base;", *(f"    {kind.name} x{number};" for number, kind in enumerate(self.types))]
        if self.has_stack:
            lines.append("header s_t { bit<8> v; bit<4> k; bit<4> n; }")
            members.append("    s_t[2] s;")
        if self.has_union:
            lines.append("header p_t { bit<8> v; }\nheader q_t { bit<16> v; }\nheader_union u_t { p_t p; q_t q; }")
            members.append("    u_t u;")
        if self.has_varbit:
            lines.append("header v_t { bit<8> length; varbit<64> rest; }")
            members.append("    v_t v;")
        lines.append("\n".join(["struct H {", *members, "}"]))
        lists = ("", "@field_list(1) ", "@field_list(2) ", "@field_list(1, 2) ")
        meta = [f"    {self.random.choice(lists)}{one.type} {one.name[2:]};" for one in self.metadata]
        meta += [f"    bit<{width}> {name};" for name, width in self.registers]
        meta += ["    @field_list(2) bit<1> again;", "    bit<8> byte;", "    bit<13> third;", "    bit<16> hashed;"]
        lines.append("\n".join(["struct M {", *meta, "}"]))
        lines.append("struct D { bit<8> s; bit<8> byte; bit<13> third; }")
        return "\n".join(lines)

    def _parser(self) -> list[Part]:
        random = self.random
        head = f"parser P(packet_in b, out H h, inout M m, {STANDARD}) {{"
        first = "    state start { b.extract(h.base); transition select(h.base.kind[2:0]) {"
        targets = [f"x{number}" for number in range(len(self.types))]
        targets += ["stack"] if self.has_stack else []
        targets += ["varied"] if self.has_varbit else []
        targets += ["union_p", "union_q"] if self.has_union else []
        cases = [f"        {number}: {target};" for number, target in enumerate(targets[:7])]
        made = [Part("\n".join([head, first, *cases, "        default: accept;", "    } }"]))]
        for number in range(len(self.types)):
            following = random.choice(("accept", *targets[number + 1 :]))
            extract = Part(f"    state x{number} {{ b.extract(h.x{number});")
            extract.block = [self.assign() for _ in range(random.randrange(2))]
            kind = random.random()
            if kind < 0.4:
                end = f"        transition {following}; }}"
            elif kind < 0.7:
                mask = random.choice(("1", "0xf0 &&& 0xf0", "5 .. 60"))
                end = f"        transition select(b.lookahead<bit<8>>()) {{ {mask}: {following}; default: accept; }} }}"
            else:
                end = (
                    "        transition select(h.base.s, h.base.t) { (0 .. 9, _): accept; "
                    f"(_, 0x3 &&& 0x3): {following}; default: accept; }} }}"
                )
            extract.after = end
            made.append(extract)
        if self.has_stack:
            made.append(
                Part(
                    "    state stack { b.extract(h.s.next); "
                    "transition select(h.s.last.n) { 1: stack; default: accept; } }"
                )
            )
        if self.has_varbit:
            length = "(bit<32>)(b.lookahead<bit<8>>()[2:0]) * 8"
            made.append(Part(f"    state varied {{ b.extract(h.v, {length}); transition accept; }}"))
        if self.has_union:
            made.append(Part("    state union_p { b.extract(h.u.p); transition accept; }"))
            made.append(Part("    state union_q { b.extract(h.u.q); transition accept; }"))
        made[-1].after += "\n}"
        return made

    def _control(self, where: str) -> list[Part]:
        name = {"ingress": "I", "egress": "E"}[where]
        sub = Part(f"control Sub{name}(inout H h, inout M m, {STANDARD}) {{ apply {{", self.block(1, "sub"), "} }")
        lines = [f"control {name}(inout H h, inout M m, {STANDARD}) {{", f"    Sub{name}() sub_{where};"]
        lines += ["    standard_metadata_t copy = sm;"]
        lines += [f"    register<bit<{width}>>(4) {one}_{where};" for one, width in self.registers]
        lines += [f"    counter(4, CounterType.packets_and_bytes) count_{where};"]
        lines += [f"    action deny_{where}(inout standard_metadata_t s) {{ mark_to_drop(s); }}"]
        made = [sub, Part("\n".join(lines))]
        arguments = Place("p", 8, fixed=True), Place("q", 8), Place("r", 13)
        made.append(
            Part(
                f"    action act_{where}(in bit<8> p, inout bit<8> q, out bit<13> r) {{\n        r = 13w1;",
                self.block(1, "action", *arguments),
                "    }",
            )
        )
        for number in range(2):
            width = self.random.choice((1, 8, 9, 16, 37))
            made.append(
                Part(
                    f"    action act{number}_{where}(bit<{width}> given, bit<9> port) {{",
                    [
                        self.statement("sm.egress_spec = port & 7;"),
                        *self.block(1, "action", Place("given", width, fixed=True), Place("port", 9, fixed=True))[:2],
                    ],
                    "    }",
                )
            )
        made += [Part(self._table(number, where)) for number in range(2)]
        body = [self.any(2, where) for _ in range(self.random.randint(2, 6))]
        first = self.statement("sm.egress_spec = (bit<9>)(h.base.u & 7);") if where == "ingress" else None
        made.append(Part("    apply {", [*([first] if first else []), *body], "    }\n}"))
        return made

    def _table(self, number: int, where: str) -> str:
        random = self.random
        kinds = random.sample(("exact", "lpm", "ternary", "range", "optional", "exact"), random.randint(1, 3))
        fields = random.sample([place for place in self.places() if not place.signed], len(kinds))
        keys = [f"            {place.name}: {kind};" for place, kind in zip(fields, kinds, strict=True)]
        if random.random() < 0.2:
            keys.append(f"            {random.choice(self.headers())}.isValid(): exact;")
            kinds, fields = [*kinds, "valid"], [*fields, Place("valid", 1)]
        actions = [f"act{number}_{where};", f"deny_{where}({random.choice(('sm', 'copy'))});", "NoAction;"]
        lines = [f"    table table{number}_{where} {{", "        key = {", *keys, "        }"]
        lines += [f"        actions = {{ {' '.join(actions)} }}"]
        default = random.choice(("NoAction()", actions[1][:-1]))
        lines += [f"        {random.choice(('', 'const '))}default_action = {default};", "        size = 64;"]
        if random.random() < 0.25:
            entries = []
            for priority in range(random.randint(1, 3)):
                match = ", ".join(self._entry(kind, place.width) for kind, place in zip(kinds, fields, strict=True))
                first = f"({match})" if len(kinds) > 1 else match
                entries.append(f"            {first}: act{number}_{where}({priority % 2}, {priority + 1});")
            if len({line.split(": act")[0] for line in entries}) == len(entries):
                lines += ["        const entries = {", *entries, "        }"]
        return "\n".join([*lines, "    }"])

    def _entry(self, kind: str, width: int) -> str:
        full = (1 << width) - 1
        value = self.random.getrandbits(width)
        if kind == "valid":
            return self.random.choice(("true", "false"))
        if kind == "exact":
            return f"{value:#x}"
        if kind == "lpm":
            if width > 62:  # p4c takes longer masks for none of a prefix
                return "_"
            mask = full ^ full >> self.random.randint(1, width)
            return f"{value & mask:#x} &&& {mask:#x}"
        if kind == "ternary":
            mask = self.random.getrandbits(width) or 1
            return f"{value & mask:#x} &&& {mask:#x}"
        if kind == "range":
            return f"{min(value, full // 2):#x} .. {full:#x}"
        return self.random.choice((f"{value:#x}", "_"))

    def _rest(self) -> str:
        checksum = ""
        if self.random.random() < 0.5:
            data = "{ h.base.kind, h.base.s, h.base.t, h.base.u }"
            condition = "h.base.isValid() && h.base.kind > 3"
            checksum = f"update_checksum({condition}, {data}, m.hashed, HashAlgorithm.csum16);"
        emits = ["        b.emit(h.base);", *(f"        b.emit(h.x{number});" for number in range(len(self.types)))]
        emits += ["        b.emit(h.s);"] * self.has_stack + ["        b.emit(h.u);"] * self.has_union
        emits += ["        b.emit(h.v);"] * self.has_varbit
        return "\n".join(
            [
                f"control C(inout H h, inout M m) {{ apply {{ {checksum} }} }}",
                "control Deparse(packet_out b, in H h) {\n    apply {",
                *emits,
                "    }\n}",
                "V1Switch(P(), Verify(), I(), E(), C(), Deparse()) main;",
            ]
        )


def generate(seed: int) -> Program:
    """Return the program of a seed."""
    return Generator(seed).program()
