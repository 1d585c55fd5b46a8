"""A leaf, an inner switch or a root of a tree, beside what `switchsum_protocol.tree_rules` says of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from support.beside import Beside
from switchsum.testing.rig import Engine
from switchsum_protocol.frame import (
    Flag,
    Header,
    Kind,
)
from switchsum_protocol.slot_rules import Replies
from switchsum_protocol.tree_rules import TreeMember, TreeSwitch, Upstream
from switchsum_protocol.wire import build_frame
from switchsum_switch.wires.headers import Address

JOB, EPOCH, GROUP = 7, 3, 1
UP = 9
"""Port of a switch that leads to the one above."""
FIRST, ABOVE, COUNT = 16, 40, 2
"""The job's first slot here and at the switch above, and how many it has."""
LANES = 128


def switch_address(number: int) -> Address:
    return Address(mac=0x02_00_00_00_01_00 + number, ip=0x0A_00_01_00 + number, port=21333)


def member_address(rank: int) -> Address:
    if rank >= 100:
        return switch_address(rank)
    return Address(mac=0x02_00_00_00_02_00 + rank, ip=0x0A_00_02_00 + rank, port=5000 + rank)


def program(
    engine: Engine, own: Address, members: Sequence[TreeMember], upstream: Upstream | None, growth: int = 65535
) -> Engine:
    """Write the entries that a controller would write."""
    engine.set_default("SwitchIngress.identity", "SwitchIngress.identify", (own.mac, own.ip, own.port, growth))
    engine.set_group(GROUP, [(one.port, one.rank) for one in members])
    for one in members:
        place = one.address
        where = (place.mac, place.ip, place.port, one.cookie)
        engine.insert("SwitchEgress.result_address", (JOB, one.rank), "SwitchEgress.address", where)
        given = (one.bit, one.everybody, one.first_slot, one.slot_count, GROUP, one.cookie)
        below = (int(upstream is not None),)
        engine.insert(
            "SwitchIngress.validate.admission.admission",
            (JOB, one.tree, one.rank, EPOCH, place.ip, place.port, one.port),
            f"SwitchIngress.validate.admission.admit{'_switch' * one.is_switch}",
            given + below * one.is_switch,
        )
    if upstream is not None:
        key, up, place = (JOB, upstream.tree, EPOCH), upstream, upstream.address
        shift = (up.first_slot_above - up.first_slot) % 2**32
        who = (up.rank, up.cookie)
        slot = "SwitchIngress.dispatch.cells.slot"
        there = (up.port, place.mac, place.ip, place.port, *who, shift, int(up.padding > 0))
        engine.insert(f"{slot}.uplink", key, f"{slot}.pass_up", there)
        above = (place.ip, place.port, up.port, *who, up.first_slot_above, up.slot_count, up.first_slot, up.everybody)
        control = "SwitchIngress.validate.above"
        engine.insert(f"{control}.above", key, f"{control}.take", (*above, GROUP))
    return engine


class Pair(Beside):
    """A leaf, inner switch or root with its members."""

    def __init__(
        self, engine: Engine, *, members: int, is_inner: bool = False, is_root: bool = False, padding: int = 0
    ) -> None:
        first = 100 if is_inner or is_root else 0
        self.own = switch_address(1)
        self.members = [
            TreeMember(
                job=JOB,
                rank=first + place,
                epoch=EPOCH,
                cookie=900 + first + place,
                address=member_address(first + place),
                port=place + 1,
                workers=members,
                place=place,
                is_switch=bool(first),
                first_slot=FIRST,
                slot_count=COUNT,
            )
            for place in range(members)
        ]
        self.above = Upstream(
            job=JOB,
            epoch=EPOCH,
            rank=200,
            cookie=1100,
            address=switch_address(200),
            port=UP,
            members=members,
            first_slot=FIRST,
            first_slot_above=ABOVE,
            slot_count=COUNT,
            padding=padding,
        )
        upstream = None if is_root else self.above
        definition = TreeSwitch(lanes_per_frame=LANES, address=self.own)
        for one in self.members:
            definition.admit(one)
        if upstream is not None:
            definition.attach(upstream)
        super().__init__(program(engine, self.own, self.members, upstream), definition)

    def contribute(self, place: int, value: int = 1, /, **fields: int) -> Replies:
        one = self.members[place]
        values = {"rank": one.rank, "cookie": one.cookie, "slot": FIRST, "number": 1, "flags": Flag.PAYLOAD} | fields
        header = Header(kind=Kind.CONTRIBUTION, job=JOB, epoch=EPOCH, **values)
        lanes = np.full(LANES, value, ">i4").tobytes() if header.flags & Flag.PAYLOAD else b""
        return self.process(one.port, build_frame(one.address, self.own, header, lanes))

    def tell(self, value: int = 1, /, *, port: int = UP, source: Address | None = None, **fields: int) -> Replies:
        """Let the switch above say something."""
        values = {"kind": Kind.RESULT, "rank": 200, "cookie": 1100, "slot": ABOVE, "number": 1, "flags": Flag.PAYLOAD}
        header = Header(**({"job": JOB, "epoch": EPOCH} | values | fields))
        lanes = np.full(LANES, value, ">i4").tobytes() if header.flags & Flag.PAYLOAD else b""
        return self.process(port, build_frame(source or self.above.address, self.own, header, lanes))
