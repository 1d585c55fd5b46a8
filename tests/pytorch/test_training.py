"""Whole trainings under torchrun, as a user starts them."""

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

from .conftest import LOCAL, SCRIPTS, Launch, Torchrun

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
dist = torch.distributed

EXAMPLES = SCRIPTS.parents[2] / "examples"

GLOO_FOR_CPU = ["cpu:gloo,cuda:switchsum", "cuda:switchsum,cpu:gloo"]


def processes_with(text: str) -> list[str]:
    """Return the command lines of running processes that hold a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


@pytest.mark.timeout(400)
def test_an_ordinary_script_trains_as_on_gloo(torchrun: Torchrun, launch: Launch, tmp_path: Path) -> None:
    done = torchrun(3, SCRIPTS / "ddp.py", "switchsum", tmp_path / "switchsum")
    assert done.returncode == 0, done.stdout + done.stderr
    launch(3, SCRIPTS / "ddp.py", "gloo", tmp_path / "gloo").check()
    results = {backend: json.loads((tmp_path / backend).read_text()) for backend in ("switchsum", "gloo")}
    assert results["switchsum"]["losses"] == pytest.approx(results["gloo"]["losses"], rel=1e-4)
    # DistributedDataParallel marks unused parameters in int32, and looks at shapes in int64, which are only gathered.
    assert results["switchsum"]["over_gloo"] == {}
    assert not processes_with(f"switchsum-torch-{results['switchsum']['pid']}-")


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(400)
@pytest.mark.parametrize("switch", ["embedded", pytest.param("bmv2", marks=pytest.mark.bmv2)])
def test_the_launchers_namespaces_and_switches(tmp_path: Path, switch: str) -> None:
    # One after the other: a plain training, hooks, layers that wait for their own gradients, and the examples.
    scripts = [
        f"{SCRIPTS / 'ddp.py'} switchsum {tmp_path / 'result'}",
        f"{SCRIPTS / 'hooked.py'}",
        f"{SCRIPTS / 'scheduled.py'}",
        f"{EXAMPLES / 'digits.py'} --epochs 1 --gloo",
        *(f"{EXAMPLES / name}.py --steps 3" for name in ("images", "words", "gpt")),
    ]
    loops = [name for name in ("accelerate", "lightning", "transformers") if find_spec(name) is not None]
    scripts += [f"{EXAMPLES / f'with_{name}.py'} --epochs 1" for name in loops]
    training = ["sh", "-c", " && ".join(f"{sys.executable} {script}" for script in scripts)]
    options = ["-n", "2", "--links", "veth", "--switch", switch, "--timeout", str(patience(30))]
    command = [sys.executable, "-m", "switchsum", "run", *options, "--", *training]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(350), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "result").read_text())["over_gloo"] == {}
    assert "passed check_narrow_lanes" in done.stdout
    assert "the same parameters" in done.stdout
    assert "passed check_every_compressor" in done.stdout
    assert "test accuracy, loss: gloo" in done.stdout
    assert done.stdout.count("losses differ by at most 0.0") == 3
    assert done.stdout.count("switchsum, 2 ranks: accuracy") == len(loops)


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [2, 4])
def test_the_pages_commands_on_several_machines(count: int, tmp_path: Path) -> None:
    script = [str(SCRIPTS / "machines.py"), str(count), str(SCRIPTS / "ddp.py"), "switchsum", str(tmp_path / "result")]
    environment = {name: value for name, value in os.environ.items() if name not in LOCAL}
    done = subprocess.run(
        ["unshare", "--net", sys.executable, *script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=patience(500),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trained without a controller" in done.stdout
    assert f"trained on {count} machines" in done.stdout
    assert json.loads((tmp_path / "result").read_text())["over_gloo"] == {}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("leaf", ["1", "0"])
def test_machines_without_a_controller_start_switches(leaf: str, launch: Launch) -> None:
    assert launch(5, SCRIPTS / "leaves.py", leaf, own_switch=True).check().count("sums over machines are right") == 5


@pytest.mark.timeout(300)
def test_rings_of_sub_groups_and_many_of_them(launch: Launch) -> None:
    assert launch(3, SCRIPTS / "subgroups.py", own_switch=True).check().count("sub-groups are right") == 3


@pytest.mark.timeout(300)
def test_sharded_models_over_the_stand_in_for_a_gpu(launch: Launch) -> None:
    assert launch(2, SCRIPTS / "staged.py").check().count("FSDP2 learns the same, staged") == 2


@pytest.mark.timeout(300)
def test_compiled_models(launch: Launch) -> None:
    assert launch(2, SCRIPTS / "compiled.py").check().count("compiled") == 2


@pytest.mark.timeout(300)
def test_distributed_checkpoints_of_shards_saved_at_once_and_beside_training(launch: Launch, tmp_path: Path) -> None:
    text = launch(2, SCRIPTS / "checkpoints.py", tmp_path).check()
    assert text.count("trains on from both checkpoints") == 2


@pytest.mark.timeout(120)
def test_the_script_of_the_page(launch: Launch, tmp_path: Path) -> None:
    page = (SCRIPTS.parents[2] / "docs" / "pytorch.md").read_text()
    found = re.search(r"```python\n(# train\.py\n.*?)```", page, re.DOTALL)
    assert found is not None
    script = tmp_path / "train.py"
    script.write_text(found[1])
    ended = launch(4, script, own_switch=True)
    losses = re.findall(r"rank \d: loss ([\d.]+)", ended.check())
    assert len(losses) == 4
    assert all(0 < float(loss) < 2 for loss in losses)


@pytest.mark.timeout(120)
def test_what_builds_on_process_groups(launch: Launch) -> None:
    text = launch(4, SCRIPTS / "wide.py", "cpu:switchsum", own_switch=True).check()
    checks = ["check_groups", "check_tensors", "check_sharded_training", "check_bytes_of_sharded_training"]
    assert re.findall("passed (.*)", text) == checks


def test_importing_torch_registers_the_name_and_imports_nothing_else() -> None:
    code = (
        "import sys, torch; print(torch.distributed.is_backend_available('switchsum'), "
        "*sorted(name for name in sys.modules if name.startswith(('switchsum.', 'numba'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=patience(50), check=True
    )
    assert done.stdout.split() == ["True", "switchsum.moved", "switchsum.torch_backend"]


def test_the_entry_point_never_raises() -> None:
    code = (
        "import sys; sys.modules['torch.distributed'] = None; "
        "from switchsum.torch_backend import register; register(); print('registered nothing')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=patience(50), check=True
    )
    assert done.stdout == "registered nothing\n"


@pytest.mark.timeout(120)
def test_hooks_send_less_and_lose_nothing(launch: Launch) -> None:
    text = launch(3, SCRIPTS / "hooked.py").check()
    checks = [
        "check_residuals",
        "check_unused_parameters",
        "check_new_buckets",
        "check_every_compressor",
        "check_names",
        "check_layers",
        "check_narrow_lanes",
        "check_small_blocks",
        "check_torchs_own_hooks",
        "check_static_graphs",
    ]
    assert re.findall("passed (.*)", text) == checks


@pytest.mark.timeout(240)
def test_torchs_own_hooks_give_what_they_give_on_gloo(launch: Launch) -> None:
    text = launch(2, SCRIPTS / "torchs_hooks.py").check()
    assert re.findall("passed (.*)", text) == [
        *("allreduce", "fp16", "bf16", "fp16 around allreduce", "bf16 around allreduce"),
        *("powerSGD", "fp16 around powerSGD"),
        *("post-local SGD", "built-in allreduce", "built-in fp16"),
        *("optimizer overlap", "fused optimizer"),
        *("hook_with_zero_step", "hook_with_zero_step_interleaved"),
    ]


@pytest.mark.timeout(120)
def test_layers_that_wait_for_their_own_gradients_learn_the_same(launch: Launch) -> None:
    text = launch(3, SCRIPTS / "scheduled.py").check()
    assert re.findall("the same (.*)", text) == ["parameters", "tied parameters"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "backend",
    ["cpu:switchsum,cuda:gloo", "cuda:gloo,cpu:switchsum", "cpu:gloo,cuda:switchsum", "cuda:switchsum,cpu:gloo"],
)
def test_groups_of_several_backends(launch: Launch, backend: str) -> None:
    assert launch(3, SCRIPTS / "mixed.py", backend).check().count("both went where they belong") == 3


@pytest.mark.timeout(120)
@pytest.mark.skipif(
    not hasattr(torch.distributed.distributed_c10d._world, "pg_flight_recorder_hooks"), reason="torch before 2.15"
)
def test_the_flight_recorder_is_attached_and_records_gloo_alone(launch: Launch) -> None:
    # Where it begins to record ours, docs/pytorch-hooks.md says too little.
    assert launch(2, SCRIPTS / "recorded.py", "gloo").check().count("entries 5") == 2
    assert launch(2, SCRIPTS / "recorded.py", "switchsum").check().count("attached True, entries 0") == 2


@pytest.mark.parametrize("backend", ["switchsum", "cpu:switchsum", "cpu:switchsum,cuda:switchsum"])
def test_names_of_the_backend(backend: str) -> None:
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [1.0]
    finally:
        dist.destroy_process_group()


@pytest.mark.timeout(240)
def test_halves_cost_two_bytes_and_runs_give_the_same_bits(launch: Launch) -> None:
    # One switch for all three, so that their jobs have different numbers.
    texts = [launch(2, SCRIPTS / "halves.py", *seed).check() for seed in ((), (), (7,))]
    bits = [set(re.findall("bits (.*)", text)) for text in texts]
    assert bits[0] == bits[1] != bits[2]
    assert all(len(one) == 1 for one in bits)
