"""What goes wrong in trainings, and what every rank hears of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from switchsum.launch.bmv2 import free_port
from switchsum.protocol.errors import CollectiveTimeout, UsageError

from .test_training import LOCAL, SCRIPTS, Torchrun, torchrun  # noqa: F401

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
dist = torch.distributed

RANKS = 3
END_S = 150.0
Worker = subprocess.Popen[str]


def start(*arguments: str, ranks: int = RANKS) -> list[Worker]:
    """Start ranks without a launcher, which would end all when one has ended."""
    environment = {name: value for name, value in os.environ.items() if name not in LOCAL}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    command = [sys.executable, str(SCRIPTS / "faults.py"), *arguments]
    return [
        subprocess.Popen(
            command,
            env=environment | {"RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """Processes that end with the test."""
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.kill()
        worker.communicate()


@pytest.mark.timeout(200)
def test_a_worker_that_dies_in_its_backward_pass_is_named_by_the_others(workers: list[Worker]) -> None:
    workers += start("dies", "600")
    for rank in (0, 2):
        output, errors = workers[rank].communicate(timeout=END_S)
        assert workers[rank].returncode == 3, output + errors
        assert "rank 1 of job" in output


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_late_worker_is_named_when_the_groups_time_is_over(workers: list[Worker]) -> None:
    workers += start("late", "15")
    for rank in (0, 2):
        output, errors = workers[rank].communicate(timeout=END_S)
        assert workers[rank].returncode == 3, output + errors
        assert "CollectiveTimeout" in output
        assert "the switch waits for rank 1" in output


@pytest.mark.timeout(200)
def test_infinite_gradients_and_changing_shapes(workers: list[Worker]) -> None:
    workers += start("overflow", "60")
    for worker in workers:
        output, errors = worker.communicate(timeout=END_S)
        assert worker.returncode == 0, output + errors
        assert "every rank went on" in output


@pytest.mark.timeout(400)
def test_torchrun_restarts_and_training_goes_on_from_the_checkpoint(
    torchrun: Torchrun,  # noqa: F811
    tmp_path: Path,
) -> None:
    done = torchrun(2, SCRIPTS / "elastic.py", tmp_path, options=["--max-restarts=1"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exitcode: -9" in done.stderr
    result = json.loads((tmp_path / "result").read_text())
    assert result["begun"] == 5
    # What the same steps come to in one process: the checkpoint has lost nothing, and no sum was made twice.
    np.testing.assert_allclose(result["weights"], weights_without_faults(), rtol=1e-5, atol=1e-7)


def weights_without_faults() -> list[float]:
    """Train as `elastic.py` does, on all ranks' data at once."""
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(8):
        optimizer.zero_grad()
        for rank in range(2):
            data = torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * step + rank))
            (model(data).square().mean() / 2).backward()
        optimizer.step()
    weights: list[float] = model.weight.detach().reshape(-1).tolist()
    return weights


def test_a_rank_that_never_comes_is_named() -> None:
    from switchsum.host.pytorch.rendezvous import Meeting, meet

    store = dist.HashStore()
    store.set("switchsum/machine/2", "here")
    with pytest.raises(CollectiveTimeout, match="rank 1, 3 of 4 has not come") as caught:
        meet(Meeting(store, 0, 4, 0.3), pytest.fail)
    assert caught.value.missing == (1, 3)
    with pytest.raises(CollectiveTimeout, match="rank 1, 3 of 4 has not come"):  # what rank 0 has said
        meet(Meeting(store, 2, 4, 0.3), pytest.fail)


def test_several_machines_need_the_address_of_a_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    from switchsum.host.pytorch.rendezvous import Meeting, meet

    monkeypatch.delenv("SWITCHSUM_CONTROLLER", raising=False)
    store = dist.HashStore()
    store.set("switchsum/machine/1", "elsewhere")
    with pytest.raises(UsageError, match=r"2 ranks are on 2 machines.*switchsum controller --listen 0\.0\.0\.0:9560"):
        meet(Meeting(store, 0, 2, 5.0), pytest.fail)
    monkeypatch.setenv("SWITCHSUM_CONTROLLER", "there:9560")
    monkeypatch.setenv("SWITCHSUM_LINK", "udp:there")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    place, services = meet(Meeting(store, 0, 2, 5.0), pytest.fail)
    assert services is None
    assert (place.controller, place.link, place.job, place.is_ours) == ("there:9560", "udp:there", "torch-x", True)


def test_options_are_refused() -> None:
    with pytest.raises(UsageError, match="pg_options must be None"):
        dist.init_process_group(
            "switchsum",
            store=dist.HashStore(),
            rank=0,
            world_size=1,
            timeout=timedelta(seconds=5),
            pg_options=dist.ProcessGroupGloo._Options(),
        )
    assert not dist.is_initialized()
