"""Two machines, as far as namespaces are: a torchrun on each, and between them a third one with the switch.

`unshare --net python two_machines.py SCRIPT ARGUMENTS...` as root.  The first try has no address of a controller.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from switchsum.launch import wires
from switchsum.launch.children import Children
from switchsum.launch.session import daemon
from switchsum.protocol.wire import format_ip

MIDDLE = "10.0.0.100"


def options(wire: wires.Wire) -> list[str]:
    """Return what torchrun would ask the machine's name for; here both have the same one."""
    is_host = "true" if wire.rank == 0 else "false"
    return [f"--rdzv-conf=is_host={is_host}", f"--local-addr={format_ip(wire.address.ip)}"]


def train(laid: list[wires.Wire], command: list[str], environment: dict[str, str]) -> list[tuple[int, str]]:
    """Start torchrun on both; return exit codes and output."""
    shared = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-endpoint=10.0.0.1:29400"]
    agents = [
        subprocess.Popen(
            wire.inside([sys.executable, "-m", "torch.distributed.run", *shared, *options(wire), *command]),
            env={**os.environ, **environment, "GLOO_SOCKET_IFNAME": wires.WORKER_INTERFACE, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for wire in laid
    ]
    outputs = [agent.communicate(timeout=100 * float(os.environ["SWITCHSUM_TEST_SLOWNESS"]))[0] for agent in agents]
    return [(agent.returncode, output) for agent, output in zip(agents, outputs, strict=True)]


def main() -> None:
    """Try without a controller, and then with one."""
    command = sys.argv[1:]
    wires.run(["ip", "link", "set", "lo", "up"])
    wires.run(["ip", "link", "add", "bridge0", "type", "bridge"])
    wires.run(["ip", "address", "add", f"{MIDDLE}/24", "dev", "bridge0"])
    wires.run(["ip", "link", "set", "bridge0", "up"])
    with Children() as children, tempfile.TemporaryDirectory() as scratch:
        laid = [wires.lay(children, rank, mtu=wires.mtu_for(256), rate=None) for rank in range(2)]
        for wire in laid:
            wires.run(["ip", "link", "set", wire.interface, "master", "bridge0"])
        ended = train(laid, command, {})
        assert all(code != 0 for code, _ in ended)
        assert all("2 ranks are on 2 machines" in output for _, output in ended), ended
        print("told what to start", flush=True)
        _, facts = daemon(children, "switch", ["switch", "--listen", f"unix:{scratch}/p4", "--udp", f"{MIDDLE}:21333"])
        listen = ["--listen", f"{MIDDLE}:9560", "--switch", str(facts["p4runtime"])]
        daemon(children, "controller", ["controller", *listen])
        environment = {"SWITCHSUM_CONTROLLER": f"{MIDDLE}:9560", "SWITCHSUM_LINK": f"udp:{MIDDLE}"}
        no_end = [str(Path(__file__).parent / "no_end.py")]
        for code, output in (*train(laid, command, environment), *train(laid, no_end, environment)):
            assert code == 0, output
        print("trained on two machines", flush=True)
        left = subprocess.run(
            [sys.executable, "-m", "switchsum", "job", "list", "--controller", f"{MIDDLE}:9560"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "torch-" not in left.stdout, left.stdout


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"in {time.monotonic() - began:.0f} s", Path(sys.argv[1]).name, flush=True)
