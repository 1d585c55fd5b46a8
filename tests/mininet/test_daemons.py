"""Where Mininet's switches keep sockets and logs."""

from __future__ import annotations

import importlib.util
import os
import stat
import tempfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "mininet" / "daemons.py"
NOBODY = 65534


@pytest.mark.root
def test_folders_of_other_users_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("switchsum_mininet_daemons", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    daemons = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(daemons)
    theirs, left = tmp_path / "switchsum-mininet-theirs", tmp_path / "switchsum-mininet-left"
    for folder in (theirs, left):
        folder.mkdir()
    os.mkfifo(theirs / "lock")  # who opens it waits for ever
    os.chown(theirs, NOBODY, NOBODY)
    (left / "lock").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = daemons.run_folder()
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert theirs.exists()
    assert not left.exists()
