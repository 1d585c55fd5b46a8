"""Random statements: what may stand in a control, an action, a control that is called, or a state of the parser.

A statement that reads fields of headers stands under the condition that they are valid, mostly.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from .expressions import Expressions, Variable
from .layout import WHERE, Layout, guard
from .tree import Statement

_HASHES: Final = ("crc16", "crc32", "csum16", "xor16", "identity", "crc16_custom", "crc32_custom")
UNGUARDED: Final = 0.02
"""Share of statements that read headers whether they are valid or not."""


class Statements:
    """Makes the statements of one program."""

    def __init__(self, random: Random, layout: Layout) -> None:
        self.random, self.layout = random, layout
        self._next = 0
        self.unused = [f"table{number}_{where}" for number in range(2) for where in WHERE]
        """Tables that no statement applies yet."""
        self.keys: dict[str, str] = {}
        """The condition under which a table may be applied, by name."""

    def expressions(self, where: str, *more: Variable) -> Expressions:
        """Return what makes expressions of some fields and some arguments."""
        # In a clone BMv2's parser finds the metadata of another packet.
        headers_alone = [place for place in self.layout.base() if place.name.startswith("h.")]
        places = headers_alone if where == "parser" else self.layout.readable(self.random, where)
        headers = [] if where == "parser" else self.layout.headers()
        errors = where in WHERE
        return Expressions(self.random, [*places, *more, *more], headers, functions=where != "parser", errors=errors)

    def statement(self, head: str, *blocks: tuple[str, list[Statement]]) -> Statement:
        """Return a statement with a number of its own."""
        self._next += 1
        return Statement(self._next, head, list(blocks))

    def guarded(self, text: str) -> Statement:
        """Return a statement that runs where all is there that it reads."""
        if text.startswith("if (!"):  # it makes a header valid
            return self.statement(text)
        if (condition := guard(text)) and self.random.random() >= UNGUARDED:
            return self.statement(f"if ({condition}) {{ {text} }}")
        return self.statement(text)

    def assign(self, where: str, *more: Variable) -> str:
        """Return an assignment to a field, or to a slice of one."""
        made = self.expressions(where, *more)
        written = made.readable + self.layout.metadata * (where == "parser")
        target = self.random.choice([place for place in written if not place.fixed])
        if target.signed:
            return f"{target.name} = {made.signed(target.width)};"
        if target.width > 2 and self.random.random() < 0.2:
            low = self.random.randrange(target.width - 1)
            high = self.random.randrange(low, target.width)
            return f"{target.name}[{high}:{low}] = {made.value(high - low + 1)};"
        return f"{target.name} = {made.value(target.width)};"

    def block(self, depth: int, where: str, *more: Variable) -> list[Statement]:
        """Return some statements."""
        return [self.any(depth, where, *more) for _ in range(self.random.randint(1, 4))]

    def any(self, depth: int, where: str, *more: Variable) -> Statement:
        """Return a statement that may stand in a control (`ingress`, `egress`), an action or a sub-control."""
        random = self.random
        choose = random.random()
        if choose < 0.36 or (depth <= 0 and choose < 0.6):
            return self.guarded(self.assign(where, *more))
        if depth > 0 and choose < 0.5:
            return self._branch(depth, where, *more)
        tables = [name for name in self.unused if name.endswith(where)]
        if tables and depth > 0 and random.random() < 0.5:
            return self._lookup(depth, where, random.choice(tables), *more)
        return self.guarded(self._simple(where, *more))

    def _branch(self, depth: int, where: str, *more: Variable) -> Statement:
        made, random = self.expressions(where, *more), self.random
        if random.random() < 0.2 and where in WHERE:
            width = random.choice((8, 8, 3, 9))
            value = made.value(width, 1)
            condition, numbers = guard(value), sorted({made.number(width) for _ in range(4)})
            cases = [self.statement(f"{number}:", ("", self.block(depth - 1, where, *more))) for number in numbers[:2]]
            cases += [self.statement(f"{numbers[-1]}:")] * (len(numbers) > 2)  # falls through to the last case
            cases += [self.statement("default:", ("", self.block(depth - 1, where, *more)))]
            chosen = self.statement(f"switch ({value})", ("", cases))
            return self.statement(f"if ({condition})", ("", [chosen])) if condition else chosen
        condition = made.condition()
        if (valid := guard(condition)) and random.random() >= UNGUARDED:
            condition = f"{valid} && {condition}"
        blocks = [("", self.block(depth - 1, where, *more))]
        blocks += [("else", self.block(depth - 1, where, *more))] if random.random() < 0.5 else []
        return self.statement(f"if ({condition})", *blocks)

    def _lookup(self, depth: int, where: str, name: str, *more: Variable) -> Statement:
        self.unused.remove(name)  # BMv2's tables stand in one place each
        inside, kind = self.block(depth - 1, where, *more), self.random.choice(("hit", "miss", "switch"))
        if kind == "switch":
            case = self.statement(f"{name.replace('table', 'act')}:", ("", inside))
            made = self.statement(f"switch ({name}.apply().action_run)", ("", [case]))
        else:
            made = self.statement(f"if ({name}.apply().{kind})", ("", inside))
        condition = self.keys[name]
        return self.statement(f"if ({condition})", ("", [made])) if condition else made

    def _simple(self, where: str, *more: Variable) -> str:
        """Return a statement without blocks that may stand in a place."""
        layout, made = self.layout, self.expressions(where, *more)
        choices: list[tuple[float, Callable[[], str]]] = [
            (3, lambda: self._header(made)),
            (2, lambda: self._hash(made)),
            (0.5, lambda: f"mark_to_drop({self._metadata(where)});"),
            (2, lambda: f"sm.egress_spec = (bit<9>)({made.value(3, 1)});"),
            (0.5, lambda: f'log_msg("seen {{}}", {{ {made.value(8, 1)} }});'),
            (0.3, lambda: f"{self.random.choice(('assert', 'assume'))}({made.condition(1)} || true);"),
            (0.5, lambda: self._loop(made)),
            (1, lambda: self.random.choice(("m.l = m.k;", "m.k = m.l;", f"m.k = {{ {made.value(8, 1)}, 17s3 }};"))),
            (1, lambda: f"m.flag = {made.condition(1)};"),
            (1, lambda: f"m.state = {self.random.choice(('K.ONE', 'K.TWO', f'(K){made.value(5, 1)}'))};"),
            (0.2, lambda: self.random.choice(("exit;", "return;"))),
        ]
        if layout.random_numbers:
            choices.append((0.5, lambda: "random(h.base.s, 8w0, 8w3);"))
        if layout.stack:

            def index() -> str:
                return made.value(1, 1)

            choices += [
                (1, lambda: f"h.s.{self.random.choice(('push', 'pop'))}_front({self.random.choice((1, 1, 2))});"),
                (0.7, lambda: f"h.s[{index()}].v = {made.value(8, 1)};"),
                (0.7, lambda: f"m.byte = h.s[{index()}].v;"),
            ]
        if where in WHERE:
            choices += self._externs(where, made)
        return self.random.choices([make for _, make in choices], [weight for weight, _ in choices])[0]()

    def _metadata(self, where: str) -> str:
        return self.random.choice(("sm", "copy")) if where in WHERE else "sm"

    def _externs(self, where: str, made: Expressions) -> list[tuple[float, Callable[[], str]]]:
        random = self.random
        name, width = random.choice(self.layout.registers)

        def index() -> str:
            return f"(bit<32>)({made.value(2, 1)})"

        waiting = [table for table in self.unused if table.endswith(where)]
        first = "sm.instance_type == 0"  # copies would copy themselves for ever
        group, fields = random.randint(1, 3), random.choice((1, 2))
        choices: list[tuple[float, Callable[[], str]]] = [
            (1, lambda: f"{name}_{where}.read(m.{name}, {index()});"),
            (1, lambda: f"{name}_{where}.write({index()}, {made.value(width, 1)});"),
            (1, lambda: f"count_{where}.count({index()});"),
            (0.5, lambda: f"meter_{where}.execute_meter({index()}, m.colour);"),
            (1.5, lambda: f"act_{where}({made.value(8, 1)}, m.byte, m.third);"),
            (0.5, lambda: f"deny_{where}({random.choice(('sm', 'copy', 'copy'))});"),
            (1, lambda: f"sub_{where}.apply(h, m, {random.choice(('sm', 'sm', 'copy'))});"),
            (2 * len(waiting), lambda: self._apply(random.choice(waiting))),
            (0.5, lambda: "copy = sm;"),
            (0.3, lambda: "sm = copy;" if where == "ingress" else "copy = sm;"),
            (0.5 * (not self.layout.payload), lambda: f"truncate((bit<32>)({made.value(6, 1)}) + 20);"),
        ]
        if where == "ingress":
            return [
                *choices,
                (0.7, lambda: f"clone_preserving_field_list(CloneType.I2E, {group}, {fields});"),
                (0.3, lambda: f"clone(CloneType.I2E, {group});"),
                (0.7, lambda: f"sm.mcast_grp = (bit<16>)({made.value(2, 1)});"),
                (0.5, lambda: f"if ({first}) {{ resubmit_preserving_field_list(1); }}"),
                (0.5, lambda: "digest<D>(1, { h.base.s, m.byte, m.third });"),
            ]
        return [
            *choices,
            (0.7, lambda: f"if ({first}) {{ clone_preserving_field_list(CloneType.E2E, {group}, 1); }}"),
            (0.7, lambda: f"if ({first} && m.again == 0) {{ m.again = 1; recirculate_preserving_field_list(2); }}"),
        ]

    def _apply(self, table: str) -> str:
        self.unused.remove(table)
        condition = self.keys[table]
        return f"if ({condition}) {{ {table}.apply(); }}" if condition else f"{table}.apply();"

    def _header(self, made: Expressions) -> str:
        """Return a statement that makes a header valid, with all of its fields, or invalid, or a copy of another."""
        layout, random = self.layout, self.random
        header, kind = random.choice(layout.headers()), random.random()
        if kind < 0.25:
            return f"{header}.setInvalid();"
        if header in ("h.v", "h.w"):  # what is in a varbit comes from the parser alone
            return random.choice(("h.w = h.v;", "h.v = h.w;"))
        if header in ("h.y0", "m.copy", "h.x0") and kind < 0.6:
            others = [one for one in ("h.y0", "m.copy", "h.x0") if one != header]
            return f"{header} = {random.choice(others)};"
        if header.startswith("h.s") and kind < 0.4:
            return random.choice(("h.s[0] = h.s[1];", "h.s[1] = h.s[0];"))
        simple = Expressions(random, layout.base(), [])
        fields = [
            f"{place.name} = {simple.signed(place.width, 1) if place.signed else simple.value(place.width, 1)};"
            for place in layout.of(header)
        ]
        return " ".join([f"if (!{header}.isValid()) {{ {header}.setValid();", *fields, "}"])

    def _loop(self, made: Expressions) -> str:
        """Return a loop of a few rounds, which may end early."""
        change = f"m.third = m.third {self.random.choice('+^-')} (bit<13>)({made.value(8, 1)});"
        early = self.random.choice(("", "", f"if ({made.condition(1)}) {{ break; }} ", "if (m.flag) { continue; } "))
        self._next += 1
        i = f"i{self._next}"  # p4c refuses two of one name in a block
        return f"for (bit<8> {i} = 0; {i} < {self.random.randint(1, 5)}; {i} = {i} + 1) {{ {early}{change} }}"

    def _hash(self, made: Expressions) -> str:
        places = [Variable("m.hashed", 16), Variable("m.hashed", 16), *self.layout.metadata]
        target = self.random.choice([place for place in places if not place.signed])
        base, most = f"{target.width}w{self.random.randrange(2)}", f"32w{self.random.choice((1, 7, 256, 65536))}"
        data = f"{{ {made.value(8, 1)}, {made.value(16, 1)} }}"
        if self.random.random() < 0.2:
            return f"hash({target.name}, HashAlgorithm.{self.random.choice(_HASHES)}, {base}, {data}, {most});"
        plain = [name for name in _HASHES if not name.endswith("custom")]
        return f"hash({target.name}, HashAlgorithm.{self.random.choice(plain)}, {base}, {data}, {most});"
