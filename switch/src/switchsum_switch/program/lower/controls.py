"""Ingress and egress: tables, conditionals and actions become one graph for each control.

p4c makes a table without a key of every run of plain statements in a control, with one const action.  To look such a
table up would cost time and tell nothing: its action stands in the graph in its place, and the table is one of the
program's `fixed_tables`, so that the control plane can still read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...messages.matches import Exact, Lpm, Match, MatchKind, Range, Ternary
from ...state.profiles import ProfileInfo
from ...state.tables import ActionSpec, Entry, KeySpec, ParamSpec, TableSpec
from .. import ir, model
from ..graph import GraphBuilder
from ..hashes import ROUND_ROBIN
from ..ir import Op
from ..model import refusal
from .bodies import ActionLowering
from .calculations import hash_over
from .expressions import Scope, leaf, truth
from .symbols import DIGEST, HIDDEN, RESTORES, TURN_BITS, Symbols, meter_unit

MAX_COLOUR_BITS: Final = 64

_KINDS = {
    "exact": MatchKind.EXACT,
    "valid": MatchKind.EXACT,
    "lpm": MatchKind.LPM,
    "ternary": MatchKind.TERNARY,
    "range": MatchKind.RANGE,
}


class ControlLowering:
    """Lowers controls one after the other; the tables of all controls are in one list."""

    def __init__(self, symbols: Symbols, actions: Sequence[model.Action]) -> None:
        self._symbols = symbols
        self._actions = {action.id: action for action in actions}
        self._profiles: dict[str, model.Profile] = {}
        self.tables: list[ir.TableInfo] = []
        self.digests: list[ir.DigestInfo] = []
        self.fixed_tables: list[ir.TableInfo] = []
        """Tables that always run one action, which stands in the graph in their place."""

    @property
    def profiles(self) -> tuple[ProfileInfo, ...]:
        """The action profiles of the controls that were lowered."""
        return tuple(
            ProfileInfo(name=profile.name, size=profile.size, has_groups=profile.selector is not None)
            for profile in self._profiles.values()
        )

    def lower(
        self, control: model.Control, learn_lists: Sequence[model.LearnList] = (), *, restores: bool = False
    ) -> ir.Graph:
        """Return the graph of a control; where it ends it makes the digest that was asked for.

        A control that `restores` begins with giving a clone the fields of headers that its list keeps; the other one
        ends with keeping them.
        """
        self._profiles |= {profile.name: profile for profile in control.profiles}
        builder = GraphBuilder()
        entry = builder.new(control.name)
        end = self._end(builder, learn_lists)
        if not restores:
            end = self._keep(builder, end)
        names = [table.name for table in control.tables] + [branch.name for branch in control.conditionals]
        nodes = {name: builder.new(name) for name in names}

        # p4c gives nodes in any order: all get their blocks first, so that each can name those that follow.
        def block(name: str | None) -> int:
            if name is not None and name not in nodes:
                raise refusal(f"not a BMv2 program: {control.name} has no node {name}", None)
            return end if name is None else nodes[name]

        start = block(control.start)
        builder.fill(entry, [], ir.Jump(self._restore(builder, start) if restores else start))
        for conditional in control.conditionals:
            scope = Scope(self._symbols, (), conditional.source)
            then, other = block(conditional.true_next), block(conditional.false_next)
            condition = truth(scope, conditional.condition)
            builder.fill(nodes[conditional.name], [], ir.Branch(condition, then, other))
        for table in control.tables:
            after = {number: block(table.next_by_action.get(number, table.next_default)) for number in table.action_ids}
            by_hit = tuple(map(block, table.next_by_hit)) if table.next_by_hit else None
            builder.fill(nodes[table.name], [], self._table(builder, table, after, by_hit, end))
        return builder.finish()

    def _end(self, builder: GraphBuilder, learn_lists: Sequence[model.LearnList]) -> int:
        """Make the blocks in which a control ends, and return the first."""
        last = following = builder.add("end", [], ir.End())
        for number, learned in reversed(list(enumerate(learn_lists))):
            scope = Scope(self._symbols, (), learned.source)
            values = tuple(leaf(scope, element) for element in learned.elements)
            if not values:
                raise scope.refuse(f"the digest {learned.name} without values")
            info = ir.DigestInfo(name=learned.name, widths=tuple(value.width for value in values))
            # p4c makes a list for each call of digest(); those of one name are one digest.
            if any(one.name == info.name and one.widths != info.widths for one in self.digests):
                raise scope.refuse(f"the name {info.name} for digests of different values")
            self.digests.insert(0, info)
            wanted = self._symbols.field(self._symbols.slot(HIDDEN, DIGEST))
            is_wanted = ir.Compare(ir.Relation.EQ, wanted, ir.Const(wanted.width, number + 1))
            made = builder.add(learned.name, [ir.Learn(number, values)], ir.Jump(last))
            following = builder.add("digest", [], ir.Branch(is_wanted, made, following))
        return following

    def _keep(self, builder: GraphBuilder, after: int) -> int:
        """Make the blocks that keep fields of headers for a clone, and return the first."""
        symbols = self._symbols
        if not symbols.restored:
            return after
        names, restores = symbols.intrinsics, symbols.scratch(RESTORES, 16)
        following = builder.add("kept nothing", [ir.Assign(restores, ir.Const(16, 0))], ir.Jump(after))
        clone, asked = symbols.field(names.clone), symbols.field(names.clone_list)
        clones = ir.Compare(ir.Relation.NE, clone, ir.Const(clone.width, 0))
        for number, kept in symbols.restored.items():
            steps: list[ir.Statement] = [ir.Assign(hidden, symbols.field(slot)) for slot, hidden in kept]
            steps.append(ir.Assign(restores, ir.Const(16, number)))
            is_list = ir.Compare(ir.Relation.EQ, asked, ir.Const(asked.width, number))
            keeps = builder.add("kept", steps, ir.Jump(after))
            following = builder.add("keeps", [], ir.Branch(ir.Binary(1, Op.AND, clones, is_list), keeps, following))
        return following

    def _restore(self, builder: GraphBuilder, after: int) -> int:
        """Make the blocks that give a clone the fields of headers which its list keeps, and return the first.

        The packet itself passes here, too, and gets what it has.
        """
        symbols, following = self._symbols, after
        for number, kept in symbols.restored.items():
            restores = symbols.field(symbols.scratch(RESTORES, 16))
            steps: list[ir.Statement] = [ir.Assign(slot, symbols.field(hidden)) for slot, hidden in kept]
            steps.append(ir.Assign(restores.slot, ir.Const(16, 0)))
            restored = builder.add("restored", steps, ir.Jump(after))
            is_list = ir.Compare(ir.Relation.EQ, restores, ir.Const(16, number))
            following = builder.add("restores", [], ir.Branch(is_list, restored, following))
        return following

    def _table(
        self,
        builder: GraphBuilder,
        table: model.Table,
        after: dict[int, int],
        by_hit: tuple[int, ...] | None,
        end: int,
    ) -> ir.Terminator:
        self._refuse_features(table)
        default = self._default(table)
        if not table.keys and table.default.const and not table.counters:
            self.fixed_tables.append(self._info(table, default))
            constants = [
                ir.Const(width, value)
                for (_, width), value in zip(default.params, table.default.arguments, strict=True)
            ]
            following = by_hit[1] if by_hit else after[default.id]
            return ir.Jump(ActionLowering(builder, self._symbols, default, constants, following, end).entry())
        # Bodies of actions are made for hit and for miss only if the program distinguishes the two.
        number = len(self.tables)
        self.tables.append(self._info(table, default))
        blocks: list[tuple[int, ...]] = []
        for hit in (True, False):
            if not hit and by_hit is None:
                blocks.append(blocks[0])
                break
            made = []
            for index, action_id in enumerate(table.action_ids):
                action = self._actions[action_id]
                params = [ir.Param(width, number, index, which) for which, (_, width) in enumerate(action.params)]
                following = by_hit[not hit] if by_hit else after[action_id]
                made.append(ActionLowering(builder, self._symbols, action, params, following, end).entry())
            blocks.append(tuple(made))
        return ir.Apply(number, blocks[0], blocks[1])

    def _default(self, table: model.Table) -> model.Action:
        """Return the action that the program names as default."""
        action = self._actions.get(table.default.action_id)
        if action is None or action.id not in table.action_ids:
            raise refusal(
                f"not a BMv2 program: the default action of table {table.name} is not one of its actions", table.source
            )
        if len(action.params) != len(table.default.arguments):
            raise refusal(f"not a BMv2 program: the default action of table {table.name} lacks arguments", table.source)
        for value, (name, width) in zip(table.default.arguments, action.params, strict=True):
            if not 0 <= value < 1 << width:
                raise refusal(
                    f"not a BMv2 program: default argument {name} of table {table.name} is too large", table.source
                )
        return action

    def _refuse_features(self, table: model.Table) -> None:
        kinds = ("simple",) if table.profile is None else ("indirect", "indirect_ws")
        if table.kind not in kinds or (table.profile is not None and table.profile not in self._profiles):
            raise refusal(f"the implementation of table {table.name} ({table.kind}) is not supported", table.source)
        self._direct_meter(table)

    def _info(self, table: model.Table, default: model.Action) -> ir.TableInfo:
        symbols = self._symbols
        keys, specs = [], []
        for key in table.keys:
            if key.kind not in _KINDS:
                raise refusal(f"match kind {key.kind} of table {table.name} is not supported", table.source)
            value = _key(symbols, key)
            keys.append(value)
            if key.mask is not None and key.mask >> value.width:
                what = f"the mask of key {key.name} of table {table.name} has more than its {value.width} bits"
                raise refusal(f"not a BMv2 program: {what}", table.source)
            specs.append(KeySpec(name=key.name, width=value.width, kind=_KINDS[key.kind], mask=key.mask))
        meter = self._direct_meter(table)
        spec = TableSpec(
            name=table.name,
            keys=tuple(specs),
            actions=tuple(_action_spec(self._actions[number]) for number in table.action_ids),
            size=table.size,
            const_entries=table.const_entries,
            const_default=table.default.const,
            has_counters=table.counters,
            meter=meter_unit(meter) if meter else None,
            profile=table.profile,
            ages=table.timeout,
        )
        # BMv2's smallest priority wins, P4Runtime's largest: `lowest` becomes 1.
        lowest = max((entry.priority for entry in table.entries), default=0)
        entries = tuple(self._entry(spec, entry, lowest) for entry in table.entries)
        return ir.TableInfo(
            spec=spec,
            keys=tuple(keys),
            default=(default.name, table.default.arguments),
            entries=entries,
            selector=self._selector(table),
            turn=self._turn(table),
            colour=symbols.slot(meter.target.header, meter.target.field) if meter and meter.target else None,
        )

    def _selector(self, table: model.Table) -> ir.Hash | None:
        """Return the hash that chooses between the members of a group."""
        selector = self._profiles[table.profile].selector if table.profile is not None else None
        if selector is None:
            return None
        if selector.algorithm == ROUND_ROBIN:
            return ir.Hash(TURN_BITS, ROUND_ROBIN, ())
        return hash_over(Scope(self._symbols, (), table.source), selector)

    def _turn(self, table: model.Table) -> int | None:
        """Return the register that counts the choices of a selector that takes one member after the other."""
        selector = self._profiles[table.profile].selector if table.profile is not None else None
        takes_turns = selector is not None and selector.algorithm == ROUND_ROBIN
        return self._symbols.turn(f"{table.profile}") if takes_turns else None

    def _direct_meter(self, table: model.Table) -> model.Array | None:
        if table.meter is None:
            return None
        meter = self._symbols.direct_meters.get(table.meter)
        if meter is None or not meter.unit or meter.target is None:
            raise refusal(f"not a BMv2 program: table {table.name} has no proper direct meter", table.source)
        slot = self._symbols.slot(meter.target.header, meter.target.field)
        bits = self._symbols.fields[slot].width if self._symbols.has_bits(slot) else 0
        if not 0 < bits <= MAX_COLOUR_BITS:
            raise refusal(f"a colour of {bits} bits (table {table.name}) is not supported", table.source)
        return meter

    def _entry(self, spec: TableSpec, entry: model.TableEntry, lowest: int) -> Entry:
        """Turn a declared entry around to P4Runtime's priorities, where the larger wins and 0 is none."""
        action = self._actions.get(entry.action_id)
        if action is None or len(entry.match) != len(spec.keys):
            raise refusal(f"not a BMv2 program: an entry of table {spec.name} does not fit its keys", None)
        for field, key in zip(entry.match, spec.keys, strict=True):
            if not _fits(field, key):
                what = f"an entry of table {spec.name} has a value or mask that does not fit key {key.name}"
                raise refusal(f"not a BMv2 program: {what}", None)
        matches = tuple(_match(field, key.width) for field, key in zip(entry.match, spec.keys, strict=True))
        return Entry(
            match=matches,
            priority=lowest + 1 - entry.priority if spec.prioritised else 0,
            action=action.name,
            params=entry.arguments,
            is_const=True,
        )


def _action_spec(action: model.Action) -> ActionSpec:
    params = tuple(ParamSpec(name=name, width=width) for name, width in action.params)
    return ActionSpec(name=action.name, params=params)


def _key(symbols: Symbols, key: model.TableKey) -> ir.Expr:
    value: ir.Expr
    if key.operand.field == "$valid$":
        value = symbols.validity(key.operand.header)
    else:
        value = symbols.field(symbols.slot(key.operand.header, key.operand.field))
        valid = symbols.validity(key.operand.header)
        if not isinstance(valid, ir.Const):
            # In BMv2, too, a key of a header that is not valid is 0, whatever its field was before.
            value = ir.Select(value.width, valid, value, ir.Const(value.width, 0))
    if key.mask is None:
        return value
    return ir.Binary(value.width, Op.AND, value, ir.Const(value.width, key.mask & ((1 << value.width) - 1)))


def _fits(field: tuple[str, int, int], key: KeySpec) -> bool:
    """Return whether an entry's match is of the kind and the width of its key."""
    kind, first, second = field
    most = key.width if kind == "lpm" else (1 << key.width) - 1
    return _KINDS.get(kind) is key.kind and 0 <= first < 1 << key.width and 0 <= second <= most


def _match(field: tuple[str, int, int], width: int) -> Match:
    kind, first, second = field
    if kind == "exact":
        return Exact(first)
    if kind == "lpm":
        return Lpm(first & ~((1 << (width - second)) - 1), second)
    if kind == "ternary":
        return Ternary(first & second, second)
    return Range(first, second)
