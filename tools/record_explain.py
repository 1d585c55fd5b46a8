"""Record what `switchsum explain` says of a job with a late rank, as docs/images/explain.svg.

Run as `python -m tools.record_explain` in a clone that has run a job before; it takes half a minute.  The job is real;
only the name of this machine is replaced.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Final

from switchsum_switch.process.runtime_directory import RUNTIME_VARIABLE
from tools import pictures
from tools.record_demo import ROOT, picture

PICTURE: Final = ROOT / "docs" / "images" / "explain.svg"
RANKS: Final = """
import time
import numpy as np
import switchsum

with switchsum.connect() as comm:
    layers = [np.ones(size, np.float32) for size in (262_144, 65_536, 1_024)]
    while True:
        time.sleep(0.03)
        for place, layer in enumerate(layers):
            time.sleep(0.02 if comm.rank == 2 and place == 1 else 0.0)
            comm.allreduce(layer, op="average")
"""
PATIENCE_S: Final = 120.0
STEPS: Final = "of the last 100 steps"
"""As many steps are looked at as the sentence counts."""


def main() -> None:
    """Run the job until it is explained, and write the picture."""
    print("waits for a job whose late rank explain names ...", flush=True)
    with tempfile.TemporaryDirectory(prefix="switchsum-") as folder:
        environment = {**os.environ, RUNTIME_VARIABLE: folder}  # other jobs of this user are not to be explained
        ours = [sys.executable, "-m", "switchsum"]
        job = subprocess.Popen([*ours, "run", "-n", "4", "--", sys.executable, "-c", RANKS], env=environment)
        try:
            said, until = "", time.monotonic() + PATIENCE_S
            # Repeats that are under way while a worker reports may look lost: that second finding comes and goes.
            while (STEPS not in said or said.count("\n- ") > 1) and time.monotonic() < until:
                time.sleep(1.0)
                done = subprocess.run([*ours, "explain"], env=environment, capture_output=True, text=True, check=False)
                said = done.stdout
        finally:
            job.send_signal(signal.SIGINT)
            job.wait()
    if STEPS not in said:
        sys.exit(f"no rank was named within {PATIENCE_S:.0f} s: {said}")
    PICTURE.write_text(picture("switchsum explain", said.strip().replace(socket.gethostname(), "north")))
    pictures.note(PICTURE.name)


if __name__ == "__main__":
    main()
