"""Expressions: from BMv2's integers without bounds to the IR's fixed widths.

The problem: BMv2 computes with signed integers of any size (GMP).  P4's `bit<8> a; a + 1` wraps at 256, and p4c says so
in the JSON by a mask: `(a + 1) & 0xFF`.  Native code wants a fixed width for each operation, as small as possible, and
the same result.

The idea: there are two ways to lower an expression.

- `low_bits(e, w)`: the value of `e` modulo 2**w.  The low `w` bits of a sum, a difference, a product, a left shift or a
  bitwise operation depend on the low `w` bits of the operands only.  So under a mask of 8 bits everything is computed
  in 8 bits, and the mask itself disappears.
- `exact(e)`: the whole value.  A comparison, a right shift, a division or an index needs it.  `bounds(e)` first
  computes the least and the largest value that `e` can have, by interval arithmetic over its parts; the number of bits
  that hold both is enough, and in that width nothing wraps.  So `low_bits` with that width gives the exact value.

Example: `(a + b) >> 1` with `bit<8>` operands.  The sum lies in 0..510, so it is computed in 9 bits, and then shifted.
`((a + b) & 0xFF) >> 1` is computed in 8 bits.  `a - b < 0` has bounds -255..255: 9 bits, a signed comparison.

Why it is right: `low_bits` is the ring homomorphism from the integers to the integers modulo 2**w; `exact` uses it only
where the true value is known to lie in the range that w bits represent.  Unmasked growth is bounded: a variable left
shift without a mask may have 2**(largest amount) times its operand's range, and beyond `MAX_EXACT_BITS` it is refused.

Rules for widths, wrapping and shifts: P4_16 specification, "Operations on bit strings" and "Operations on fixed-width
signed integers"; JSON operators: docs/JSON_format.md of p4lang/behavioral-model, "expressions".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import ir, model
from ..ir import Op, Relation
from ..model import refusal
from .symbols import Symbols

MAX_EXACT_BITS = 8192
"""Most bits of an expression that is needed exactly; only shifts without a mask come near."""

_WRAPPING = {"+": Op.ADD, "-": Op.SUB, "*": Op.MUL, "|": Op.OR, "^": Op.XOR}
_RELATIONS = {
    "==": (Relation.EQ, Relation.EQ, False),
    "!=": (Relation.NE, Relation.NE, False),
    "<": (Relation.LT, Relation.LT_SIGNED, False),
    "<=": (Relation.LE, Relation.LE_SIGNED, False),
    ">": (Relation.LT, Relation.LT_SIGNED, True),
    ">=": (Relation.LE, Relation.LE_SIGNED, True),
}
"""For each operator: unsigned and signed relation, and whether the operands change places."""
_CASTS = ("two_comp_mod", "sat_cast", "usat_cast")
# Operators with a boolean result.  An operator that ends in b compares booleans, one in h headers, one in u unions.
_TRUTH = {*_RELATIONS, "==b", "!=b", "==h", "!=h", "==u", "!=u", "and", "or", "not", "valid", "valid_union", "d2b"}

TRUE = ir.Const(1, 1)
FALSE = ir.Const(1, 0)


@dataclass(frozen=True, slots=True)
class Scope:
    """The surroundings of an expression: the program's names, the action's arguments, the place in the source."""

    symbols: Symbols
    arguments: Sequence[ir.Expr]
    source: model.Source | None

    def refuse(self, what: str) -> Exception:
        """Return the error that refuses `what` here."""
        return refusal(f"{what} is not supported", self.source)


def resize(value: ir.Expr, width: int, signed: bool = False) -> ir.Expr:
    """Return `value` in another width; constants and resizes of resizes are folded."""
    if value.width == width:
        return value
    if isinstance(value, ir.Const):
        number = value.value
        if signed and number >> (value.width - 1):
            number -= 1 << value.width
        return ir.Const(width, number & _mask(width))
    if isinstance(value, ir.Resize) and (
        width <= value.width or (value.signed == signed and value.value.width < value.width)
    ):
        inner, inner_signed = value.value, value.signed if width <= value.width else signed
        return resize(inner, width, inner_signed)
    return ir.Resize(width, value, signed and width > value.width)


def low_bits(scope: Scope, operand: model.Operand, width: int) -> ir.Expr:
    """Return the low `width` bits of an operand: its value modulo 2**width."""
    match operand:
        case model.Number(number):
            return ir.Const(width, number & _mask(width))
        case model.FieldName() | model.StackField() | model.Argument() | model.Peek() | model.Operation("access_field"):
            value = leaf(scope, operand)
            return resize(value, width, _is_signed(scope, value))
        case model.Truth(held):
            return ir.Const(width, int(held))
        case model.Operation("&", left, right) if left is not None and not isinstance(right, int):
            return _masked(scope, left, right, width)
        case model.Operation(operator) if operator in _TRUTH:
            return resize(truth(scope, operand), width)
        case model.Operation():
            return _operation(scope, operand, width)
    raise scope.refuse(f"{operand} in an expression")


def exact(scope: Scope, operand: model.Operand) -> tuple[ir.Expr, bool]:
    """Return the whole value of an operand, and whether it is in two's complement."""
    low, high = bounds(scope, operand)
    signed = low < 0
    width = max(high.bit_length(), (~low).bit_length() if signed else 0) + signed
    if width > MAX_EXACT_BITS:
        raise scope.refuse(f"an expression of {width} bits that no mask cuts")
    return low_bits(scope, operand, max(width, 1)), signed


def nonzero(scope: Scope, operand: model.Operand) -> ir.Expr:
    """Return whether a number is not 0, as one bit."""
    value, _ = exact(scope, operand)
    return value if value.width == 1 else ir.Compare(Relation.NE, value, ir.Const(value.width, 0))


def unsigned(scope: Scope, operand: model.Operand) -> ir.Expr:
    """Return the whole value of an operand that must not be negative."""
    value, signed = exact(scope, operand)
    if signed:
        raise scope.refuse("a value that may be negative, as index, amount or divisor,")
    return value


def truth(scope: Scope, operand: model.Operand) -> ir.Expr:  # noqa: PLR0912 one case for each operator
    """Return a boolean operand as one bit.

    Booleans and integers are two kinds of values in the JSON; `d2b` and `b2d` convert between them.  An operator
    decides which kind it has: `bounds` and `low_bits` take an operand with one of `_TRUTH` as an integer of 0 or 1.
    """
    match operand:
        case model.Truth(held):
            return ir.Const(1, int(held))
        case model.Operation("not", _, right) if not isinstance(right, int):
            return _not(truth(scope, right))
        case model.Operation("and" | "or" as operator, left, right) if left is not None and not isinstance(right, int):
            op = Op.AND if operator == "and" else Op.OR
            return ir.Binary(1, op, truth(scope, left), truth(scope, right))
        case model.Operation("d2b", _, right) if not isinstance(right, int):
            return nonzero(scope, right)
        case model.Operation("valid" | "valid_union" as operator, _, right) if not isinstance(right, int):
            if operator == "valid":
                return by_member(scope, right, ir.Valid)
            return _by_union(scope, right, lambda union: _any([ir.Valid(header) for header in union]))
        case model.Operation("==b" | "!=b" as operator, left, right) if left is not None and not isinstance(right, int):
            relation = Relation.EQ if operator == "==b" else Relation.NE
            return ir.Compare(relation, truth(scope, left), truth(scope, right))
        case model.Operation("==h" | "!=h" | "==u" | "!=u" as operator, left, right) if left is not None:
            if not isinstance(right, int):
                equal = _headers_or_unions_equal(scope, operator[-1] == "u", left, right)
                return equal if operator[0] == "=" else _not(equal)
        case model.Operation("?", left, right, condition) if left is not None and condition is not None:
            if not isinstance(right, int):
                return ir.Select(1, truth(scope, condition), truth(scope, left), truth(scope, right))
        case model.Operation(operator, left, right) if operator in _RELATIONS and left is not None:
            if not isinstance(right, int):
                return _comparison(scope, operator, left, right)
    raise scope.refuse(f"{operand} as a condition")


def bounds(scope: Scope, operand: model.Operand) -> tuple[int, int]:
    """Return the least and the largest value that an operand may have, each perhaps negative."""
    least, largest = _bounds(scope, operand)
    if max(least.bit_length(), largest.bit_length()) > 2 * MAX_EXACT_BITS:
        raise scope.refuse(f"an expression of more than {2 * MAX_EXACT_BITS} bits that no mask cuts")
    return least, largest


def _bounds(scope: Scope, operand: model.Operand) -> tuple[int, int]:
    match operand:
        case model.Number(value):
            return value, value
        case model.Truth():
            return 0, 1
        case model.FieldName() | model.StackField() | model.Argument() | model.Peek() | model.Operation("access_field"):
            found = leaf(scope, operand)
            # A field may have every value of its width.
            half = 1 << (found.width - 1)
            return (-half, half - 1) if _is_signed(scope, found) else (0, 2 * half - 1)
        case model.Operation(operator) if operator in _TRUTH or operator == "b2d":
            return 0, 1
        case model.Operation("&", left, right) if left is not None and not isinstance(right, int):
            return _and_bounds(scope, left, right)
        case model.Operation("two_comp_mod" | "sat_cast", _, model.Number(width)):
            _require_cast(scope, width)
            return -(1 << (width - 1)), (1 << (width - 1)) - 1
        case model.Operation("usat_cast", _, model.Number(width)):
            _require_cast(scope, width)
            return 0, _mask(width)
        case model.Operation("last_stack_index" | "size_stack"):
            return 0, _mask(32)
        case model.Operation("~", _, right) if not isinstance(right, int):
            low, high = bounds(scope, right)
            return ~high, ~low
        case model.Operation(operator, left, right) if not isinstance(right, int):
            a = bounds(scope, left) if left is not None else (0, 0)
            return _arithmetic_bounds(scope, operator, a, bounds(scope, right))
    raise scope.refuse(f"{operand} in an expression")


def members(scope: Scope, header: model.Operand) -> tuple[ir.Expr | None, Sequence[int]]:
    """Return the headers that an operand may mean, and the index that chooses one at run time; None: there is one."""
    match header:
        case model.Named("header", name):
            return None, [scope.symbols.header(name)]
        case model.Operation("dereference_header_stack" | "dereference_stack", model.Named(_, name), right):
            if not isinstance(right, int):
                return index_of(scope, right), scope.symbols.stack(name)
        case model.StackField(stack, "last"):  # p4c's form of `stack.last` as a whole header
            return last_index(scope.symbols, stack), scope.symbols.stack(stack)
        case model.Operation("access_union_header", union, int(place)) if union is not None:
            index, unions = _unions(scope, union)
            if all(place < len(union) for union in unions):
                return index, [union[place] for union in unions]
    raise scope.refuse(f"{header} as a header")


def _unions(scope: Scope, union: model.Operand) -> tuple[ir.Expr | None, Sequence[tuple[int, ...]]]:
    """Return the headers of the unions that an operand may mean, and the index as `members` does."""
    match union:
        case model.Named("header_union", name):
            return None, [scope.symbols.union(name)]
        case model.Operation("dereference_union_stack", model.Named(_, name), right) if not isinstance(right, int):
            return index_of(scope, right), scope.symbols.elements(name)
    raise scope.refuse(f"{union} as a header union")


def index_of(scope: Scope, operand: model.Operand) -> ir.Expr:
    """Return an index of a stack; a negative one becomes a number beyond the end of any stack."""
    value, signed = exact(scope, operand)
    return resize(value, value.width + 32, True) if signed else value


def by_member(scope: Scope, header: model.Operand, make: Callable[[int], ir.Expr]) -> ir.Expr:
    """Return what `make` makes of a header; of a member of a stack that is chosen at run time, a chain of selects."""
    index, headers = members(scope, header)
    made = [make(member) for member in headers]
    return made[0] if index is None else choose(index, made)


def _by_union(scope: Scope, union: model.Operand, make: Callable[[tuple[int, ...]], ir.Expr]) -> ir.Expr:
    """Do as `by_member` for a union and its headers."""
    index, unions = _unions(scope, union)
    made = [make(headers) for headers in unions]
    return made[0] if index is None else choose(index, made)


def choose(index: ir.Expr, values: Sequence[ir.Expr]) -> ir.Expr:
    """Return the value with that index; 0 beyond the last one, as BMv2 reads the fields of no header."""
    chosen: ir.Expr = ir.Const(values[0].width, 0)
    for number, value in reversed(list(enumerate(values))):
        if number.bit_length() <= index.width:
            condition = ir.Compare(Relation.EQ, index, ir.Const(index.width, number))
            chosen = ir.Select(value.width, condition, value, chosen)
    return chosen


def field_of(symbols: Symbols, header: int, offset: int) -> ir.Field:
    """Return a field of a header by its position."""
    slot = symbols.position(header, offset)
    if slot is None:
        raise refusal(f"not a BMv2 program: header {symbols.headers[header].name} has no field {offset}", None)
    return symbols.field(slot)


def last_fields(symbols: Symbols, operand: model.StackField) -> tuple[ir.Expr, list[ir.Field]]:
    """Return the index of a stack's last extracted element, and the field that each element has."""
    stack, part = operand.stack, operand.part
    headers = symbols.stack(stack) if part is None else symbols.parts(stack, part)
    names = [symbols.headers[header].name for header in headers]
    return last_index(symbols, stack), [symbols.field(symbols.slot(name, operand.field)) for name in names]


def last_index(symbols: Symbols, stack: str) -> ir.Expr:
    """Return the index of `stack.last`, which is the element before the next one."""
    return ir.Binary(32, Op.SUB, symbols.field(symbols.next_slot(stack)), ir.Const(32, 1))


def leaf(scope: Scope, operand: model.Operand) -> ir.Expr:
    """Return a field, parameter, member of a stack or part of the packet in its own width, signed or not."""
    symbols = scope.symbols
    match operand:
        case model.FieldName(header, "$valid$"):
            return symbols.validity(header)
        case model.FieldName(header, field):
            return symbols.number(symbols.slot(header, field))
        case model.Argument(index):
            if index >= len(scope.arguments):
                raise refusal(f"not a BMv2 program: an action has no parameter {index}", scope.source)
            return scope.arguments[index]
        case model.Peek(offset, width):
            return ir.Peek(width, offset)
        case model.StackField():
            last, targets = last_fields(symbols, operand)
            return choose(last, targets)
        case model.Operation("access_field", header, int(offset)) if header is not None:
            return by_member(scope, header, lambda member: field_of(symbols, member, offset))
    raise scope.refuse(f"{operand} in an expression")


def _is_signed(scope: Scope, value: ir.Expr) -> bool:
    """Return whether a field is signed, or the fields are between which `choose` chooses."""
    while isinstance(value, ir.Select):
        value = value.then
    return isinstance(value, ir.Field) and scope.symbols.signed(value.slot)


def _masked(scope: Scope, left: model.Operand, right: model.Operand, width: int) -> ir.Expr:
    """Lower `left & right`; under a constant mask only the bits up to the mask's highest are computed."""
    if isinstance(left, model.Number):
        left, right = right, left
    if isinstance(right, model.Number) and right.value >= 0:
        kept = min(width, right.value.bit_length())
        if kept == 0:
            return ir.Const(width, 0)
        value = low_bits(scope, left, kept)
        mask = right.value & _mask(kept)
        return resize(value if mask == _mask(kept) else ir.Binary(kept, Op.AND, value, ir.Const(kept, mask)), width)
    return ir.Binary(width, Op.AND, low_bits(scope, left, width), low_bits(scope, right, width))


def _operation(scope: Scope, operation: model.Operation, width: int) -> ir.Expr:  # noqa: PLR0912 as bounds
    operator, left, right = operation.operator, operation.left, operation.right
    if isinstance(right, int):
        raise scope.refuse(f"operator {operator}")
    if operator in _WRAPPING:
        first = low_bits(scope, left, width) if left is not None else ir.Const(width, 0)
        return ir.Binary(width, _WRAPPING[operator], first, low_bits(scope, right, width))
    if operator == "~":
        return ir.Binary(width, Op.XOR, low_bits(scope, right, width), ir.Const(width, _mask(width)))
    if operator == "b2d":
        return resize(truth(scope, right), width)
    if operator in ("last_stack_index", "size_stack") and isinstance(right, model.Named):
        count: ir.Expr = scope.symbols.field(scope.symbols.next_slot(right.name))
        if operator == "last_stack_index":
            count = ir.Binary(32, Op.SUB, count, ir.Const(32, 1))
        return resize(count, width)
    if left is None:
        raise scope.refuse(f"operator {operator}")
    if operator == "<<":
        return _shift_left(scope, left, right, width)
    if operator == ">>":
        return _shift_right(scope, left, right, width)
    if operator in ("/", "%"):
        a, b = unsigned(scope, left), unsigned(scope, right)
        both = max(a.width, b.width)
        op = Op.DIV if operator == "/" else Op.MOD
        return resize(ir.Binary(both, op, resize(a, both), resize(b, both)), width)
    if operator == "?" and operation.condition is not None:
        condition = truth(scope, operation.condition)
        return ir.Select(width, condition, low_bits(scope, left, width), low_bits(scope, right, width))
    if operator in _CASTS and isinstance(right, model.Number):
        _require_cast(scope, right.value)
    if operator == "two_comp_mod" and isinstance(right, model.Number):
        return resize(low_bits(scope, left, right.value), width, signed=True)
    if operator in ("sat_cast", "usat_cast") and isinstance(right, model.Number):
        return _saturate(scope, left, right.value, operator == "sat_cast", width)
    raise scope.refuse(f"operator {operator}")


def _shift_left(scope: Scope, left: model.Operand, right: model.Operand, width: int) -> ir.Expr:
    _require_amount(scope, right)
    if not isinstance(right, model.Number):
        return ir.Binary(width, Op.SHL, low_bits(scope, left, width), unsigned(scope, right))
    amount = right.value
    if amount >= width:
        return ir.Const(width, 0)
    # Of the operand, the low width - amount bits stay in the result.
    value = resize(low_bits(scope, left, width - amount), width)
    return ir.Binary(width, Op.SHL, value, ir.Const(32, amount)) if amount else value


def _require_cast(scope: Scope, width: int) -> None:
    if not 1 <= width <= MAX_EXACT_BITS:
        raise scope.refuse(f"a cast to {width} bits")


def _require_amount(scope: Scope, amount: model.Operand) -> None:
    if isinstance(amount, model.Number) and amount.value < 0:
        raise scope.refuse("a shift by a negative amount")


def _shift_right(scope: Scope, left: model.Operand, right: model.Operand, width: int) -> ir.Expr:
    value, signed = exact(scope, left)
    _require_amount(scope, right)
    if isinstance(right, model.Number):
        # Bits above the ones that remain need not be computed.
        needed = right.value + width
        if needed < value.width:
            value, signed = low_bits(scope, left, needed), False
        amount: ir.Expr = ir.Const(32, min(right.value, value.width))
    else:
        amount = unsigned(scope, right)
    shifted = ir.Binary(value.width, Op.SAR if signed else Op.SHR, value, amount)
    return resize(shifted, width, signed)


def _saturate(scope: Scope, operand: model.Operand, bits: int, signed_result: bool, width: int) -> ir.Expr:
    # Saturating arithmetic (|+| and |-|): one bit more than operand and limits need, so that a signed comparison works.
    least = -(1 << (bits - 1)) if signed_result else 0
    largest = _mask(bits - 1) if signed_result else _mask(bits)
    low, high = bounds(scope, operand)
    inner = max(high.bit_length(), (~low).bit_length(), bits) + 1
    value = low_bits(scope, operand, inner)
    for limit, above in ((largest, True), (least, False)):
        bound = ir.Const(inner, limit & _mask(inner))
        beyond = ir.Compare(Relation.LT_SIGNED, *((bound, value) if above else (value, bound)))
        value = ir.Select(inner, beyond, bound, value)
    return resize(value, width, signed=True)


def _comparison(scope: Scope, operator: str, left: model.Operand, right: model.Operand) -> ir.Expr:
    unsigned_relation, signed_relation, swap = _RELATIONS[operator]
    (a, a_signed), (b, b_signed) = exact(scope, left), exact(scope, right)
    # An unsigned operand that is compared with a signed one gets a bit more, for the sign.
    some_signed = a_signed or b_signed
    width = max(a.width + (some_signed and not a_signed), b.width + (some_signed and not b_signed))
    a, b = resize(a, width, a_signed), resize(b, width, b_signed)
    if swap:
        a, b = b, a
    return ir.Compare(signed_relation if some_signed else unsigned_relation, a, b)


def _and_bounds(scope: Scope, left: model.Operand, right: model.Operand) -> tuple[int, int]:
    """Return the bounds of `left & right`, which is at most the smaller operand if neither is negative."""
    for operand in (left, right):
        if isinstance(operand, model.Number) and operand.value >= 0:
            return 0, operand.value
    (a, b), (c, d) = bounds(scope, left), bounds(scope, right)
    if a >= 0 and c >= 0:
        return 0, min(b, d)
    if a >= 0 or c >= 0:
        return 0, b if a >= 0 else d
    size = max(b.bit_length(), d.bit_length(), (~a).bit_length(), (~c).bit_length())
    return -(1 << size), _mask(size)


def _arithmetic_bounds(scope: Scope, operator: str, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    match operator:
        case "+":
            return a[0] + b[0], a[1] + b[1]
        case "-":
            return a[0] - b[1], a[1] - b[0]
        case "?":
            return min(a[0], b[0]), max(a[1], b[1])
        # Signs may be mixed: the extremes of a product are among the four products of bounds.
        case "*":
            products = [x * y for x in a for y in b]
            return min(products), max(products)
        # All bits up to the highest of both may be 1.
        case "|" | "^":
            size = max(a[1].bit_length(), b[1].bit_length(), (~a[0]).bit_length(), (~b[0]).bit_length())
            return (0 if a[0] >= 0 and b[0] >= 0 else -(1 << size)), _mask(size)
        case "<<" | ">>" if b[0] < 0:
            raise scope.refuse("a shift by an amount that may be negative")
        case "<<" if b[1] <= MAX_EXACT_BITS:
            return min(a[0], a[0] << b[1]), max(a[1], a[1] << b[1])
        case "<<":
            raise scope.refuse("a left shift by a variable amount that no mask cuts")
        case ">>":
            largest = min(b[1], MAX_EXACT_BITS)
            return min(a[0] >> b[0], a[0] >> largest), max(a[1] >> b[0], a[1] >> largest)
        # Operands of a division are unsigned (`_operation`); a division by 0 gives 0.
        case "/":
            return 0, max(a[1], 0)
        case "%":
            return 0, max(b[1], 0)
    raise scope.refuse(f"operator {operator}")


def _headers_or_unions_equal(scope: Scope, unions: bool, left: model.Operand, right: model.Operand) -> ir.Expr:
    symbols = scope.symbols
    if unions:
        return _by_union(scope, left, lambda a: _by_union(scope, right, lambda b: _unions_equal(symbols, a, b)))
    return by_member(scope, left, lambda a: by_member(scope, right, lambda b: _headers_equal(symbols, a, b)))


def _headers_equal(symbols: Symbols, left: int, right: int) -> ir.Expr:
    """Compare two headers.  As in BMv2 two invalid headers differ; in the P4_16 specification they are equal.

    As in BMv2, too, variable fields are compared as numbers, so that zeros at the front do not count.
    """
    both: ir.Expr = ir.Binary(1, Op.AND, ir.Valid(left), ir.Valid(right))
    if len(symbols.headers[left].wire) != len(symbols.headers[right].wire):
        raise refusal("not a BMv2 program: headers of different types are compared", None)
    for a, b in zip(symbols.headers[left].wire, symbols.headers[right].wire, strict=True):
        both = ir.Binary(1, Op.AND, both, ir.Compare(Relation.EQ, symbols.number(a), symbols.number(b)))
    return both


def _unions_equal(symbols: Symbols, left: tuple[int, ...], right: tuple[int, ...]) -> ir.Expr:
    """Compare two unions, which are equal if the same header is valid in both and equal.  As in BMv2, see there."""
    if len(left) != len(right):
        raise refusal("not a BMv2 program: header unions of different types are compared", None)
    return _any([_headers_equal(symbols, a, b) for a, b in zip(left, right, strict=True)])


def _any(values: Sequence[ir.Expr]) -> ir.Expr:
    found = values[0]
    for value in values[1:]:
        found = ir.Binary(1, Op.OR, found, value)
    return found


def _not(value: ir.Expr) -> ir.Expr:
    return ir.Binary(1, Op.XOR, value, TRUE)


def _mask(width: int) -> int:
    return (1 << width) - 1
