"""What goes wrong in trainings, and what every rank hears of it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.timing import eventually, patience
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.errors import CollectiveTimeout, ControllerUnreachable, NoCapacity, UnknownJob, UsageError
from switchsum_protocol.rpc import MemberInfo
from switchsum_protocol.states import MemberState
from switchsum_switch import notices

from .conftest import LOCAL, SCRIPTS, Launch, Torchrun

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
dist = torch.distributed

RANKS = 3


def test_ranks_that_a_process_group_waits_for_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from switchsum.torch.store import Meeting, fetch, gather

    monkeypatch.setattr(notices, "QUIET_S", 0.01)
    store = dist.HashStore()
    store.set("machine/0", "here")
    with pytest.raises(CollectiveTimeout, match="rank 1, 2 of 3 has not come"):
        gather(Meeting(store, 0, 3, 0.5), "machine")
    with pytest.raises(CollectiveTimeout):
        fetch(Meeting(store, 1, 3, 0.5), "place", "starts a switch", 0)
    said = capsys.readouterr().err
    assert "waiting for rank 1, 2 of 3 to come to the process group" in said
    assert "waiting for rank 0, which starts a switch" in said


@pytest.mark.timeout(120)
def test_a_worker_that_dies_in_its_backward_pass_is_named_by_the_others(launch: Launch) -> None:
    # A switch of rank 0's own would end with rank 0, and rank 2 might hear of nothing but that.
    ended = launch(RANKS, SCRIPTS / "faults.py", "dies", "600")
    assert ended.codes == [3, -9, 3], ended.text
    assert "rank 1 of job" in ended.outputs[0]
    assert "rank 1 of job" in ended.outputs[2]


@pytest.mark.timeout(120)
def test_a_rank_that_dies_with_the_switch_that_it_had_started_is_named_by_the_others(launch: Launch) -> None:
    ended = launch(RANKS, SCRIPTS / "faults.py", "starter", "600", own_switch=True)
    assert ended.codes == [-9, 3, 3], ended.text
    for rank in (1, 2):
        # And not, 20 s later, that the switch answers nothing.
        assert "SwitchLost" in ended.outputs[rank]
        assert "rank 0 of the process group, which had started switch and controller, has ended" in ended.outputs[rank]


@pytest.mark.timeout(120)
def test_a_killed_switch_that_a_rank_had_started_is_named_by_all_ranks(launch: Launch) -> None:
    ended = launch(RANKS, SCRIPTS / "faults.py", "switch", "600", own_switch=True)
    assert ended.codes == [3] * RANKS, ended.text
    for output in ended.outputs:  # and not, 20 s later, that a switch answers nothing
        assert "SwitchLost after" in output
        assert "the switch that rank 0 of the process group had started has ended" in output


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "how", [pytest.param("raises", marks=pytest.mark.slow), "cleans", pytest.param("exits", marks=pytest.mark.slow)]
)
def test_a_rank_that_ends_with_an_exception_or_an_exit_code_is_named_by_the_others(how: str) -> None:
    # Processes of their own: those of `launch` end without what Python does at the end of a program.
    with socket.socket() as free, contextlib.ExitStack() as stack:
        free.bind(("127.0.0.1", 0))
        places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
        free.close()
        ranks = []
        for rank in range(2):
            environment = {name: value for name, value in os.environ.items() if name not in LOCAL} | places
            ranks.append(
                subprocess.Popen(
                    [sys.executable, str(SCRIPTS / "faults.py"), how, "600"],
                    env={**environment, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
            stack.callback(ranks[-1].kill)
        outputs = [process.communicate(timeout=patience(50))[0] for process in ranks]
    assert [process.returncode for process in ranks] == [3, 1], outputs
    assert "WorkerLost" in outputs[0]
    # `sys.exit` looks like a good end, which is too early here.
    assert ("rank 1 has left the job without an error" if how == "exits" else "rank 1 of job") in outputs[0]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_no_slots_are_kept_for_a_group_whose_first_rank_was_killed(launch: Launch) -> None:
    ended = launch(RANKS, SCRIPTS / "faults.py", "first", "600")
    assert ended.codes == [-9, 3, 3], ended.text
    with ControllerClient(ended.outputs[0].strip()) as client:
        left = client.list_jobs().jobs
        assert left
        assert eventually(lambda: not client.list_jobs().jobs, 60), left


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_late_worker_is_named_when_the_groups_time_is_over(launch: Launch) -> None:
    ended = launch(RANKS, SCRIPTS / "faults.py", "late", str(patience(15)), own_switch=True)
    for rank in (0, 2):
        assert ended.codes[rank] == 3, ended.text
        assert "CollectiveTimeout" in ended.outputs[rank]
        assert "the switch waits for rank 1" in ended.outputs[rank]


@pytest.mark.timeout(120)
def test_infinite_gradients_and_changing_shapes(launch: Launch) -> None:
    assert (
        launch(RANKS, SCRIPTS / "faults.py", "overflow", str(patience(60))).check().count("every rank went on") == RANKS
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", ["interrupted", "backward"])
def test_what_a_signal_handler_raises_ends_in_a_named_error_on_every_rank(launch: Launch, what: str) -> None:
    ended = launch(2, SCRIPTS / "alarmed.py", what)
    assert ended.codes == [0, 0], ended.text
    assert "named: WorkerLost" in ended.outputs[0], ended.text
    assert "named: Interrupted" in ended.outputs[1], ended.text


@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", ["destroyed", "destroyed_with_futures"])
def test_a_signal_handler_may_destroy_the_group_in_the_midst_of_a_collective(launch: Launch, what: str) -> None:
    ended = launch(2, SCRIPTS / "alarmed.py", what)
    assert ended.text.count("cleaned up") == 2, ended.text


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_torchrun_restarts_and_training_goes_on_from_the_checkpoint(
    torchrun: Torchrun,
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
    from switchsum.torch.rendezvous import meet
    from switchsum.torch.store import Meeting

    store = dist.HashStore()
    store.set("switchsum/machine/2", "here")
    with pytest.raises(CollectiveTimeout, match="rank 1, 3 of 4 has not come") as caught:
        meet(Meeting(store, 0, 4, 0.3), pytest.fail)
    assert caught.value.missing == (1, 3)
    with pytest.raises(CollectiveTimeout, match="rank 1, 3 of 4 has not come"):  # what rank 0 has said
        meet(Meeting(store, 2, 4, 0.3), pytest.fail)


def test_every_rank_hears_why_there_is_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    from switchsum.torch import rendezvous
    from switchsum.torch.store import Meeting

    def refuse(place: object, method: str, request: object, reply: object) -> None:
        raise NoCapacity("no 256 slots are free") if method == "CreateJob" else UnknownJob("none of that name")

    monkeypatch.setattr(rendezvous, "_call", refuse)
    store = dist.HashStore()
    place = rendezvous.JobAddress(controller="here:1", link="shm:x", job="j", is_ours=True)
    with pytest.raises(NoCapacity, match="no 256 slots are free"):
        rendezvous.open_job(Meeting(store, 0, 2, patience(5)), place)
    with pytest.raises(NoCapacity, match="rank 0: no 256 slots are free"):
        rendezvous.open_job(Meeting(store, 1, 2, patience(5)), place)


def test_a_controller_that_is_away_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from switchsum.torch import groups, rendezvous

    monkeypatch.setenv("SWITCHSUM_CONTROLLER", f"unix:{tmp_path}/nowhere")
    monkeypatch.setenv("SWITCHSUM_LINK", f"shm:{tmp_path}/nowhere")
    asked: list[str] = []
    call = rendezvous._call

    def note(place: Any, method: str, *values: Any) -> Any:
        asked.append(method)
        return call(place, method, *values)

    monkeypatch.setattr(rendezvous, "_call", note)
    store = dist.HashStore()

    def form(rank: int) -> str:
        with pytest.raises(ControllerUnreachable) as caught:
            groups.form(store, rank, 2, timedelta(seconds=patience(20)), "a")
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(form, range(2)))
    assert all("no controller answers at unix:" in text for text in texts)
    assert asked == ["CreateJob"]  # by rank 0, and no call more when it leaves


def test_who_leaves_says_for_whom_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    from switchsum.torch import rendezvous

    said: list[str] = []

    @contextlib.contextmanager
    def late(what: Any) -> Iterator[None]:
        said.append(what())
        yield
        said.append(what())

    members = [MemberInfo(rank=rank, state=MemberState.ADMITTED) for rank in (1, 2)]
    monkeypatch.setattr(rendezvous, "waiting_for", late)
    monkeypatch.setattr(rendezvous, "LEAVE_S", 0.05)
    monkeypatch.setattr(rendezvous, "_call", lambda *_: SimpleNamespace(members=members))
    rendezvous.await_leaving(rendezvous.JobAddress(controller="here:1", link="shm:x", job="j", is_ours=True))
    assert said == ["the controller to say who is in job 'j'", "ranks 1, 2 of job 'j' to leave"]


def test_ranks_on_several_machines_find_the_controller_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    from switchsum.torch.rendezvous import meet
    from switchsum.torch.store import Meeting

    store = dist.HashStore()
    store.set("switchsum/machine/1", "elsewhere")
    monkeypatch.setenv("SWITCHSUM_CONTROLLER", "there:9560")
    monkeypatch.setenv("SWITCHSUM_LINK", "udp:there")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    place, services = meet(Meeting(store, 0, 2, patience(5)), pytest.fail)
    assert services is None
    assert (place.controller, place.link, place.is_ours) == ("there:9560", "udp:there", True)
    assert place.job.startswith("torch-x-")


def test_a_link_without_a_controller_is_refused_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    from switchsum.torch.rendezvous import meet, this_machine
    from switchsum.torch.store import Meeting

    monkeypatch.delenv("SWITCHSUM_CONTROLLER", raising=False)
    monkeypatch.setenv("SWITCHSUM_LINK", "udp:there")
    store = dist.HashStore()
    store.set("switchsum/machine/1", this_machine())
    with pytest.raises(UsageError, match=r"SWITCHSUM_LINK=udp:there .* set both, or neither"):
        meet(Meeting(store, 0, 2, patience(5)), pytest.fail)


def test_every_machine_hears_why_another_one_has_no_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    from switchsum.torch import services
    from switchsum.torch.rendezvous import meet
    from switchsum.torch.store import Meeting, tell_error

    monkeypatch.delenv("SWITCHSUM_CONTROLLER", raising=False)
    store = dist.HashStore()
    store.set("switchsum/machine/1", "elsewhere")
    started: list[str] = []
    monkeypatch.setattr(services.LocalServices, "start_switch", lambda *_: started.append("switch"))
    tell_error(Meeting(store, 1, 2, patience(5)), "switchsum/part/1", UsageError("no room"))
    with pytest.raises(UsageError, match="rank 1: no room"):
        meet(Meeting(store, 0, 2, patience(5)))
    assert started == ["switch"]
    with pytest.raises(UsageError, match="rank 0: rank 1: no room"):
        meet(Meeting(store, 1, 2, patience(5)))


def test_several_machines_need_certificates(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from switchsum.torch.rendezvous import meet
    from switchsum.torch.store import Meeting

    monkeypatch.delenv("SWITCHSUM_CONTROLLER", raising=False)
    monkeypatch.setitem(sys.modules, "switchsum.launch.authority", None)
    monkeypatch.delattr("switchsum.launch.authority", raising=False)
    store = dist.HashStore()
    store.set("switchsum/machine/1", "elsewhere")
    for rank in range(2):
        with pytest.raises(UsageError, match=r"cryptography on rank 0: pip install 'switchsum\[torch\]'"):
            meet(Meeting(store, rank, 2, patience(5)))
    assert capsys.readouterr().err.count("use gloo for dense float32 here") == 1  # by rank 0


@pytest.mark.parametrize(("machines", "says"), [("ab", True), ("abcd", True), ("aab", False), ("aabb", False)])
def test_one_rank_on_each_machine_is_told_that_a_ring_is_as_good(machines: str, says: bool) -> None:
    from switchsum.torch.switches_of_machines import advice

    assert (advice([*machines]) is not None) == says


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
