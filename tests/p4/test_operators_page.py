"""docs/operators.md, followed to the letter: the steps fit the sources, and the operator that they add works."""

from __future__ import annotations

import ast
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from switchsum.protocol.frame import LaneFormat
from switchsum.switch.pipeline import EngineName, Pipeline
from switchsum.testing.embedded import Embedded
from switchsum.testing.rig import Rig

from ..timing import patience

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operators.md"
COMPILER = "p4c-bm2-ss"
LANES = 128


def steps() -> list[tuple[str, str, str]]:
    """Return each step's file, the text that it finds there, and what it makes of it."""
    found, file = [], ""
    for name, block in re.findall(r"in\s+`([\w/]+\.(?:p4|py))`|```diff\n(.*?)```", PAGE.read_text(), re.DOTALL):
        file = name or file
        if block:
            lines = block.splitlines()
            before = "\n".join(line[1:] for line in lines if line[:1] in (" ", "-"))
            after = "\n".join(line[1:] for line in lines if line[:1] in (" ", "+"))
            found.append((file, before, after))
    return found


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the page changes, changed."""
    root = tmp_path_factory.mktemp("operator")
    shutil.copytree(ROOT / "p4src", root / "p4src", ignore=shutil.ignore_patterns("compiled"))
    for file, before, after in steps():
        path = root / file
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, path)
        text = path.read_text()
        assert text.count(before) == 1, f"{file} does not have, just once:\n{before}"
        path.write_text(text.replace(before, after))
    return root


def test_the_steps_fit_the_sources(changed: Path) -> None:
    files = {file for file, _, _ in steps()}
    assert files == {
        "p4src/types.p4",
        "p4src/lanes.p4",
        "protocol/frame.py",
        "host/engine/operation.py",
        "protocol/slot_rules.py",
    }
    for file in files:
        if file.endswith(".py"):
            ast.parse((changed / file).read_text())


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is not on PATH")
@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_the_operator_works(changed: Path, engine: EngineName) -> None:
    program = changed / "program.json"
    if not program.exists():
        options = runpy.run_path(str(ROOT / "tools" / "compile_p4.py"))["OPTIONS"]
        command = [COMPILER, *options, f"-DLANES={LANES}", "-o", str(program), "switchsum.p4"]
        subprocess.run(command, check=True, cwd=changed / "p4src", timeout=patience(50))
    embedded = Embedded.__new__(Embedded)
    embedded.pipeline = Pipeline.load(program.read_bytes(), engine=engine)
    rig = Rig(embedded, workers=3, lanes=LANES)
    random = np.random.default_rng(2)
    for number, lane_format in enumerate(LaneFormat, 1):
        rows = random.integers(-(1 << 31), 1 << 31, (3, LANES)).astype(np.int32)
        for rank, row in enumerate(rows):
            answers = rig.contribute(rank, number, row, operator=5, format=lane_format)
        for [packet] in answers.values():
            np.testing.assert_array_equal(np.frombuffer(packet.payload, ">i4"), np.bitwise_xor.reduce(rows))
