"""The examples at a small size: losses beside those of the same training on gloo, and other launchers' ways in."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.timing import patience

from .conftest import LOCAL, SCRIPTS, Launch

pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
pytest.importorskip("sklearn", reason="scikit-learn is not installed (the demo's images)")

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["images", "words", "gpt"])
def test_losses_are_those_of_gloo(launch: Launch, name: str) -> None:
    text = launch(2, EXAMPLES / f"{name}.py", "--steps", "12").check()
    assert "losses differ by at most 0.0" in text


@pytest.mark.timeout(120)
def test_few_synchronisations_send_few_bytes(launch: Launch) -> None:
    text = launch(2, EXAMPLES / "diloco.py", "--steps", "13", "--every", "6", "--delay", "2").check()
    first, last = map(float, re.findall(r"loss ([\d.]+) in the first step, ([\d.]+) in the last ten", text)[0])
    assert last < first
    sent, whole = map(float, re.findall(r"([\d.]+) MB sent in 13 steps; ([\d.]+) MB are all", text)[0])
    # The model at first, and at most half of it for each of three outer steps of all quarters.
    assert sent < 4 * whole


@pytest.mark.timeout(120)
def test_the_demo_beside_gloo(tmp_path: Path) -> None:
    demo = [
        sys.executable,
        str(EXAMPLES / "digits.py"),
        "--epochs",
        "2",
        "--gloo",
        "--curves",
        str(tmp_path / "curves"),
    ]
    command = [sys.executable, "-m", "switchsum", "run", "-n", "2", "--terminal", "--", *demo]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(110), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    curves = json.loads((tmp_path / "curves").read_text())
    exact = curves["losses"].pop("exact float64 sums, one process")
    assert set(curves["losses"]) == {"switchsum", "gloo"}
    for losses in curves["losses"].values():
        assert losses == pytest.approx(exact, rel=1e-3)


def test_curves_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (the extra bench)")
    curves = {"title": "a training", "unit": "step", "losses": {"switchsum": [2.0, 1.0], "gloo": [2.0, 1.0]}}
    (tmp_path / "curves").write_text(json.dumps(curves))
    command = [sys.executable, str(EXAMPLES / "curves.py"), str(tmp_path / "out"), *[str(tmp_path / "curves")] * 2]
    subprocess.run(command, timeout=patience(50), check=True)
    assert "</svg>" in (tmp_path / "out.svg").read_text()
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["accelerate", "lightning", "transformers"])
def test_other_peoples_loops_run_on_the_backend(launch: Launch, name: str) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed (the extra train)")
    text = launch(2, EXAMPLES / f"with_{name}.py", "--epochs", "2").check()
    found = re.search(r"switchsum, 2 ranks: accuracy ([\d.]+)", text)
    assert found is not None, text
    assert float(found[1]) > 0.8


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ray_train_runs_on_the_backend() -> None:
    if find_spec("ray") is None:
        pytest.skip("ray is not installed (the extra ray)")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "with_ray.py"), "--epochs", "2"],
        env={name: value for name, value in os.environ.items() if name not in LOCAL} | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=patience(280), check=False,
    )  # fmt: skip
    found = re.search(r"switchsum, 2 ranks: accuracy ([\d.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) > 0.8


@pytest.mark.timeout(300)
def test_deepspeed_runs_on_the_backend(launch: Launch) -> None:
    if find_spec("deepspeed") is None:
        pytest.skip("DeepSpeed is not installed")
    text = launch(2, SCRIPTS / "with_deepspeed.py").check()
    assert text.count("the same parameters on rank") == 2
