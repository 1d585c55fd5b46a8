"""Match keys, actions and register values: from P4Runtime messages to the switch's own types, and back.

P4Runtime has one form for each value: a byte string without leading zeros (section 8.4), and a match that matches
everything is left out (section 9.1.1).  A message in another form is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from switchsum_switch.messages.match_fields import decode_match, encode_match
from switchsum_switch.messages.matches import Exact, Lpm, Match, MatchKind, Range, Ternary
from switchsum_switch.messages.p4runtime import Code, config, decode_uint, v1

from ..state.meters import Meter, MeterRates
from .refusal import Refused, invalid
from .schema import ActionSchema, FieldSchema, RegisterSchema, TableSchema

PORT_BITS: Final = 9
"""Width of a port's number."""


MAX_COUNT: Final = (1 << 63) - 1
"""Counts travel as int64."""


class HasFields(Protocol):
    """An object with match fields: a table or a value set."""

    @property
    def name(self) -> str:
        """Its P4 name."""

    @property
    def fields(self) -> tuple[FieldSchema, ...]:
        """Its match fields."""


def decode_value(data: bytes, width: int, what: str) -> int:
    """Read the byte string of a value of that width; raises Refused with OUT_OF_RANGE (section 8.4)."""
    try:
        return decode_uint(data, width)
    except ValueError as error:
        raise Refused(Code.OUT_OF_RANGE, f"{what}: {error}") from error


def decode_counts(data: Any) -> tuple[int, int]:
    """Read CounterData as packets and bytes."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid("counts are not negative")
    return data.packet_count, data.byte_count


def encode_counts(packets: int, count_bytes: int) -> Any:
    """Write CounterData."""
    return v1.CounterData(packet_count=packets & MAX_COUNT, byte_count=count_bytes & MAX_COUNT)


def decode_key(schema: HasFields, matches: Sequence[Any]) -> tuple[Match, ...]:
    """Read the fields of a match; return one match for each key field, also for those that were left out."""
    given = {match.field_id: match for match in matches}
    if len(given) != len(matches):
        ids = [match.field_id for match in matches]
        raise invalid(f"match field {next(one for one in ids if ids.count(one) > 1)} is there twice")
    key = []
    for field in schema.fields:
        message = given.pop(field.identifier, None)
        if message is not None:
            key.append(_usual_match(field, message) or _decode_field(schema, field, message))
        elif field.anything is not None:
            key.append(field.anything)
        else:
            raise invalid(f"match field {field.name} of {schema.name} is exact and not given")
    if given:
        raise invalid(f"{schema.name} has no match field {min(given)}")
    return tuple(key)


def _usual_match(field: FieldSchema, message: Any) -> Match | None:
    """Read a field of the most frequent kinds; None if anything about it is unusual or wrong.

    It does what `_decode_field` does in a third of the time: controllers write tens of thousands of entries.
    """
    if not field.form.is_own:
        return None
    width, kind = field.width, field.kind
    if kind is MatchKind.LPM:
        lpm = message.lpm  # an object is made each time
        data, length = lpm.value, lpm.prefix_len
        value = int.from_bytes(data, "big")
        if data and 0 < length <= width and not value >> width and not value & (1 << width - length) - 1:
            return Lpm(value, length)
    elif kind is MatchKind.EXACT:
        data = message.exact.value
        value = int.from_bytes(data, "big")
        if data and not value >> width:
            return Exact(value)
    elif kind is MatchKind.TERNARY and not field.optional:
        ternary = message.ternary
        data = ternary.value
        value, mask = int.from_bytes(data, "big"), int.from_bytes(ternary.mask, "big")
        if data and mask and not mask >> width and not value & ~mask:
            return Ternary(value, mask)
    return None


def _decode_field(schema: HasFields, field: FieldSchema, message: Any) -> Match:
    what = f"match field {field.name} of {schema.name}"
    wanted = "optional" if field.optional else field.kind.value
    given = message.WhichOneof("field_match_type")
    if given != wanted:
        raise invalid(f"{what} is {wanted}, not {given}")
    found = decode_match(
        message,
        field.width,
        decode=lambda data: field.form.decode(data, what),
        decode_mask=lambda data: field.form.decode_mask(data, what),
    )
    match found:
        case Lpm(value, length) if not 0 < length <= field.width:
            raise invalid(f"{what} has a prefix of {length} bits; it is to be between 1 and {field.width}, or left out")
        case Lpm(value, length) if value & ((1 << (field.width - length)) - 1):
            raise invalid(f"{what} has bits beyond its prefix")
        case Ternary(value, mask) if value & ~mask:
            raise invalid(f"{what} has bits outside its mask")
        case Range(low, high) if low > high:
            raise invalid(f"{what} is an empty range")
    if found == field.anything:
        raise invalid(f"{what} matches everything; it is to be left out")
    return found


def encode_key(schema: HasFields, key: Sequence[Match]) -> list[Any]:
    """Write the fields of a match, without those that match everything."""
    messages = []
    for field, match in zip(schema.fields, key, strict=True):
        if match == field.anything:
            continue
        form = field.form
        messages.append(
            encode_match(
                field.identifier,
                match,
                is_optional=field.optional,
                encode=form.encode,
                encode_mask=form.encode_mask,
            )
        )
    return messages


class HasActions(Protocol):
    """An object with actions: a table or an action profile."""

    @property
    def name(self) -> str:
        """Its P4 name."""

    @property
    def actions(self) -> Mapping[int, ActionSchema]:
        """Its actions by id."""


def decode_action(schema: TableSchema, message: Any, *, as_default: bool) -> tuple[str, tuple[int, ...]]:
    """Read a TableAction into an action's name and parameters."""
    if message.WhichOneof("type") != "action":
        raise invalid(f"table {schema.name} takes actions directly, not {message.WhichOneof('type')}")
    return decode_action_of(schema, message.action, as_default=as_default)


def decode_action_of(schema: HasActions, message: Any, *, as_default: bool) -> tuple[str, tuple[int, ...]]:
    """Read an Action into its name and parameters."""
    action = schema.actions.get(message.action_id)
    if action is None:
        raise invalid(f"{schema.name} has no action {message.action_id}")
    if not (action.as_default if as_default else action.in_entries):
        use = "the default action" if as_default else "an entry's action"
        raise Refused(Code.PERMISSION_DENIED, f"{action.spec.name} may not be {use} of {schema.name}")
    return action.spec.name, _decode_params(action, message.params)


def _decode_params(action: ActionSchema, params: Sequence[Any]) -> tuple[int, ...]:
    given = {param.param_id: param.value for param in params}
    if len(given) != len(params) or given.keys() != action.params_taken:
        name = action.spec.name
        takes, has = (", ".join(map(str, ids)) or "none" for ids in (action.param_ids, sorted(given)))
        raise invalid(f"action {name} takes the parameters {takes}; given are {has}")
    values = []
    for identifier, spec, form in zip(action.param_ids, action.spec.params, action.forms, strict=True):
        data = given[identifier]
        number = int.from_bytes(data, "big")
        if not form.is_own or not data or number >> form.width:
            number = form.decode(data, f"parameter {spec.name} of action {action.spec.name}")
        values.append(number)
    return tuple(values)


def encode_action(schema: TableSchema, name: str, params: Sequence[int]) -> Any:
    """Write a TableAction; return None for an action that P4Info does not list."""
    message = v1.TableAction()
    return message if encode_action_of(schema, name, params, message.action) else None


def encode_action_of(schema: HasActions, name: str, params: Sequence[int], message: Any) -> bool:
    """Write an Action into `message`; return False for an action that P4Info does not list."""
    action = next((action for action in schema.actions.values() if action.spec.name == name), None)
    if action is None:
        return False
    message.action_id = action.identifier
    for identifier, value, form in zip(action.param_ids, params, action.forms, strict=True):
        message.params.add(param_id=identifier, value=form.encode(value))
    return True


def decode_rates(message: Any, kind: int) -> MeterRates:
    """Read the MeterConfig of a meter of a MeterSpec.Type; `Meter.configure` checks its values."""
    rates = {
        "committed": message.cir,
        "committed_burst": message.cburst,
        "peak": message.pir,
        "peak_burst": message.pburst,
    }
    if kind == config.MeterSpec.SINGLE_RATE_THREE_COLOR:
        return MeterRates(**rates, excess_burst=message.eburst)
    if message.eburst:
        raise invalid("eburst belongs to meters of a single rate and three colours")
    if kind == config.MeterSpec.SINGLE_RATE_TWO_COLOR and (message.pir, message.pburst) != (
        message.cir,
        message.cburst,
    ):
        raise invalid("a meter of a single rate has pir and pburst as cir and cburst")
    return MeterRates(**rates)


def encode_rates(rates: MeterRates) -> Any:
    """Write a MeterConfig."""
    return v1.MeterConfig(
        cir=rates.committed,
        cburst=rates.committed_burst,
        pir=rates.peak,
        pburst=rates.peak_burst,
        eburst=rates.excess_burst or 0,
    )


def check_colours(data: Any) -> None:
    """Raise Refused unless a MeterCounterData that a client writes is all 0: counts of colours can only be cleared."""
    if any(part.packet_count or part.byte_count for part in (data.green, data.yellow, data.red)):
        raise invalid("the counts of a meter's colours can only be set to 0")


def encode_colours(meter: Meter, index: int) -> Any:
    """Write the MeterCounterData of a meter's cell."""
    green, yellow, red = (encode_counts(*counts) for counts in meter.counts(index))
    return v1.MeterCounterData(green=green, yellow=yellow, red=red)


def decode_register(schema: RegisterSchema, data: Any) -> int:
    """Read P4Data of a register's type; return the bits of a cell."""
    register = schema.register
    what = f"register {register.name}"
    kind, names = schema.type.kind, schema.type.names
    if data.WhichOneof("data") != kind:
        raise invalid(f"{what} holds values of the form {kind}, not {data.WhichOneof('data')}")
    if names:
        if data.enum not in names:
            raise invalid(f"{what} has no value {data.enum!r}, but {', '.join(names)}")
        return names.index(data.enum)
    if not schema.type.signed:
        return schema.form.decode(getattr(data, kind), what)
    # int<W> comes in the shortest two's complement, so that the sign must be extended to the register's width.
    value = int.from_bytes(data.bitstring, "big", signed=True)
    if not data.bitstring or not -1 << register.width - 1 <= value < 1 << register.width - 1:
        raise Refused(Code.OUT_OF_RANGE, f"{what}: 0x{data.bitstring.hex()} is no int<{register.width}>")
    return value & (1 << register.width) - 1


def encode_register(schema: RegisterSchema, bits: int) -> Any:
    """Write the bits of a cell as P4Data."""
    kind, names = schema.type.kind, schema.type.names
    if names:
        return v1.P4Data(enum=names[bits] if bits < len(names) else str(bits))
    if not schema.type.signed:
        return v1.P4Data(**{kind: schema.form.encode(bits)})
    width = schema.register.width
    value = bits - (bits >> width - 1 << width)
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return v1.P4Data(bitstring=value.to_bytes(size, "big", signed=True))
