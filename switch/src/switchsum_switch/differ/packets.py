"""Random packets that a program's parser follows: each takes a random way through the parser's states."""

from __future__ import annotations

from random import Random
from typing import Final

from switchsum_switch.program import model
from switchsum_switch.wires.headers import internet_checksum

from .indices import index_fields

LONGEST_WAY: Final = 24
"""States of one packet; a parser may run in circles."""
PORTS: Final = 8
PAYLOAD: Final = (0, 1, 2, 5, 20, 64)
EDGE: Final = 0.25
"""Share of fields that are zero, one or all ones: random numbers never are."""
WITHIN: Final = 7 / 8
"""Share of indices that lie within their array."""
CORRECT: Final = 0.9
"""Share of checksums that are right; a program may drop all other packets."""


class Packets:
    """Makes packets for one program."""

    def __init__(self, program: model.Bmv2Program, random: Random) -> None:
        self._random = random
        self._states = {state.name: state for state in program.parser.states}
        self._start = program.parser.start
        self._types = {header.name: header.type for header in program.headers}
        self._stacks = {stack.name: stack.members for stack in program.stacks}
        self._indices = index_fields(program)
        calculations = {one.name: one for one in program.calculations}
        self._verified = [
            (one.target, calculations[one.calculation].inputs)
            for one in program.checksums
            if one.verify and calculations[one.calculation].algorithm == "csum16"
        ]
        """The fields that programs verify, and of what they are the checksums."""

    def port(self) -> int:
        """Return a port at which a packet arrives."""
        return self._random.randrange(PORTS)

    def frame(self) -> bytes:
        """Return a frame."""
        way = _Way(self._random)
        name = self._start
        counts: dict[str, int] = {}
        for _ in range(LONGEST_WAY):
            if name is None or name not in self._states:
                break
            state = self._states[name]
            for operation in state.operations:
                self._operate(operation, way, counts)
            name = self._choose(state, way)
        for target, inputs in self._verified:
            if self._random.random() < CORRECT:
                way.correct(target, inputs)
        return way.frame(self._random)

    def _operate(self, operation: model.Primitive, way: _Way, counts: dict[str, int]) -> None:
        first = operation.operands[0] if operation.operands else None
        if operation.operation in ("extract", "extract_VL") and isinstance(first, model.Named):
            name = first.name
            if name in self._stacks:
                index = counts[name] = counts.get(name, -1) + 1
                name = self._stacks[name][min(index, len(self._stacks[name]) - 1)]
            if name in self._types:
                for field in self._types[name].fields:
                    if not field.variable:
                        value = self._value(field.width, self._indices.get((name, field.name)))
                        way.add(name, field.name, field.width, value)
        elif operation.operation == "advance" and isinstance(first, model.Number):
            way.add("", "", first.value, self._value(first.value))

    def _value(self, width: int, cells: int | None = None) -> int:
        """Return a field's value; `cells`: of the array whose index it is."""
        if cells is not None and self._random.random() < WITHIN:
            return self._random.randrange(cells) & ((1 << width) - 1)
        if self._random.random() < EDGE:
            return self._random.choice((0, 1, (1 << width) - 1, self._random.randrange(8))) & ((1 << width) - 1)
        return self._random.getrandbits(width) if width else 0

    def _choose(self, state: model.ParserState, way: _Way) -> str | None:
        """Choose a transition, and write what its select wants to see."""
        if not state.transitions:
            return None
        chosen = self._random.choice(state.transitions)
        if chosen.value is None or not state.key:
            return chosen.next_state
        bits = [self._width(operand) for operand in state.key]
        rest = chosen.value
        # The key's fields lie side by side, each in whole bytes.
        for operand, width in zip(reversed(state.key), reversed(bits), strict=True):
            size = 8 * ((width + 7) // 8)
            value, rest = rest & ((1 << width) - 1), rest >> size
            way.write(operand, self._latest(operand), width, value)
        return chosen.next_state

    def _width(self, operand: model.Operand) -> int:
        match operand:
            case model.FieldName(header, field) if header in self._types:
                return next((one.width for one in self._types[header].fields if one.name == field), 8)
            case model.StackField(stack, field) if stack in self._stacks:
                return self._width(model.FieldName(self._stacks[stack][0], field))
            case model.Peek(_, width):
                return width
        return 8

    def _latest(self, operand: model.Operand) -> list[tuple[str, str]]:
        match operand:
            case model.FieldName(header, field):
                return [(header, field)]
            case model.StackField(stack, field):
                return [(member, field) for member in reversed(self._stacks.get(stack, ()))]
        return []


class _Way:
    """The bits of a packet that grows, and where its fields are."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._bits: list[int] = []
        self._ahead: dict[int, int] = {}
        self._places: dict[tuple[str, str], tuple[int, int]] = {}

    def add(self, header: str, field: str, width: int, value: int) -> None:
        """Append a field."""
        at = len(self._bits)
        self._places[header, field] = at, width
        self._bits += [value >> shift & 1 for shift in range(width - 1, -1, -1)]
        for place in [place for place in self._ahead if place < len(self._bits)]:
            self._bits[place] = self._ahead.pop(place)

    def write(self, operand: model.Operand, fields: list[tuple[str, str]], width: int, value: int) -> None:
        """Write what a select looks at, if it is in the packet."""
        digits = [value >> shift & 1 for shift in range(width - 1, -1, -1)]
        if isinstance(operand, model.Peek):
            at = len(self._bits) + operand.offset
            self._ahead.update(zip(range(at, at + width), digits, strict=True))
            return
        for field in fields:
            if field in self._places:
                at, size = self._places[field]
                self._bits[at : at + size] = digits[-size:] if size <= width else self._bits[at : at + size]
                return

    def correct(self, target: model.FieldName, inputs: tuple[model.Operand, ...]) -> None:
        """Write a checksum, if all that it is made of is in the packet."""
        bits: list[int] = []
        for operand in inputs:
            match operand:
                case model.FieldName(header, field) if (header, field) in self._places:
                    at, width = self._places[header, field]
                    bits += self._bits[at : at + width]
                case model.Number(value, int(width)):
                    bits += [value >> shift & 1 for shift in range(width - 1, -1, -1)]
                case _:
                    return
        bits += [0] * (-len(bits) % 16)
        data = int("".join(map(str, bits)) or "0", 2).to_bytes(len(bits) // 8)
        self.write(target, [(target.header, target.field)], 16, internet_checksum(data))

    def frame(self, random: Random) -> bytes:
        """Return the packet with a payload; one of eight is cut short."""
        length = max([len(self._bits), *(place + 1 for place in self._ahead)])
        bits = self._bits + [self._ahead.get(place, 0) for place in range(len(self._bits), length)]
        bits += [0] * (-len(bits) % 8)
        made = bytes(int("".join(map(str, bits[at : at + 8])), 2) for at in range(0, len(bits), 8))
        made += random.randbytes(random.choice(PAYLOAD))
        return made[: random.randrange(1, len(made) + 1)] if made and random.random() < 1 / 8 else made or b"\0"
