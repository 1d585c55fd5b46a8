"""Checks whether BMv2 is installed, has a P4Runtime server, and is new enough."""

from __future__ import annotations

import re
import shutil

from switchsum.doctor.finding import Finding, Verdict
from switchsum.doctor.system import BMV2_HELP, p4lang_install, run_probe
from switchsum.launch.bmv2 import PROGRAM, find
from switchsum.protocol.errors import LocalError


def check_bmv2() -> Finding:
    """Look for BMv2 on PATH, and check whether the launcher could use it."""
    purpose = "--switch bmv2"
    try:
        path = find("bmv2")
    except LocalError as error:
        state = Verdict.LIMITED if shutil.which(PROGRAM) else Verdict.MISSING
        found = str(error).partition(": install")[0]
        return Finding(name=PROGRAM, state=state, found=found, purpose=purpose, remedy=p4lang_install(BMV2_HELP))
    version = re.search(r"\d+\.\d[\w.+-]*", run_probe([path, "--version"])[1])
    found = f"{version[0]} ({path})" if version else path
    return Finding(name=PROGRAM, state=Verdict.OK, found=found, purpose=purpose)
