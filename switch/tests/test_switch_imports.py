"""What P4 writers import, and what importing and running a switch loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import switchsum_switch as switch

OTHERS = ("switchsum_host", "switchsum_controller", "switchsum.p4src", "switchsum.torch", "torch", "scapy", "typer")
PROGRAM = Path(__file__).parent / "programs" / "stateful"


def test_a_switch_runs_without_jobs_hosts_torch_and_scapy() -> None:
    code = f"""
import sys
from switchsum_switch import Switch
for engine in ("interpreter", "native"):
    switch = Switch.from_file({str(PROGRAM) + ".json"!r}, {str(PROGRAM) + ".p4info.txtpb"!r}, engine=engine)
    assert switch.process(1, bytes(64))
switch.trace(1, bytes(64))
import switchsum_switch.daemon.daemon
print(*[name for name in sys.modules if name.startswith({OTHERS!r})])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_what_a_p4_writer_needs_can_be_imported() -> None:
    for name in switch.__all__:
        assert getattr(switch, name).__doc__
    assert "Switch" in switch.__all__
    assert "Pipeline" not in switch.__all__
