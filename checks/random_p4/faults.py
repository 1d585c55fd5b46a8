"""Faults in lowering and code generation, and whether random programs find each: `python -m checks.random_p4.faults`.

A process of its own has one fault, which is written into the source of a module while that is imported.  It runs the
programs of `seeds.py` first, and then new ones, if p4c and BMv2 are on PATH, until one shows the fault.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from types import CodeType, ModuleType
from typing import Final

from checks.mutate.mutant import replaced

FIRST_SEED: Final = 700_000
"""Seed of the first new program."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of one module's source."""

    module: str
    """Below `switchsum_switch`."""
    before: str
    after: str


FAULTS: Final = {
    "mark_to_drop ignores which metadata": Fault(
        "program.lower.actions",
        "    if metadata is None:\n        return _drop(scope)\n    name =",
        "    if metadata is not None:\n        return _drop(scope)\n    name =",
    ),
    "a signed right shift brings zeros": Fault("program.lower.expressions", "Op.SAR if signed else Op.SHR", "Op.SHR"),
    "signed saturation ends at 0": Fault(
        "program.lower.expressions", "least = -(1 << (bits - 1)) if signed_result else 0", "least = 0"
    ),
    "signed numbers are compared as unsigned": Fault(
        "program.lower.expressions",
        "ir.Compare(signed_relation if some_signed else unsigned_relation",
        "ir.Compare(unsigned_relation",
    ),
    "pop_front moves no header": Fault(
        "program.lower.actions",
        "_copy(elements[index], elements[index + by], forgets=True)",
        "_copy(elements[index], elements[index], forgets=True)",
    ),
    "clones lose their metadata": Fault(
        "program.lower.actions",
        "ir.Assign(names.clone_list, _list(scope, fields))",
        "ir.Assign(names.clone_list, ir.Const(16, 0))",
    ),
    "a sign is not extended": Fault(
        "codegen.values",
        "self._emit.resize(self.integer(value.value), value.width, value.signed)",
        "self._emit.resize(self.integer(value.value), value.width)",
    ),
    "a shift by more than the width is the machine's": Fault(
        "codegen.values",
        "return build.select(inside, _operation(build, op)(value, amount), least)",
        "return _operation(build, op)(value, build.and_(amount, constant(width, width - 1)))",
    ),
    "a range ends before its last number": Fault(
        "codegen.lookups", 'build.icmp_unsigned("<=", value, high)', 'build.icmp_unsigned("<", value, high)'
    ),
    "the last entry wins": Fault(
        "codegen.lookups",
        'is_better = build.icmp_unsigned("<", rank, self._rank)',
        'is_better = build.icmp_unsigned(">", rank, self._rank)',
    ),
    "frames are a byte longer than they are cut to": Fault(
        "codegen.egress",
        "limit = build.sub(around.get(emit, packet.hot, around.names.cut), constant(64, 1))",
        "limit = around.get(emit, packet.hot, around.names.cut)",
    ),
}


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module with a fault, and never from bytecode."""

    fault: Fault

    def get_code(self, fullname: str) -> CodeType:
        text = replaced(self.get_data(self.path).decode(), self.fault.before, self.fault.after, fullname)
        return compile(text, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, and gives it a fault."""

    def __init__(self, fault: Fault) -> None:
        self._name, self._fault = f"switchsum_switch.{fault.module}", fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        loader = _Loader(fullname, spec.origin)
        loader.fault = self._fault
        return importlib.util.spec_from_file_location(fullname, spec.origin, loader=loader)


def hunt(name: str, seconds: float) -> str:
    """Put a fault into this process; return what shows it, or nothing."""
    sys.meta_path.insert(0, _Finder(FAULTS[name]))
    # The switch is imported with the fault from here on.
    from switchsum_switch.codegen import cache
    from switchsum_switch.stf import parse, run_embedded

    from .__main__ import compare, compiled
    from .generate import generate
    from .seeds import load

    vars(cache)["fingerprint"] = lambda: name  # code with the fault is no other program's
    until = time.monotonic() + seconds
    for number, (seed, program, text) in enumerate(load(), start=1):
        for engine in ("interpreter", "native"):
            if run_embedded(program, parse(text), engine).problems:
                return f"by the committed program of seed {seed} on {engine}, the {number}. one"
    for seed in count(FIRST_SEED):
        if time.monotonic() >= until:
            return ""
        compiled_text, _ = compiled(generate(seed, small=True).text())
        if compiled_text is not None and (found := compare(compiled_text, bmv2=True)) is not None:
            return f"by the new program of seed {seed}: {getattr(found, 'what', found)}"
    return ""


def main() -> int:
    """Run the check; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m checks.random_p4.faults", description=__doc__)
    parser.add_argument("--seconds", type=float, default=360, help="longest search for one fault")
    parser.add_argument("--one", choices=FAULTS, help="look for one fault, in this process")
    options = parser.parse_args()
    if options.one:
        found = hunt(options.one, options.seconds)
        print(found or "not found")
        return not found
    missed = 0
    for name in FAULTS:
        started = time.monotonic()
        command = [sys.executable, "-m", "checks.random_p4.faults", "--one", name, "--seconds", str(options.seconds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        missed += done.returncode != 0
        said = (done.stdout.strip().splitlines() or ["it ended without a word"])[-1]
        print(f"{name}: {said} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{len(FAULTS) - missed} of {len(FAULTS)} faults are found")
    return missed != 0


if __name__ == "__main__":
    raise SystemExit(main())
