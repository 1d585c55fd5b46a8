"""Each slowdown of `checks.slowed` still fits the code that it changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from checks.clone import ROOT
from checks.slowed.slowdowns import SLOWDOWNS, Slowdown
from switchsum_switch.kernels.sources import module_sources


@pytest.mark.parametrize("slowdown", SLOWDOWNS, ids=lambda one: one.name)
def test_a_slowdown_changes_its_file(slowdown: Slowdown, tmp_path: Path) -> None:
    changed = tmp_path / slowdown.path
    changed.parent.mkdir(parents=True)
    shutil.copy(ROOT / slowdown.path, changed)
    slowdown.apply(tmp_path)
    assert changed.read_text() != (ROOT / slowdown.path).read_text()
    compile(changed.read_text(), slowdown.path, "exec")
    with pytest.raises(ValueError, match=slowdown.path):
        slowdown.apply(tmp_path)


def test_each_has_a_name_of_its_own() -> None:
    assert len({one.name for one in SLOWDOWNS}) == len(SLOWDOWNS)


def test_a_slowdown_names_its_module() -> None:
    assert {one.module for one in SLOWDOWNS} <= module_sources().keys()
    assert "switchsum_host.engine.policies.window" in {one.module for one in SLOWDOWNS}
