"""Tests that p4testgen makes of public programs: `python -m checks.conformance.public_tests CLONES FOLDER`.

CLONES has a clone of each repository that `PROGRAMS` names, under the repository's name; p4c-bm2-ss and p4testgen are
on PATH.  FOLDER gets what `python -m checks.conformance.public FOLDER` reads.  A program whose tests are there is left
out: run the command again, and it goes on where it ended.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from .cases import COMPILE_S
from .generated import OUT_OF_TIME, make
from .public import BEGUN, P4INFO, TESTS, WHY

MOST: Final = 200
SECONDS: Final = 120.0
COMPILER: Final = "p4c-bm2-ss"


class Source(NamedTuple):
    """Where a program is, and how its project compiles it."""

    repository: str
    path: str
    options: tuple[str, ...] = ()
    """Macros; after -I a path in the clone."""
    before: str = ""
    """What stands before the program."""


_SAI: Final = "sai_p4/instantiations/google"
_ONOS: Final = "pipelines/basic/src/main/resources"
_TUNNEL: Final = "apps/p4-tutorial/pipeconf/src/main/resources/mytunnel"
_FABRIC: Final = "pipelines/fabric/impl/src/main/resources/fabric.p4"
_CLONE: Final = "#define clone3(type, session, data) clone(type, session)"
"""For programs that call `clone3`, which p4c does not know any more."""
_FABRIC_FLAGS: Final = ("-DTARGET_BMV2", "-DCPU_PORT=255", "-DWITH_PORT_COUNTER", "-DWITH_DEBUG")
_TNA: Final = ("fabric-tna", "p4src/v1model/fabric_v1model.p4")
PROGRAMS: Final[dict[str, Source]] = {
    **{
        f"sai.{name}": Source("sonic-pins", f"{_SAI}/{name}.p4", ("-DPLATFORM_BMV2", "-I", "."))
        for name in ("middleblock", "tor", "fabric_border_router", "wbb")
    },
    "fabric-tna.fabric-v1model": Source(*_TNA, ("-I", "p4src")),
    "fabric-tna.fabric-int-v1model": Source(*_TNA, ("-DWITH_INT", "-I", "p4src")),
    "fabric-tna.fabric-upf-v1model": Source(*_TNA, ("-DWITH_UPF", "-I", "p4src")),
    "fabric-tna.fabric-upf-int-v1model": Source(*_TNA, ("-DWITH_UPF", "-DWITH_INT", "-I", "p4src")),
    "onos.basic": Source("onos", f"{_ONOS}/basic.p4"),
    "onos.int": Source("onos", f"{_ONOS}/int.p4", ("-DTARGET_BMV2",), _CLONE),
    "onos.mytunnel": Source("onos", f"{_TUNNEL}.p4"),
    "onos.fabric": Source("onos", _FABRIC, _FABRIC_FLAGS, _CLONE),
    "onos.fabric-spgw": Source("onos", _FABRIC, (*_FABRIC_FLAGS, "-DWITH_SPGW"), _CLONE),
    "onos.fabric-bng": Source("onos", _FABRIC, (*_FABRIC_FLAGS, "-DWITH_BNG", "-DWITHOUT_XCONNECT"), _CLONE),
    "onos.fabric-int": Source("onos", _FABRIC, (*_FABRIC_FLAGS, "-DWITH_INT_SOURCE", "-DWITH_INT_TRANSIT"), _CLONE),
    "dash": Source("DASH", "dash-pipeline/bmv2/dash_pipeline.p4", ("-DTARGET_BMV2_V1MODEL",)),
    **{
        f"tutorials.{name}": Source("tutorials", f"exercises/{name}/solution/{name}.p4")
        for name in (
            *("basic", "basic_tunnel", "calc", "ecn", "firewall", "flowcache", "link_monitor", "load_balance", "mri"),
            *("multicast", "qos", "source_routing"),
        )
    },
    "tutorials.advanced_tunnel": Source("tutorials", "exercises/p4runtime/advanced_tunnel.p4"),
    "ngsdn": Source("ngsdn-tutorial", "solution/p4src/main.p4", (), _CLONE),
    "up4": Source("up4", "p4src/main.p4"),
    "stratum.main": Source("stratum", "stratum/pipelines/main/main.p4", (), _CLONE),
}
"""By the name in the record."""
_FABRIC_OUT: Final = "pipelines/fabric/impl/src/main/resources/p4c-out"
PUBLISHED: Final[dict[str, tuple[str, str, str]]] = {
    **{
        f"onos.{name}.published": ("onos", f"{_FABRIC_OUT}/{name}/bmv2/default/bmv2.json", "p4info.txt")
        for name in ("fabric", "fabric-bng", "fabric-full", "fabric-int", "fabric-spgw-int")
    },
    **{
        f"onos.{name}.published": ("onos", f"{_ONOS}/p4c-out/bmv2/{name}.json", f"{name}_p4info.txt")
        for name in ("basic", "int")
    },
    "up4.published": ("up4", "p4src/build/bmv2.json", "p4info.txt"),
}
"""Programs that a repository has in compiled form: repository, JSON, and its P4Info in the same folder."""


def options_of(source: Source, clone: Path) -> tuple[str, ...]:
    """Return a program's options, with paths in a clone."""
    after_include = ("", *source.options)
    return tuple(
        str(clone / option) if before == "-I" else option
        for before, option in zip(after_include, source.options, strict=False)
    )


def prepare(name: str, source: Source, clones: Path, folder: Path, tests: int, seconds: float) -> str:
    """Compile a program and let p4testgen make its tests; return how many it made, or why there are none."""
    clone, made = clones / source.repository, folder / f"{name}.json"
    options, path = options_of(source, clone), (clone / source.path).resolve()
    if source.before:
        around = folder / f"{name.replace('.', '_')}.p4"  # p4testgen names its files by what is before the first dot
        around.write_text(f'{source.before}\n#include "{path}"\n')
        path = around
    command = [COMPILER, *options, "--p4runtime-files", str(folder / f"{name}{P4INFO}"), "-o", str(made), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    if done.returncode:
        made.unlink(missing_ok=True)
        return next((line for line in done.stderr.splitlines() if "error" in line), f"exit code {done.returncode}")
    begun, kept = folder / f"{name}{BEGUN}", folder / f"{name}{TESTS}"
    begun.mkdir(exist_ok=True)
    why = make(path, begun, tests, seconds, options=options)
    files = sorted(begun.glob("*.stf"), key=lambda file: file.stat().st_mtime_ns)
    if files and why.startswith(OUT_OF_TIME):
        files.pop().unlink()  # it may not be whole
    if not files:
        (folder / f"{name}{WHY}").write_text(why)
    begun.rename(kept)
    return str(len(files)) if files else why


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m checks.conformance.public_tests", description=__doc__)
    parser.add_argument("clones", type=Path, help="a folder with a clone of each repository")
    parser.add_argument("folder", type=Path, help="where programs and tests go")
    parser.add_argument("--only", default="", help="programs whose names have this word")
    parser.add_argument("--tests", type=int, default=MOST, help=f"most tests of a program ({MOST})")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of processor time for them ({SECONDS:.0f})")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, (repository, path, p4info) in PUBLISHED.items():
        found = options.clones / repository / path
        if options.only in name and found.exists():
            shutil.copy(found, options.folder / f"{name}.json")
            shutil.copy(found.with_name(p4info), options.folder / f"{name}{P4INFO}")
    for name, source in PROGRAMS.items():
        if options.only in name and not (options.folder / f"{name}{TESTS}").exists():
            said = prepare(name, source, options.clones, options.folder, options.tests, options.seconds)
            print(f"{name}: {said}", flush=True)


if __name__ == "__main__":
    main()
