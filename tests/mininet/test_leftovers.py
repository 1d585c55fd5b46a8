"""What a crashed Mininet leaves, on a machine that is made of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchsum.topologies import Leftovers, find_leftovers

HERE, ELSEWHERE = "net:[1]", "net:[2]"


class Machine:
    def __init__(self, folder: Path) -> None:
        self.proc, self.net = folder / "proc", folder / "net"
        self.net.mkdir()
        (self.proc / "self/ns").mkdir(parents=True)
        (self.proc / "self/ns/net").symlink_to(HERE)
        self.process(1, 0, "systemd", "/sbin/init")

    def interface(self, name: str, index: int, peer: int, kind: str = "") -> None:
        (self.net / name).mkdir()
        (self.net / name / "uevent").write_text(f"{kind}INTERFACE={name}\nIFINDEX={index}\n")
        (self.net / name / "ifindex").write_text(f"{index}\n")
        (self.net / name / "iflink").write_text(f"{peer}\n")

    def process(
        self, number: int, parent: int, name: str, *arguments: str, namespace: str = HERE, interfaces: str = "lo"
    ) -> None:
        folder = self.proc / str(number)
        (folder / "ns").mkdir(parents=True)
        (folder / "net").mkdir()
        (folder / "stat").write_text(f"{number} ({name}) S {parent} 0 0 0")
        (folder / "cmdline").write_text("".join(f"{argument}\0" for argument in arguments))
        (folder / "ns/net").symlink_to(namespace)
        lines = "".join(f"{interface:>8}: 0 0\n" for interface in interfaces.split())
        (folder / "net/dev").write_text(f"Inter-|\n face |\n{lines}")

    def shell(self, number: int, parent: int, node: str, namespace: str = HERE, interfaces: str = "lo") -> None:
        arguments = ("bash", "--norc", "-is", f"mininet:{node}")
        self.process(number, parent, "bash", *arguments, namespace=namespace, interfaces=interfaces)

    def find(self, besides: int = 0) -> Leftovers:
        return find_leftovers(besides, self.proc, self.net)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_nothing_is_left_of_nothing(machine: Machine) -> None:
    machine.interface("eth0", 2, 2)
    machine.interface("br-eth0", 3, 3, "DEVTYPE=bridge\n")
    machine.interface("lab-eth1", 4, 2, "DEVTYPE=vlan\n")
    machine.interface("usb-eth1", 5, 5)
    assert not machine.find()


def test_a_running_mininet_is_none(machine: Machine) -> None:
    machine.interface("s1-eth1", 5, 4)
    machine.shell(10, 9, "s1")
    machine.shell(11, 9, "h1", ELSEWHERE, "lo h1-eth0")
    machine.process(12, 11, "ping", "ping", "h2", namespace=ELSEWHERE, interfaces="lo h1-eth0")
    assert not machine.find()


def test_links_between_switches_are_named_by_one_end(machine: Machine) -> None:
    machine.interface("s1-eth2", 5, 6)
    machine.interface("s2-eth2", 6, 5)
    machine.interface("s2-eth1", 7, 2)
    left = machine.find()
    assert left.interfaces == ("s1-eth2", "s2-eth1")
    assert left.remedy == "sudo ip link delete s1-eth2; sudo ip link delete s2-eth1"
    assert str(left) == "s1-eth2, s2-eth1"


def test_what_it_had_started_on_hosts_is_named_by_number(machine: Machine) -> None:
    machine.process(20, 1, "python", "python", "train.py", namespace=ELSEWHERE, interfaces="lo h1-eth0")
    machine.process(21, 20, "a) (name", "sleep", "9", namespace=ELSEWHERE, interfaces="lo h1-eth0")
    left = machine.find()
    assert left.processes == (20, 21)
    assert left.remedy == "sudo kill -9 20 21"


def test_other_peoples_namespaces_are_left_alone(machine: Machine) -> None:
    machine.process(20, 1, "nginx", "nginx", namespace=ELSEWHERE, interfaces="lo eth0")  # a container
    machine.process(30, 29, "pytest", "pytest", namespace="net:[3]", interfaces="lo s1-eth1")  # somebody waits for it
    machine.process(29, 1, "bash", "bash")
    assert not machine.find()


def test_ones_own_nodes_do_not_hide_an_earlier_ones(machine: Machine) -> None:
    machine.interface("s1-eth1", 5, 4)
    machine.shell(10, 9, "s1")
    assert machine.find(besides=9).interfaces == ("s1-eth1",)


def test_processes_that_one_may_not_look_at_are_passed_over(machine: Machine) -> None:
    machine.process(20, 1, "python", "python", namespace=ELSEWHERE, interfaces="h1-eth0")
    (machine.proc / "20/ns/net").unlink()
    assert not machine.find()
