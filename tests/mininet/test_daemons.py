"""Where Mininet's switches keep sockets and logs."""

from __future__ import annotations

import importlib.util
import os
import signal
import stat
import subprocess
import tempfile
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[2] / "mininet" / "daemons.py"
NOBODY = 65534


@pytest.fixture
def daemons() -> ModuleType:
    """Return the module, which Mininet's Python finds beside `custom.py`."""
    spec = importlib.util.spec_from_file_location("switchsum_mininet_daemons", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_a_process_that_does_not_heed_sigterm_is_killed(daemons: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "STOP_S", 0.2)
    deaf = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; exec sleep 100"], stdout=subprocess.PIPE)
    other = subprocess.Popen(["sleep", "100"])
    assert deaf.stdout is not None
    with deaf.stdout:
        deaf.stdout.readline()
        daemons.end_all([deaf, other])
    assert (deaf.returncode, other.returncode) == (-signal.SIGKILL, -signal.SIGTERM)


@pytest.mark.root
def test_folders_of_other_users_are_left_alone(
    daemons: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, left = tmp_path / "switchsum-mininet-theirs", tmp_path / "switchsum-mininet-left"
    for folder in (theirs, left):
        folder.mkdir()
    os.mkfifo(theirs / "lock")  # who opens it waits for ever
    os.chown(theirs, NOBODY, NOBODY)
    (left / "lock").touch()
    (odd := tmp_path / "switchsum-mininet-odd" / "lock").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = daemons.run_folder()
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert theirs.exists()
    assert not left.exists()
    assert odd.exists()  # what cannot be opened, or is gone when it is, ends no Mininet
