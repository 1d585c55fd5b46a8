"""A batch script of the examples as it stands, on several machines as far as namespaces are, with an `srun` of ours.

`unshare --net python slurm.py COUNT SCRIPT [ARGUMENT...]` as root, in the clone.  What Slurm does is what its
documentation says: the script runs on the first machine of the allocation, `srun` runs its command once for each task
and tells each its number.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from switchsum.launch import wires
from switchsum.launch.link_options import MTU
from switchsum_switch.process.children import Children
from switchsum_switch.wires.headers import format_ip

EXAMPLES = Path(__file__).parents[3] / "examples"


def machine(wire: wires.Wire, laid: list[wires.Wire], scratch: Path) -> list[str]:
    """Return what runs a command on a machine, whose own name leads to itself alone, as on Debian."""
    names = [f"{'127.0.1.1' if other is wire else format_ip(other.address.ip)} node{other.rank}" for other in laid]
    hosts = scratch / f"hosts{wire.rank}"
    hosts.write_text("127.0.0.1 localhost\n" + "\n".join(names) + "\n")
    enter = f'hostname node{wire.rank} && mount --bind {hosts} /etc/hosts && exec "$@"'
    return wire.inside(["unshare", "--uts", "--mount", "sh", "-c", enter, "sh"])


def write(path: Path, lines: list[str]) -> None:
    """Write a program of the shell's."""
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)


def main(count: int, script: str, arguments: list[str]) -> int:
    """Run a script as a batch job; return its exit code."""
    wires.run(["ip", "link", "add", "bridge0", "type", "bridge"])
    wires.run(["ip", "link", "set", "bridge0", "up"])
    with Children() as children, tempfile.TemporaryDirectory() as folder:
        scratch, laid = Path(folder), []
        for rank in range(count):
            laid.append(wires.lay(children, rank, mtu=MTU, rate=None))
            wires.run(["ip", "link", "set", laid[-1].interface, "master", "bridge0"])
        machines = [machine(wire, laid, scratch) for wire in laid]
        programs = scratch / "bin"
        programs.mkdir()
        tasks = [
            f'SLURM_PROCID={rank} SLURM_LOCALID=0 SLURM_NODEID={rank} {shlex.join(enter)} "$@" & tasks="$tasks $!"'
            for rank, enter in enumerate(machines)
        ]
        write(programs / "srun", [*tasks, "for task in $tasks; do wait $task || code=$?; done", "exit ${code:-0}"])
        environment = {
            **os.environ,
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SLURM_NTASKS": str(count),
            "SLURM_NNODES": str(count),
            "OMP_NUM_THREADS": "1",
        }
        command = [*machines[0], "bash", str(EXAMPLES / script), *arguments]
        return subprocess.run(command, cwd=EXAMPLES.parent, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
