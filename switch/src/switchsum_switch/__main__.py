"""`switchsum-bmv2`: the embedded switch in BMv2's place."""

from __future__ import annotations

import sys

from switchsum_switch.errors import SwitchsumError


def main() -> None:
    """Run the switch; entry of the console script.  A SwitchsumError is printed as one line."""
    from switchsum_switch.daemon.command_line import run
    from switchsum_switch.ports.sampling import serve_samples
    from switchsum_switch.process.ready import report_progress

    report_progress()  # to Mininet, whose patience would end
    try:
        run(sys.argv[1:], services=(serve_samples,))
    except SwitchsumError as error:
        sys.exit(f"switchsum-bmv2: {error}")  # to standard error, with exit code 1
