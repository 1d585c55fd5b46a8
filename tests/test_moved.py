"""Old names of modules lead to the new ones, for one release."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import switchsum
from switchsum.moved import MODULES, PACKAGES, new_name
from switchsum_host.compress import TopK

OLD = {
    "switchsum.host.connect": "switchsum_host.connect",
    "switchsum.controller.plan.plan": "switchsum_controller.plan.plan",
    "switchsum.protocol.errors": "switchsum_protocol.errors",
    "switchsum.protocol.p4runtime": "switchsum_switch.messages.p4runtime",
    "switchsum.native.wires.ring": "switchsum_switch.wires.ring",
    "switchsum.connections.controller_client": "switchsum_protocol.clients.controller_client",
    "switchsum.switch": "switchsum_switch",
    "switchsum.switch.tables": "switchsum_switch.state.tables",
    "switchsum.switch.pipeline": "switchsum_switch.execution.pipeline",
    "switchsum.switch.pytest_plugin": "switchsum_switch.pytest_plugin",
    "switchsum.laboratory.protocols.seam": "switchsum_lab.protocols.seam",
    "switchsum.laboratory.axes": "switchsum_lab.sweeps.axes",
    "switchsum.simulation.world": "switchsum_lab.simulation.world",
}


@pytest.mark.filterwarnings("ignore:switchsum")
@pytest.mark.parametrize(("old", "new"), OLD.items())
def test_an_old_name_is_the_module_itself_and_warns(old: str, new: str) -> None:
    for name in [one for one in sys.modules if one == old or old.startswith(f"{one}.")]:
        if name != "switchsum":
            del sys.modules[name]  # an earlier test has warned already
    with pytest.warns(DeprecationWarning, match=f"{old} is {new} now"):
        stand_in = import_module(old)
    real = import_module(new)
    public = [name for name in vars(real) if not name.startswith("_")]
    assert public
    assert all(getattr(stand_in, name) is getattr(real, name) for name in public)
    assert set(public) <= set(dir(stand_in))


def test_every_old_name_leads_to_something() -> None:
    for old, places in PACKAGES.items():
        assert new_name(old) in places
    for old, new in MODULES.items():
        assert new_name(old) == new
        assert find_spec(new) is not None


@pytest.mark.filterwarnings("ignore:switchsum.host")
def test_a_pickle_with_old_names_loads() -> None:
    pickled = pickle.dumps(TopK).replace(b"switchsum_host.", b"switchsum.host.")
    assert b"switchsum.host.compress" in pickled
    assert pickle.loads(pickled) is TopK


@pytest.mark.parametrize("name", ["switchsum.nothing", "switchsum.host.nothing", "switchsum.hosts"])
def test_a_name_that_never_was_is_not_found(name: str) -> None:
    assert find_spec(name) is None if name.count(".") == 1 else new_name(name) is None


def test_next_to_nothing_is_imported_before_an_old_name_is_asked_for() -> None:
    folder = Path(switchsum.__file__).parents[1]
    code = f"import sys; sys.path.append({str(folder)!r}); import switchsum; print('typing' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
