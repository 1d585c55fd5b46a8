"""The tests in a clone of p4c, and what came of each on each switch."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from switchsum_protocol.errors import SwitchsumError
from switchsum_switch.bmv2.simple_switch import run_bmv2
from switchsum_switch.stf import Outcome, Test, parse, run_embedded

SwitchName = Literal["interpreter", "native", "bmv2"]
FOLDERS: Final = ("p4_16_samples", "p4_14_samples")
SWITCHES: Final[tuple[SwitchName, ...]] = ("interpreter", "native", "bmv2")
COMPILE_S: Final = 300
PASSED: Final = "passed"
_ARCHITECTURES: Final = ("psa.p4", "pna.p4", "ebpf_model.p4", "ubpf_model.p4", "xdp_model.p4", "dpdk/", "tc/")


@dataclass(slots=True, kw_only=True)
class Case:
    """A test and its program."""

    name: str
    """Path below testdata/, without the suffix; a further word for a further way to compile it."""
    source: Path
    options: tuple[str, ...] = ()
    excluded: str = ""
    """Why it does not apply."""
    results: dict[str, str] = field(default_factory=dict)
    """By switch: "passed", or what is wrong."""

    @property
    def language(self) -> str:
        """Return the language of its program."""
        return "P4_14" if "p4_14" in self.name else "P4_16"


def cases(p4c: Path) -> Iterator[Case]:
    """Yield every test of a clone."""
    for folder in FOLDERS:
        for test in sorted((p4c / "testdata" / folder).rglob("*.stf")):
            name = test.relative_to(p4c / "testdata").with_suffix("").as_posix()
            source = test.with_suffix(".p4")
            yield Case(name=name, source=source, excluded=excluded(source))
            if "parser-inline" in name:
                yield Case(name=f"{name} --parser-inline-opt", source=source, options=("--parser-inline-opt",))


def excluded(source: Path) -> str:
    """Return why a program does not apply; nothing if it may."""
    if not source.is_file():
        return "no program of that name"
    included = re.findall(r'#include\s*[<"]([^>"]+)[>"]', source.read_text(errors="replace"))
    for other in _ARCHITECTURES:
        if any(name.startswith(other) or name.endswith("/" + other) for name in included):
            return f"architecture of {other.strip('/')}"
    return ""


def compile_case(case: Case, scratch: Path) -> bytes | None:
    """Return the program's JSON; None, and the case does not apply, if p4c refuses it."""
    made = scratch / (case.name.replace("/", "+").replace(" ", "") + ".json")
    if not made.exists():
        command = ["p4c-bm2-ss", *case.options, "-o", str(made), str(case.source)]
        command += ["--std", "p4-14"] if case.language == "P4_14" else []
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            reason = re.sub(r"^.*error: ", "", errors[0]) if errors else f"exit code {done.returncode}"
            case.excluded = f"p4c refuses it: {reason}"
            return None
    return made.read_bytes()


def run_case(case: Case, program: bytes, switches: tuple[SwitchName, ...]) -> None:
    """Run a case on switches and note what came of it."""
    test = parse(case.source.with_suffix(".stf").read_text(errors="replace"), case.source.stem)
    for switch in switches:
        case.results[switch] = outcome(program, test, switch)


def outcome(program: bytes, test: Test, switch: SwitchName) -> str:
    """Run a test on a switch; return "passed", or what is wrong."""
    try:
        first = next(iter(_run(program, test, switch).problems), None)
    except SwitchsumError as error:
        return f"refused: {error}"
    return PASSED if first is None else f"line {first.line}: {first.text}"


def _run(program: bytes, test: Test, switch: SwitchName) -> Outcome:
    if switch == "bmv2":
        return run_bmv2(program, test)
    return run_embedded(program, test, switch)


def cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")
