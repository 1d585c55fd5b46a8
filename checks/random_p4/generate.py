"""Makes a v1model program of a seed: headers, parser, controls, tables, actions and externs, all drawn at random.

The program reads nothing that it has not: fields of a header are read where it is valid, as a rule, and an index has as
many bits as its array needs.  What it reads anyway is left out of comparisons (`switchsum_switch.differ`).
"""

from __future__ import annotations

import re
from random import Random
from typing import Final

from .expressions import Expressions, Variable
from .layout import WHERE, draw, guard
from .statements import Statements
from .tree import Part, Program

STANDARD: Final = "inout standard_metadata_t sm"
_HEAD: Final = """#include <core.p4>
#include <v1model.p4>
error { Odd, Short }
enum bit<5> K { ONE = 1, TWO = 2, LAST = 31 }
struct L { bit<8> a; int<17> b; }
struct D { bit<8> s; bit<8> byte; bit<13> third; }
header base_t { bit<8> kind; bit<8> s; bit<8> t; bit<8> u; bit<32> w; bit<16> sum; }
header s_t { bit<8> v; bit<4> k; bit<4> n; }
header p_t { bit<8> v; }
header q_t { bit<16> v; }
header_union u_t { p_t p; q_t q; }
header v_t { bit<8> length; varbit<64> rest; }"""


class Generator:
    """Makes one program."""

    def __init__(self, seed: int, small: bool = False) -> None:
        self.random, self.small = Random(seed), small
        self.layout = draw(self.random)
        self.make = Statements(self.random, self.layout)

    def program(self) -> Program:
        """Return the program."""
        parts = [Part(_HEAD), Part(self._declarations()), Part(self._function())]
        parts += self._parser()
        parts.append(Part(self._verify()))
        tables = {(number, where): self._table(number, where) for where in WHERE for number in range(2)}
        for where in WHERE:
            parts += self._control(where, [tables[number, where] for number in range(2)])
        parts.append(Part(self._rest()))
        return Program(parts)

    def _declarations(self) -> str:
        layout = self.layout
        members = ["    base_t base;", *(f"    {kind.name} x{number};" for number, kind in enumerate(layout.types))]
        members += [
            f"    {layout.types[0].name} y0;",
            *["    s_t[2] s;"] * layout.stack,
            *["    u_t u;"] * layout.union,
        ]
        members += ["    v_t v;", "    v_t w;"] * layout.varbit
        meta = [f"    {layout.lists[one.name]}{one.type} {one.name[2:]};" for one in layout.metadata]
        meta += [f"    bit<{width}> {name};" for name, width in layout.registers]
        meta += ["    @field_list(2) bit<1> again;", "    @field_list(1, 2) bit<8> byte;", "    bit<13> third;"]
        meta += [
            "    bit<16> hashed;",
            "    bit<2> colour;",
            "    bit<32> last;",
            "    bool flag;",
            "    K state;",
            "    L l;",
            "    L k;",
        ]
        meta += [f"    {layout.types[0].name} copy;"]
        lines = [kind.declaration() for kind in layout.types]
        return "\n".join([*lines, "struct H {", *members, "}", "struct M {", *meta, "}"])

    def _function(self) -> str:
        made = Expressions(self.random, [Variable("a", 16), Variable("b", 8)], [])
        return (
            "bit<16> fun(in bit<16> a, in bit<8> b) {\n"
            f"    if ({made.condition(2)}) {{ return {made.value(16, 2)}; }}\n    return {made.value(16, 2)};\n}}"
        )

    def _parser(self) -> list[Part]:
        random, layout = self.random, self.layout
        head = [f"parser P(packet_in b, out H h, inout M m, {STANDARD}) {{"]
        head += ["    value_set<bit<8>>(4) known;"] * layout.value_set
        first = "    state start { b.extract(h.base);"
        if random.random() < 0.3:
            first += f" verify(h.base.t != {random.randrange(256)}, error.Odd);"
        first += " transition select(h.base.kind[2:0]) {"
        targets = [f"x{number}" for number in range(len(layout.types))]
        targets += ["stack"] * layout.stack + ["varied"] * layout.varbit + ["union_p", "union_q"] * layout.union
        cases = [f"        {number}: {target};" for number, target in enumerate(targets[:7])]
        made = [Part("\n".join([*head, first, *cases, "        default: accept;", "    } }"]))]
        for number, kind in enumerate(layout.types):
            following = random.choice(("accept", *targets[number + 1 :]))
            skipped = f" b.advance({random.choice((8, 16))});" if random.random() < 0.1 else ""
            extract = Part(f"    state x{number} {{{skipped} b.extract(h.x{number});")
            mine = kind.of(f"h.x{number}")
            extract.block = [
                self.make.statement(self.make.assign("parser", *mine)) for _ in range(random.choice((0, 0, 1, 2)))
            ]
            extract.after = f"        transition {self._select(following, mine)} }}"
            made.append(extract)
        if layout.stack:
            # BMv2 takes no index of a stack as a key.
            again = "m.last = h.s.lastIndex; " * (random.random() < 0.5) + "transition select(h.s.last.n) { 1: stack;"
            made.append(Part(f"    state stack {{ b.extract(h.s.next); {again} default: accept; }} }}"))
        if layout.varbit:
            length = "(bit<32>)(b.lookahead<bit<8>>()[2:0]) * 8"
            made.append(Part(f"    state varied {{ b.extract(h.v, {length}); transition accept; }}"))
        if layout.union:
            made.append(Part("    state union_p { b.extract(h.u.p); transition accept; }"))
            made.append(Part("    state union_q { b.extract(h.u.q); transition accept; }"))
        made[-1].after += "\n}"
        return made

    def _select(self, following: str, mine: list[Variable]) -> str:
        """Return a transition of the parser."""
        random = self.random
        kind, end = random.random(), "default: accept; }"
        if kind < 0.3:
            return f"{following};"
        if kind < 0.5:
            mask = random.choice(("1", "0xf0 &&& 0xf0", "5 .. 60"))
            width = random.choice((8, 8, 7, 13))
            return f"select(b.lookahead<bit<{width}>>()) {{ {mask}: {following}; {end}"
        if kind < 0.6 and self.layout.value_set:
            return f"select(h.base.s) {{ known: {following}; {end}"
        plain = [place for place in mine if not place.signed and place.width <= 64]
        if kind < 0.8 and plain:
            place = random.choice(plain)
            value, bits = random.getrandbits(place.width), random.getrandbits(place.width) or 1
            cases = f"{value} &&& {bits}: accept; {value ^ 1}: reject;"
            return f"select({place.name}) {{ {cases} default: {following}; }}"
        return f"select(h.base.s, h.base.t) {{ (0 .. 9, _): accept; (_, 0x3 &&& 0x3): {following}; {end}"

    def _verify(self) -> str:
        kind = self.random.random()
        with_payload = "_with_payload" if kind < 0.1 else ""
        fields = "{ h.base.kind, h.base.s, h.base.t, h.base.u, h.base.w }"
        check = f"verify_checksum{with_payload}(h.base.isValid(), {fields}, h.base.sum, HashAlgorithm.csum16);"
        return f"control Verify(inout H h, inout M m) {{ apply {{ {check if kind < 0.4 else ''} }} }}"

    def _control(self, where: str, tables: list[str]) -> list[Part]:
        random, make = self.random, self.make
        name = {"ingress": "I", "egress": "E"}[where]
        sub = Part(f"control Sub{name}(inout H h, inout M m, {STANDARD}) {{ apply {{", make.block(1, "sub"), "} }")
        lines = [f"control {name}(inout H h, inout M m, {STANDARD}) {{", f"    Sub{name}() sub_{where};"]
        lines += ["    standard_metadata_t copy = sm;", "    bit<33> local = 5;"]
        lines += [f"    register<bit<{width}>>(4) {one}_{where};" for one, width in self.layout.registers]
        lines += [f"    counter(4, CounterType.packets_and_bytes) count_{where};"]
        lines += [f"    meter(4, MeterType.{random.choice(('packets', 'bytes'))}) meter_{where};"]
        lines += [f"    direct_counter(CounterType.packets) hits{number}_{where};" for number in range(2)]
        metered = [number for number, table in enumerate(tables) if " meters = " in table]
        lines += [f"    direct_meter<bit<2>>(MeterType.packets) direct{number}_{where};" for number in metered]
        lines += [f"    action deny_{where}(inout standard_metadata_t s) {{ mark_to_drop(s); }}"]
        made = [sub, Part("\n".join(lines))]
        arguments = Variable("p", 8, fixed=True), Variable("q", 8), Variable("r", 13)
        head = f"    action act_{where}(in bit<8> p, inout bit<8> q, out bit<13> r) {{\n        r = 13w1;"
        made.append(Part(head, make.block(1, "action", *arguments), "    }"))
        for number in range(2):
            width = random.choice((1, 8, 9, 16, 37))
            given = Variable("given", width, fixed=True), Variable("port", 9, fixed=True)
            head = f"    action act{number}_{where}(bit<{width}> given, bit<9> port) {{"
            # p4c refuses a direct meter that no action reads, as after `return`.
            block = [make.statement(f"direct{number}_{where}.read(m.colour);")] if number in metered else []
            block += [make.statement("sm.egress_spec = port & 7;"), *make.block(1, "action", *given)[:2]]
            made.append(Part(head, block, "    }"))
        made += [Part(table) for table in tables]
        local = Variable("local", 33)
        body = [
            make.any(1 if self.small else 2, where, local)
            for _ in range(random.randint(*((1, 3) if self.small else (3, 7))))
        ]
        start = "if (!h.base.isValid()) { mark_to_drop(sm); exit; }"
        first = [make.statement(start)]
        first += [make.statement("sm.egress_spec = (bit<9>)(h.base.u & 7);")] if where == "ingress" else []
        first += [make.statement("h.base.t = local[7:0];")] if random.random() < 0.3 else []
        # Metadata leaves no switch: so a frame has a word of it, and shows what a copy has lost or kept.
        last = [make.statement(f"h.base.w = {self._word_of_metadata()};")] if where == "egress" else []
        made.append(Part("    apply {", [*first, *body, *last], "    }\n}"))
        return made

    def _word_of_metadata(self) -> str:
        """Return an expression of 32 bits that every field of the metadata changes."""
        words = [f"(bit<32>)({place.name}[{min(place.width, 32) - 1}:0])" for place in self.layout.metadata]
        return " ^ ".join(["h.base.w", *(f"({word} << {place})" for place, word in enumerate(words))])

    def _table(self, number: int, where: str) -> str:
        random, name = self.random, f"table{number}_{where}"
        kinds = random.sample(("exact", "lpm", "ternary", "range", "optional", "exact"), random.randint(1, 3))
        places = self.layout.readable(random, where)
        fields = random.sample([place for place in dict.fromkeys(places) if not place.signed], len(kinds))
        keys = [self._key(place, kind) for place, kind in zip(fields, kinds, strict=True)]
        self.make.keys[name] = guard(" ".join(keys))
        if random.random() < 0.2:
            keys.append(f"            {random.choice(self.layout.headers())}.isValid(): exact;")
            kinds, fields = [*kinds, "valid"], [*fields, Variable("valid", 1)]
        actions = [f"act{number}_{where};", f"deny_{where}({random.choice(('sm', *['copy'] * 4))});", "NoAction;"]
        lines, implementation = [f"    table {name} {{", "        key = {", *keys], ""
        if (drawn := random.random()) < 0.1:
            implementation = "action_profile(16)"
        elif drawn < 0.18:
            implementation = "action_selector(HashAlgorithm.crc16, 32w16, 32w10)"
            lines.append("            h.base.w: selector;")
        lines += ["        }", f"        actions = {{ {' '.join(actions)} }}"]
        lines += [f"        counters = hits{number}_{where};"] if random.random() < 0.3 else []
        if random.random() < 0.2:  # a table with a direct meter has no action of another table
            lines += [f"        meters = direct{number}_{where};"]
        default = random.choice(("NoAction()", actions[1][:-1]))
        if implementation:
            return "\n".join([*lines, f"        implementation = {implementation};", "    }"])
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

    def _key(self, place: Variable, kind: str) -> str:
        """Return a field as a key, or an expression of it under a name of its own."""
        if self.random.random() < 0.15:
            text = self.random.choice((f"{place.name} + 1", f"~{place.name}", f"{place.name} ^ 1"))
            name = re.sub(r"\W+", "_", place.name)
            return f'            {text}: {kind} @name("{name}");'
        return f"            {place.name}: {kind};"

    def _entry(self, kind: str, width: int) -> str:
        full = (1 << width) - 1
        value = self.random.getrandbits(width)
        if kind == "valid":
            return self.random.choice(("true", "false"))
        if kind == "exact":
            return f"{value:#x}"
        if kind == "lpm":
            if width > 62 or width % 8:  # p4c takes longer masks for none of a prefix; BMv2 compares other bits
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
        layout, checksum = self.layout, ""
        with_payload = "_with_payload" if layout.payload else ""
        if self.random.random() < 0.5:
            data = "{ h.base.kind, h.base.s, h.base.t, h.base.u }"
            condition = "h.base.isValid() && h.base.kind > 3"
            target = self.random.choice(("m.hashed", "h.base.sum", "h.base.sum"))
            checksum = f"update_checksum{with_payload}({condition}, {data}, {target}, HashAlgorithm.csum16);"
        names = ["base", *(f"x{number}" for number in range(len(layout.types))), "y0", *["s"] * layout.stack]
        names += ["u"] * layout.union + ["v", "w"] * layout.varbit
        return "\n".join(
            [
                f"control C(inout H h, inout M m) {{ apply {{ {checksum} }} }}",
                "control Deparse(packet_out b, in H h) {\n    apply {",
                *(f"        b.emit(h.{name});" for name in names),
                "    }\n}",
                "V1Switch(P(), Verify(), I(), E(), C(), Deparse()) main;",
            ]
        )


def generate(seed: int, small: bool = False) -> Program:
    """Return the program of a seed; a small one has a few statements in each control."""
    return Generator(seed, small).program()
