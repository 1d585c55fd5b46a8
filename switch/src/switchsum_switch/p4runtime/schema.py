"""P4Info bound to a loaded program: from ids and message types to the switch's own objects.

What P4Info names must exist in the program, with the same widths and match kinds; otherwise the P4Info is refused.
The program may have more: p4c does not list tables that it makes itself.  It may lack some tables, digests, and action
profiles that no table uses: p4c leaves out what is never applied, but keeps it in P4Info.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from switchsum_switch.messages.match_fields import KINDS, OPTIONAL
from switchsum_switch.messages.matches import Lpm, Match, MatchKind, Range, Ternary
from switchsum_switch.messages.p4runtime import config

from ..state.digests import Digest
from ..state.meters import Meter, MeterUnit
from ..state.profiles import Profile
from ..state.state import MAX_GROUP, Counter, ProgramState, Register
from ..state.tables import ActionSpec, KeySpec, Table
from ..state.value_sets import ValueSet
from .data import Scalar, encoder, scalar, value_names
from .forms import Form, Forms
from .group_rules import GroupRules
from .packet_io import ControllerHeader
from .refusal import invalid

_UNITS: Final = {MeterUnit.BYTES: config.MeterSpec.BYTES, MeterUnit.PACKETS: config.MeterSpec.PACKETS}

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSchema:
    """One match field of a table."""

    identifier: int
    name: str
    width: int
    """Bits."""
    kind: MatchKind
    optional: bool
    """The match type is OPTIONAL, which the switch keeps as a ternary match of all bits or of none."""
    form: Form
    """The form of its values in messages."""
    anything: Match | None
    """The match of all values, which messages leave out; None: the field is exact, and has no such match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSchema:
    """One action of a table."""

    identifier: int
    spec: ActionSpec
    param_ids: tuple[int, ...]
    """Ids of the parameters, in the order of the action."""
    params_taken: frozenset[int]
    """The same ids, as those of a message are compared with them."""
    forms: tuple[Form, ...]
    """The forms of their values in messages."""
    in_entries: bool
    """Entries may have this action."""
    as_default: bool
    """It may be the default action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """One table."""

    identifier: int
    table: Table
    fields: tuple[FieldSchema, ...]
    actions: Mapping[int, ActionSchema]
    """Actions by id."""
    const: bool
    """The entries come from the program and cannot be changed."""
    ages: bool
    """True: P4Info says that entries may have an idle timeout."""
    meter_kind: int
    """The MeterSpec.Type of its direct meter, if it has one."""
    rules: GroupRules | None = None
    """Rules of the action profile that it uses."""

    @property
    def name(self) -> str:
        """The table's P4 name."""
        return self.table.spec.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSchema:
    """One action profile."""

    identifier: int
    profile: Profile
    actions: Mapping[int, ActionSchema]
    """Actions of the tables that use it, by id."""
    rules: GroupRules

    @property
    def name(self) -> str:
        """The profile's P4 name."""
        return self.profile.name


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterSchema:
    """One meter array."""

    meter: Meter
    kind: int
    """A MeterSpec.Type: which configurations clients may write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterSchema:
    """One register array."""

    register: Register
    type: Scalar
    """P4Info's type of its values."""
    form: Form
    """Their form in messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSetSchema:
    """One parser value set."""

    value_set: ValueSet
    fields: tuple[FieldSchema, ...]
    size: int
    """Most members that P4Info allows."""

    @property
    def name(self) -> str:
        """The set's P4 name."""
        return self.value_set.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestSchema:
    """One digest."""

    identifier: int
    digest: Digest
    encode: Callable[[Sequence[int]], Any]
    """Returns the P4Data of a record's values."""
    names: tuple[str, ...]
    """Names of the values, if the digest is of a struct."""

    @property
    def name(self) -> str:
        """The digest's P4 name."""
        return self.digest.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """Everything that clients may address, by P4Info id."""

    tables: Mapping[int, TableSchema]
    profiles: Mapping[int, ProfileSchema]
    counters: Mapping[int, Counter]
    meters: Mapping[int, MeterSchema]
    value_sets: Mapping[int, ValueSetSchema]
    registers: Mapping[int, RegisterSchema]
    digests: Mapping[int, DigestSchema]
    packet_in: ControllerHeader
    packet_out: ControllerHeader


def lookup(what: str, by_id: Mapping[int, Found], identifier: int) -> Found:
    """Return an object by id; raises Refused if P4Info has none with that id."""
    if not identifier:
        raise invalid(f"no {what} id is given")
    if identifier not in by_id:
        raise invalid(f"P4Info has no {what} {identifier} that is in the program")
    return by_id[identifier]


def bind(p4info: Any, state: ProgramState) -> Schema:
    """Check a P4Info against a program, and return the objects by id; raises Refused where the two differ."""
    _refuse_unsupported(p4info)
    actions, forms = {action.preamble.id: action for action in p4info.actions}, Forms(p4info.type_info)
    names = {profile.preamble.id: profile.preamble.name for profile in p4info.action_profiles}
    infos = [info for info in p4info.tables if info.preamble.name in state.tables]
    named = {info.preamble.name for info in infos}
    if any(table.spec.keys and name not in named for name, table in state.tables.items()):
        infos = p4info.tables  # the program has a table in place of one that it lacks: P4Info is another program's
    used = {info.implementation_id for info in infos}
    for info in infos:
        table = _named("table", info, state.tables)
        if names.get(info.implementation_id) != table.spec.profile:
            raise invalid(f"table {table.spec.name} has another action profile in P4Info than in the program")
    rules = {profile.preamble.id: GroupRules.of(profile) for profile in p4info.action_profiles}
    tables = _by_id(
        "table",
        infos,
        lambda info: replace(
            _table(info, p4info, actions, forms, state.tables), rules=rules.get(info.implementation_id)
        ),
    )
    return Schema(
        tables=tables,
        profiles=_by_id(
            "action profile",
            (info for info in p4info.action_profiles if info.preamble.id in used),
            lambda info: _profile(info, tables, state.profiles),
        ),
        counters=_by_id("counter", p4info.counters, lambda info: _array("counter", info, state.counters)),
        meters=_by_id("meter", p4info.meters, lambda info: _meter(info, state.meters)),
        value_sets=_by_id("value set", p4info.value_sets, lambda info: _value_set(info, state.value_sets)),
        registers=_by_id(
            "register", p4info.registers, lambda info: _register(info, p4info.type_info, forms, state.registers)
        ),
        digests=_by_id(
            "digest",
            (info for info in p4info.digests if info.preamble.name in state.digests),
            lambda info: _digest(info, p4info.type_info, state.digests),
        ),
        packet_in=ControllerHeader.named(p4info, "packet_in", forms, state.headers),
        packet_out=ControllerHeader.named(p4info, "packet_out", forms, state.headers),
    )


def _refuse_unsupported(p4info: Any) -> None:
    for item in p4info.externs:
        raise invalid(f"P4Info: externs are not supported ({item.extern_type_name})")
    # Of replicas there may be as many as memory holds.
    groups = p4info.pkg_info.platform_properties.multicast_group_table_size
    if groups > MAX_GROUP:
        raise invalid(f"P4Info asks for {groups} multicast groups, and the switch has {MAX_GROUP}")


def _by_id(what: str, infos: Iterable[Any], make: Callable[[Any], Found]) -> dict[int, Found]:
    found: dict[int, Found] = {}
    for info in infos:
        if not info.preamble.id or info.preamble.id in found:
            raise invalid(f"P4Info: {what} {info.preamble.name} has no id of its own")
        found[info.preamble.id] = make(info)
    return found


def _named(what: str, info: Any, objects: Mapping[str, Found]) -> Found:
    name = info.preamble.name
    if name not in objects:
        raise invalid(f"P4Info has {what} {name}, the program does not")
    return objects[name]


def _table(
    info: Any, p4info: Any, actions: Mapping[int, Any], forms: Forms, tables: Mapping[str, Table]
) -> TableSchema:
    table, counters = _named("table", info, tables), p4info.direct_counters
    spec, name = table.spec, info.preamble.name
    if len(info.match_fields) != len(spec.keys):
        raise invalid(
            f"table {name} has {len(info.match_fields)} match fields in P4Info, {len(spec.keys)} in the program"
        )
    fields = tuple(_field(name, field, key, forms) for field, key in zip(info.match_fields, spec.keys, strict=True))
    # An id that P4Info leaves out is 0.
    if len({field.identifier for field in fields} - {0}) != len(fields):
        raise invalid(f"P4Info: match fields of table {name} share an id")
    if any(counter.direct_table_id == info.preamble.id for counter in counters) != spec.has_counters:
        raise invalid(f"table {name} has a direct counter in {'the program' if spec.has_counters else 'P4Info'} alone")
    meters = [meter for meter in p4info.direct_meters if meter.direct_table_id == info.preamble.id]
    if bool(meters) != (spec.meter is not None):
        raise invalid(f"table {name} has a direct meter in {'the program' if spec.meter else 'P4Info'} alone")
    if spec.meter:
        _check_meter(f"the direct meter of table {name}", meters[0].spec, spec.meter)
    return TableSchema(
        identifier=info.preamble.id,
        table=table,
        fields=fields,
        actions={ref.id: _action(table, ref, actions, forms) for ref in info.action_refs},
        const=info.is_const_table or spec.const_entries,
        ages=info.idle_timeout_behavior != config.Table.NO_TIMEOUT,
        meter_kind=meters[0].spec.type if meters else config.MeterSpec.TWO_RATE_THREE_COLOR,
    )


def _field(table: str, info: Any, key: KeySpec, forms: Forms) -> FieldSchema:
    place = f"match field {info.name} of table {table}"
    kind = KINDS.get(info.match_type)
    if kind is None:
        raise invalid(f"P4Info: {place} has a match type that is not supported")
    form = forms.of(info, key.width)
    if kind is not key.kind or form is None:
        raise invalid(
            f"{place} is {kind.value} of {info.bitwidth} bits in P4Info, "
            f"{key.kind.value} of {key.width} bits in the program"
        )
    if not form.is_own and kind in (MatchKind.LPM, MatchKind.RANGE):
        raise invalid(f"P4Info: {place} is of a translated type, which has neither prefixes nor ranges")
    return FieldSchema(
        identifier=info.id,
        name=info.name,
        width=key.width,
        kind=kind,
        optional=info.match_type == OPTIONAL,
        form=form,
        anything=_anything(kind, key.width),
    )


def _anything(kind: MatchKind, width: int) -> Match | None:
    """Return the match of a field that every value passes; exact fields have none."""
    match kind:
        case MatchKind.EXACT:
            return None
        case MatchKind.LPM:
            return Lpm(0, 0)
        case MatchKind.RANGE:
            return Range(0, (1 << width) - 1)
        case MatchKind.TERNARY:
            return Ternary(0, 0)


def _action(table: Table, ref: Any, actions: Mapping[int, Any], forms: Forms) -> ActionSchema:
    info = actions.get(ref.id)
    if info is None:
        raise invalid(f"P4Info: table {table.spec.name} refers to action {ref.id}, which is not there")
    name = info.preamble.name
    spec = next((action for action in table.spec.actions if action.name == name), None)
    if spec is None:
        raise invalid(f"table {table.spec.name} has action {name} in P4Info, not in the program")
    widths = [param.bitwidth for param in info.params]
    made = [forms.of(param, own.width) for param, own in zip(info.params, spec.params, strict=False)]
    if len(widths) != len(spec.params) or None in made:
        raise invalid(f"action {name} has parameters of {widths} bits in P4Info, others in the program")
    param_ids = tuple(param.id for param in info.params)
    return ActionSchema(
        identifier=ref.id,
        spec=spec,
        param_ids=param_ids,
        params_taken=frozenset(param_ids),
        forms=tuple(form for form in made if form is not None),
        in_entries=ref.scope != config.ActionRef.DEFAULT_ONLY,
        as_default=ref.scope != config.ActionRef.TABLE_ONLY,
    )


def _profile(info: Any, tables: Mapping[int, TableSchema], profiles: Mapping[str, Profile]) -> ProfileSchema:
    profile = _named("action profile", info, profiles)
    if info.with_selector != profile.has_groups:
        where = "the program" if profile.has_groups else "P4Info"
        raise invalid(f"action profile {profile.name} has a selector in {where} alone")
    actions: dict[int, ActionSchema] = {}
    for identifier in info.table_ids:
        actions |= lookup("table", tables, identifier).actions
    return ProfileSchema(identifier=info.preamble.id, profile=profile, actions=actions, rules=GroupRules.of(info))


ArrayType = TypeVar("ArrayType", Counter, Meter, Register)


def _array(what: str, info: Any, arrays: Mapping[str, ArrayType]) -> ArrayType:
    array = _named(what, info, arrays)
    if info.size != array.size:
        raise invalid(f"{what} {array.name} has {info.size} cells in P4Info, {array.size} in the program")
    return array


def _meter(info: Any, meters: Mapping[str, Meter]) -> MeterSchema:
    meter = _array("meter", info, meters)
    _check_meter(f"meter {meter.name}", info.spec, meter.unit)
    return MeterSchema(meter=meter, kind=info.spec.type)


def _check_meter(what: str, spec: Any, unit: MeterUnit) -> None:
    if spec.type not in config.MeterSpec.Type.values():
        raise invalid(f"P4Info: {what} is of a type that is not known ({spec.type})")
    if spec.unit != _UNITS[unit]:
        raise invalid(f"{what} measures {unit.value} in the program and something else in P4Info")


def _value_set(info: Any, value_sets: Mapping[str, ValueSet]) -> ValueSetSchema:
    value_set = _named("value set", info, value_sets)
    widths = [field.bitwidth for field in info.match]
    if value_set.tables and widths != [key.width for key in value_set.tables[0].spec.keys]:
        raise invalid(f"value set {value_set.name} has fields of {widths} bits in P4Info, others in the program")
    fields = []
    for field in info.match:
        kind = KINDS.get(field.match_type)
        if kind is None:
            raise invalid(f"P4Info: value set {value_set.name} has a match type that is not supported")
        fields.append(
            FieldSchema(
                identifier=field.id,
                name=field.name,
                width=field.bitwidth,
                kind=kind,
                optional=field.match_type == OPTIONAL,
                form=Form(field.bitwidth, field.bitwidth),
                anything=_anything(kind, field.bitwidth),
            )
        )
    return ValueSetSchema(value_set=value_set, fields=tuple(fields), size=info.size)


def _digest(info: Any, type_info: Any, digests: Mapping[str, Digest]) -> DigestSchema:
    digest = _named("digest", info, digests)
    encode = encoder(f"digest {digest.name}", info.type_spec, type_info, len(digest.widths))
    names = value_names(info.type_spec, type_info)
    return DigestSchema(identifier=info.preamble.id, digest=digest, encode=encode, names=names)


def _register(info: Any, type_info: Any, forms: Forms, registers: Mapping[str, Register]) -> RegisterSchema:
    register = _array("register", info, registers)
    what, width = f"register {register.name}", register.width
    found = scalar(what, info.type_spec, type_info)
    if found.width not in (0, width):
        raise invalid(f"{what} has values of {found.width} bits in P4Info, {width} in the program")
    form = forms.translated(found.new_type, width) or Form(width, width)
    return RegisterSchema(register=register, type=found, form=form)
