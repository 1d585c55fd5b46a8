"""Run one target under atheris: `python -m checks.fuzz TARGET [libFuzzer's options]`, or all, `--seconds N` each.

As many run side by side as there are cores.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Final

TARGETS: Final = (
    *("host_frames", "switch_frames", "tree_frames", "engines", "programs"),
    *("p4runtime_server", "controller_calls", "web_requests"),
    *("topology_files", "fleet_files", "recordings", "certificates"),
)
"""Frames and programs; the servers of daemons; files."""
LONGEST_INPUT_S: Final = 60
"""An input that takes longer is a hang.  Loading a program takes a second, and PyYAML two for a thousand brackets."""
MEMORY_MEGABYTES: Final = 2048
KERNELS: Final = ("host_frames",)
"""Targets whose Python is compiled by numba, from bytecode that must stay as it is: only the target and the reference
switch guide the fuzzer there.  Inputs find their way into kernels, and native code, by what they are made from."""
REPLICAS: Final = "switchsum_switch.queues.replicas"
"""The one kernel of the other targets."""
ARTIFACTS: Final = Path(__file__).parents[2] / "build" / "fuzz"
"""Where inputs go that failed, and what the targets write."""


def main() -> None:
    """Fuzz one target in this process, or each in one of its own."""
    parser = argparse.ArgumentParser(prog="python -m checks.fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    options, rest = parser.parse_known_args()
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    if options.target is not None:
        _fuzz(options.target, [f"-max_total_time={options.seconds}", *rest])
        return
    print(f"{len(TARGETS)} targets, {options.seconds} s each; each says in a line what it did", flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(partial(_start, seconds=options.seconds), TARGETS)
    failed = [target for target, has_failed in zip(TARGETS, found, strict=True) if has_failed]
    print(f"{len(TARGETS)} targets, {options.seconds} s each, failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


def _start(target: str, seconds: int) -> bool:
    """Fuzz in a process of its own; print what it did in a line, or all that it wrote if it failed."""
    log = ARTIFACTS / f"{target}.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "checks.fuzz", target, "--seconds", str(seconds)]
        code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    wrote = log.read_text(errors="replace")
    if code != 0:
        print(f"{wrote}\n{target}: FAILED, exit code {code}", flush=True)
        return True
    inputs, new, peak = (
        found[1] if (found := re.search(rf"stat::{name}:\s+(\d+)", wrote)) else "?"
        for name in ("number_of_executed_units", "new_units_added", "peak_rss_mb")
    )
    print(f"{target}: {inputs} inputs, {new} of them reached something new, at most {peak} MB", flush=True)
    return False


def _fuzz(target: str, options: list[str]) -> None:
    import atheris

    guided = atheris.instrument_imports(include=["switchsum"], exclude=[REPLICAS])
    with nullcontext() if target in KERNELS else guided:
        module = import_module(f"checks.fuzz.{target}")
    if target in KERNELS:
        for kind in (module.Target, module.ReferenceSwitch):
            for name, function in [item for item in vars(kind).items() if isinstance(item[1], FunctionType)]:
                setattr(kind, name, atheris.instrument_func(function))
    tried = module.Target()
    for seed in module.seeds():
        tried.run(seed)  # a compiler's time is not an input's
    with tempfile.TemporaryDirectory(prefix="switchsum-fuzz-") as folder:
        for index, seed in enumerate(module.seeds()):
            (Path(folder) / f"seed{index}").write_bytes(seed)
        limits = [
            f"-timeout={LONGEST_INPUT_S}",
            f"-rss_limit_mb={MEMORY_MEGABYTES}",
            "-max_len=512",
            f"-artifact_prefix={ARTIFACTS}/{target}-",
        ]
        atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1", "-verbosity=0", *options, folder], tried.run)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
