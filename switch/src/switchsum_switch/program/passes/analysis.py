"""Analyses of programs: what statements read and write, and which fields are live.

A field is *live* at a place if a later statement may read the value that it has there.  Liveness runs backwards: before
a statement, a field is live if the statement reads it, or if it is live after the statement and not written by it.
Over branches the sets are united, and over the loops of a parser this is repeated until nothing changes.  Native code
does not compute a wide field that is not live.

A statement that ends the parser early is a way to the end of the graph, so that everything which is live after the
graph is live before it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...state.state import WIDE_BITS
from .. import ir
from ..graph import targets

GRAPHS = ("parser", "verify", "ingress", "egress", "update")
"""A program's graphs in the order in which they run."""


def is_wide(program: ir.Program, slot: int) -> bool:
    """Return whether a field is kept in memory in network byte order, and not as a machine integer."""
    field = program.fields[slot]
    # A field of variable length is kept apart from the header's other bytes, wherever it begins.
    aligned = program.headers[field.header].metadata or field.offset % 8 == 0 or field.length is not None
    return field.width >= WIDE_BITS and field.width % 8 == 0 and aligned


def children(value: ir.Expr) -> tuple[ir.Expr, ...]:
    """Return the expressions that a value is made of."""
    match value:
        case ir.Binary(_, _, left, right) | ir.Compare(_, left, right) | ir.AddLanes(_, _, left, right):
            return left, right
        case ir.Select(_, condition, then, other):
            return condition, then, other
        case ir.Resize(_, inner) | ir.Repeat(_, inner):
            return (inner,)
        case ir.Hash(_, _, inputs):
            return tuple(value for part in inputs for value in (part.value, part.bits) if value is not None)
    return ()


def fields_of(value: ir.Expr) -> Iterator[int]:
    """Yield the slots that an expression reads."""
    if isinstance(value, ir.Field):
        yield value.slot
    for child in children(value):
        yield from fields_of(child)


def values_of(statement: ir.Statement) -> tuple[ir.Expr, ...]:
    """Return the expressions that a statement computes."""
    match statement:
        case ir.Assign(_, value):
            return (value,)
        case ir.Extract(_, bits) if bits is not None:
            return (bits,)
        case ir.Require(value) | ir.Advance(value) | ir.ReadRegister(_, _, value) | ir.Count(_, value):
            return (value,)
        case ir.ExecuteMeter(_, _, index):
            return (index,)
        case ir.WriteRegister(_, index, value):
            return index, value
        case ir.Random(_, low, high):
            return low, high
        case ir.Learn(_, values) | ir.Say(_, values):
            return values
        case ir.Claim(_, condition):
            return (condition,)
    return ()


def reads(program: ir.Program, statement: ir.Statement) -> set[int]:
    """Return the slots that a statement may read; one that it writes in some cases only counts as read.

    For in the other cases the old value remains, and must have been computed.
    """
    found = {slot for value in values_of(statement) for slot in fields_of(value)}
    match statement:
        case ir.CopyHeader(target, source):
            found.update(program.headers[target].slots, program.headers[source].slots)
        case ir.SetValid(header):
            found.update(program.headers[header].slots)
        case ir.Random(slot) | ir.ExecuteMeter(slot):
            found.add(slot)
    return found


def written(program: ir.Program, statement: ir.Statement) -> set[int]:
    """Return the slots that a statement writes."""
    match statement:
        case ir.Assign(slot) | ir.ReadRegister(slot) | ir.Random(slot) | ir.ExecuteMeter(slot):
            return {slot}
        case ir.CopyHeader(header) | ir.SetValid(header) | ir.Extract(header):
            return set(program.headers[header].slots)
    return set()


def assigned(program: ir.Program) -> set[int]:
    """Return all slots that the program itself writes."""
    blocks = [block for name in GRAPHS for block in getattr(program, name)]
    colours = {info.colour for info in program.tables if info.colour is not None}
    return colours.union(*(written(program, statement) for block in blocks for statement in block.statements))


def multiplies(program: ir.Program) -> bool:
    """Return whether a frame may become more frames than `ProgramState.copies` says."""
    names = program.intrinsics
    return bool(assigned(program) & {names.clone, names.recirculate})


def end_reads(program: ir.Program, end: ir.Terminator) -> set[int]:
    """Return the slots that a terminator reads or may write (the colour of a direct meter)."""
    match end:
        case ir.Branch(condition):
            return set(fields_of(condition))
        case ir.Apply(table):
            info = program.tables[table]
            read = {slot for key in info.keys for slot in fields_of(key)}
            if info.selector is not None:
                read.update(fields_of(info.selector))
            return read if info.colour is None else read | {info.colour}
    return set()


def used_by(program: ir.Program, graph: ir.Graph) -> set[int]:
    """Return all slots that a graph reads or writes."""
    used: set[int] = set()
    for block in graph:
        for statement in block.statements:
            used |= reads(program, statement) | written(program, statement)
        used |= end_reads(program, block.end)
    return used


def sees_waiting(program: ir.Program) -> bool:
    """Return whether it matters to a program that packets wait between ingress and egress.

    It does if the program reads its queue's depth or a time that differs before and after, if it, or the session of a
    clone, chooses among several queues, or if a meter runs in egress.
    """
    names = program.intrinsics
    queue_fields = {names.enq_qdepth, names.deq_qdepth, names.deq_timedelta, names.qid}
    queue_fields |= {names.enqueue_timestamp, names.egress_timestamp}
    if any(queue_fields & used_by(program, getattr(program, graph)) for graph in GRAPHS):
        return True
    if program.queues > 1 and {names.priority, names.clone} & assigned(program):
        return True
    statements = [statement for block in program.egress for statement in block.statements]
    ends = [block.end for block in program.egress]
    direct = any(isinstance(end, ir.Apply) and program.tables[end.table].colour is not None for end in ends)
    return direct or any(isinstance(statement, ir.ExecuteMeter) for statement in statements)


def live_out(program: ir.Program, graph: ir.Graph, at_end: set[int]) -> list[set[int]]:
    """Return for each block the wide slots that are live at its end; `at_end`: slots that are live after the graph."""
    wide = {slot for slot in range(len(program.fields)) if is_wide(program, slot)}
    # The usual fixed point: from the end of the graph to its start, again and again until no set grows.
    live: list[set[int]] = [set() for _ in graph]
    entering: list[set[int]] = [set() for _ in graph]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(graph))):
            block = graph[number]
            following = targets(block.end)
            live[number] = set().union(*(entering[target] for target in following)) if following else at_end & wide
            before = live_before(program, block, live[number], at_end & wide)[0] & wide
            if before != entering[number]:
                entering[number] = before
                changed = True
    return live


def live_before(program: ir.Program, block: ir.Block, out: set[int], at_end: set[int]) -> list[set[int]]:
    """Return the live slots before each statement of a block and, last, before its terminator."""
    current = out | end_reads(program, block.end)
    result = [current]
    for statement in reversed(block.statements):
        current = (current - written(program, statement)) | reads(program, statement)
        if isinstance(statement, ir.Extract | ir.Require):  # may end the graph
            current = current | at_end
        result.append(current)
    return result[::-1]


def live_after_graph(program: ir.Program, name: str) -> set[int]:
    """Return the slots that are live after a graph.

    These are the fields of all headers, metadata that later graphs read, and the fields of field lists: clones and
    packets that enter ingress again may read them in their next life, in any graph.
    """
    later = GRAPHS[GRAPHS.index(name) + 1 :]
    live = {slot for header in program.headers if not header.metadata for slot in header.slots}
    live.update(*program.field_lists)
    for other in later:
        for block in getattr(program, other):
            for statement in block.statements:
                live |= reads(program, statement)
            live |= end_reads(program, block.end)
    return live


def written_registers(blocks: Iterable[ir.Block]) -> set[int]:
    """Return the registers that some blocks write."""
    return {
        statement.register
        for block in blocks
        for statement in block.statements
        if isinstance(statement, ir.WriteRegister)
    }


def written_after_graph(program: ir.Program, name: str) -> set[int]:
    """Return the registers that may be written between the end of a graph and the last use of a packet's fields.

    A wide field may be a pointer to a register's cell, so that its value lasts only until the register is written.  A
    clone has fields of its packet, and goes through graphs that the packet has left behind: all graphs count then.
    """
    clones = program.intrinsics.clone in assigned(program)
    later = GRAPHS if clones else GRAPHS[GRAPHS.index(name) + 1 :]
    return written_registers(block for other in later for block in getattr(program, other))


def registers_written_after(graph: ir.Graph, later: set[int]) -> list[set[int]]:
    """Return for each block the registers that may be written after it; `later`: after the graph."""
    after: list[set[int]] = [set() for _ in graph]
    during = [written_registers([block]) for block in graph]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(graph))):
            following = targets(graph[number].end)
            found = set().union(*(after[target] | during[target] for target in following)) if following else later
            if found != after[number]:
                after[number] = set(found)
                changed = True
    return after
