"""Several machines, as far as namespaces are, on which the commands of docs/pytorch.md are typed as they stand.

`unshare --net python machines.py COUNT SCRIPT ARGUMENTS...` as root.  Each machine has a network and a host name of its
own, and an /etc/hosts as Debian's installer writes it: the machine's own name is 127.0.1.1 there.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from switchsum.launch import wires
from switchsum.launch.link_options import MTU
from switchsum_switch.process.children import Child, Children
from switchsum_switch.wires.headers import format_ip

PAGE = Path(__file__).parents[3] / "docs" / "pytorch.md"
SLOWNESS = float(os.environ["SWITCHSUM_TEST_SLOWNESS"])


def commands() -> list[str]:
    """Return the page's commands: on every machine without a controller, on HOST, on every machine with that one."""
    text = PAGE.read_text()
    return [
        re.search(rf"```sh\n# {where}[^\n]*\n(.*?)```", text, re.DOTALL)[1]  # type: ignore[index]
        for where in ("on every machine;", "on HOST", "on every machine, HOST included")
    ]


class Machine:
    """A network namespace with a name of its own."""

    def __init__(self, wire: wires.Wire, scratch: Path) -> None:
        self.wire = wire
        self.address = format_ip(wire.address.ip)
        self._name = f"node{wire.rank}"
        self._hosts = scratch / f"hosts{wire.rank}"
        self._hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {self._name}.example {self._name}\n")

    def shell(self, script: str, host: str) -> list[str]:
        """Return the command that types lines of the page into a shell of this machine."""
        script = script.replace("HOST", host).replace("NODE", str(self.wire.rank))
        enter = f'hostname {self._name} && mount --bind {self._hosts} /etc/hosts && exec bash -c "$0"'
        return self.wire.inside(["unshare", "--uts", "--mount", "sh", "-c", enter, f"set -e\n{script}\nwait\n"])


def environment() -> dict[str, str]:
    """Return a user's, whose PATH leads to this environment's commands."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }


def train(machines: list[Machine], script: str) -> list[tuple[int, str]]:
    """Type the same lines on all machines; return exit codes and output."""
    shells = [
        subprocess.Popen(
            machine.shell(script, machines[0].address),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for machine in machines
    ]
    outputs = [shell.communicate(timeout=150 * SLOWNESS)[0] for shell in shells]
    return [(shell.returncode, output) for shell, output in zip(shells, outputs, strict=True)]


def list_jobs(machine: Machine, host: str) -> subprocess.CompletedProcess[str]:
    """Ask the controller on HOST for its jobs, from a machine."""
    line = machine.shell("switchsum job list --controller HOST:9560", host)
    return subprocess.run(line, env=environment(), capture_output=True, text=True, check=False)


def await_controller(machine: Machine, host: str, services: Child) -> None:
    """Wait until the controller on HOST answers."""
    deadline = time.monotonic() + 60 * SLOWNESS
    while list_jobs(machine, host).returncode != 0:
        assert services.process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)


def main(count: int, command: list[str]) -> None:
    """Train with switches that the ranks start, and then with one that is there."""
    words = shlex.join(command)
    alone, on_host, everywhere = (
        lines.replace("train.py", words).replace("--nnodes 2", f"--nnodes {count}") for lines in commands()
    )
    if count > 2:
        everywhere = everywhere.replace("--nproc-per-node 2", "--nproc-per-node 1")
        alone = alone.replace("--nproc-per-node 2", "--nproc-per-node 1")
    wires.run(["ip", "link", "add", "bridge0", "type", "bridge"])
    wires.run(["ip", "link", "set", "bridge0", "up"])
    with Children() as children, tempfile.TemporaryDirectory() as scratch:
        machines = []
        for rank in range(count):
            wire = wires.lay(children, rank, mtu=MTU, rate=None)
            wires.run(["ip", "link", "set", wire.interface, "master", "bridge0"])
            machines.append(Machine(wire, Path(scratch)))
        for code, output in train(machines, alone):
            assert code == 0, output
        print("trained without a controller", flush=True)
        host = machines[0].address
        services = children.start("HOST", machines[0].shell(on_host, host), environment=environment(), prefix=True)
        await_controller(machines[-1], host, services)
        for code, output in train(machines, everywhere):
            assert code == 0, output
        no_end = shlex.quote(str(Path(__file__).parent / "no_end.py"))
        for code, output in train(machines, everywhere.replace(words, no_end)):
            assert code == 0, output
        print(f"trained on {count} machines", flush=True)
        left = list_jobs(machines[-1], host)
        assert "torch-" not in left.stdout, left.stdout


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
