"""A command on ranks around a bridge: `unshare --net -- python -m checks.bench.bridge WORKERS RATE MTU COMMAND...`."""

from __future__ import annotations

import sys

from checks.bench.jobs import UNLIMITED
from checks.bench.star import lay, start_ranks
from switchsum.launch import wires
from switchsum.launch.children import Children
from switchsum.protocol.wire import format_ip


def main() -> int:
    """Lay the links, if there are any, and run the command as all ranks; returns the first exit code that is not 0."""
    workers, rate, mtu, *command = sys.argv[1:]
    with Children() as children:
        if rate == UNLIMITED:
            return start_ranks(children, [command] * int(workers), "127.0.0.1", "lo")
        laid = lay(children, int(workers), rate=rate, mtu=int(mtu))
        commands = [wire.inside(command) for wire in laid]
        return start_ranks(children, commands, format_ip(laid[0].address.ip), wires.WORKER_INTERFACE)


if __name__ == "__main__":
    raise SystemExit(main())
