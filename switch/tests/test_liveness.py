"""Ports that go down: replicas of groups and clone sessions go to their backups, and come back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from support.timing import eventually, patience
from switchsum_switch import Switch
from switchsum_switch.execution.pipeline import EngineName
from switchsum_switch.messages.p4runtime import Code, v1
from switchsum_switch.ports.base import PortTable
from switchsum_switch.ports.packet import PacketPorts
from switchsum_switch.state.liveness import Liveness
from switchsum_switch.state.state import CloneSession, Replica

from .conftest import PROGRAMS
from .p4runtime_rig import Client, config
from .test_daemon import MemorySwitch, frame, made_config, station

GROUP = 6
BACKED_UP = Replica(1, 11, (Replica(2, 12), Replica(3, 13)))
PLAIN = Replica(4, 14)


@pytest.fixture(params=["interpreter", "native"])
def engine(request: pytest.FixtureRequest) -> EngineName:
    name: EngineName = request.param
    return name


def copies(switch: Switch) -> list[tuple[int, int]]:
    """Return port and instance of each copy of a frame to the group; the program writes both into it."""
    return [(port, int.from_bytes(made[4:6], "big")) for port, made in switch.process(9, bytes([1, GROUP]))]


def test_a_replica_goes_to_its_first_backup_that_is_up(engine: EngineName) -> None:
    switch = Switch.from_file(PROGRAMS / "replication.json", engine=engine)
    switch.multicast.set(GROUP, [BACKED_UP, PLAIN])
    assert copies(switch) == [(1, 11), (4, 14)]
    switch.set_port(1, up=False)
    assert copies(switch) == [(2, 12), (4, 14)]
    switch.set_port(2, up=False)
    assert copies(switch) == [(3, 13), (4, 14)]
    switch.set_port(3, up=False)
    switch.set_port(4, up=False)
    assert copies(switch) == [(1, 11), (4, 14)]  # no backup is up, or there is none
    switch.set_port(2, up=True)
    assert copies(switch) == [(2, 12), (4, 14)]
    kept = switch.snapshot()
    switch.multicast.set(GROUP, [(5, 1)])
    switch.set_port(1, up=True)
    switch.set_port(2, up=False)
    switch.restore(kept)
    assert switch.multicast.get(GROUP) == (BACKED_UP, PLAIN)
    assert copies(switch) == [(2, 12), (4, 14)]
    with pytest.raises(ValueError, match="no port 512"):
        switch.set_port(512, up=True)


def test_clones_have_backups_too(engine: EngineName) -> None:
    switch = Switch.from_file(PROGRAMS / "replication.json", engine=engine)
    clones = switch.clones
    clones.set(5, [BACKED_UP], length_limit=9)
    switch.set_port(1, up=False)
    assert clones.copies(5) == CloneSession(replicas=(Replica(2, 12),), length_limit=9)
    assert clones.directory[5].tolist()[1:] == [1, 9]
    switch.set_port(1, up=True)
    assert clones.copies(5) == CloneSession(replicas=(BACKED_UP,), length_limit=9)
    assert clones.copies(6) == CloneSession(replicas=())


def test_programs_that_are_gone_are_not_told() -> None:
    reported = []

    class Follower:
        def ports_changed(self) -> None:
            reported.append(self)

    ports, follower = Liveness(), Follower()
    ports.follow(follower)
    ports.set(1, up=True)  # it was
    assert reported == []
    ports.set(1, up=False)
    assert reported == [follower]
    reported.clear()
    del follower
    ports.set(1, up=True)
    assert reported == []


@pytest.fixture
def running() -> Iterator[MemorySwitch]:
    with MemorySwitch(made_config()) as switch:
        yield switch


def test_a_port_that_is_not_open_is_down(running: MemorySwitch) -> None:
    """A client writes a group of which one replica's port has no worker yet; read back, it is as it was written."""
    client = Client(running.address, election_id=1)
    assert client.arbitrate() == (1, Code.OK)
    client.set_config(config=config())
    client.insert(table_entry=station(2, "multicast", b"\x05"))
    replicas = [{"port": b"\x07", "instance": 1, "backup_replicas": [{"port": b"\x02", "instance": 2}]}]
    group = {"multicast_group_entry": {"multicast_group_id": 5, "replicas": replicas}}
    client.insert(packet_replication_engine_entry=group)
    running.receive(1, frame(2))
    assert running.sent(1) == [(2, frame(2))]
    (entity,) = client.read(v1.Entity(packet_replication_engine_entry=group))
    assert entity == v1.Entity(packet_replication_engine_entry=group)
    client.close()


@pytest.mark.root
@pytest.mark.usefixtures("network_namespace")
def test_an_interface_is_down_as_long_as_its_link_is() -> None:
    """port 1 === far: the far end goes down and comes back."""

    def run(command: str) -> None:
        subprocess.run(command.split(), check=True)

    run("ip link add near type veth peer name far")
    run("ip link set near up")
    table = PortTable()
    ports = PacketPorts(table, {1: "near"})

    def becomes(up: bool) -> bool:
        def looked() -> bool:
            ports.service()
            return table.status.is_up(1) is up

        return eventually(looked, patience(10))

    assert becomes(False)
    run("ip link set far up")
    assert becomes(True)
    run("ip link set near down")
    assert becomes(False)
    run("ip link del near")
    assert becomes(False)
    ports.close()
