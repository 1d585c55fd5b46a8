"""Groups of some ranks: each has its own ranks' sums, and whoever waits in vain hears for whom."""

from __future__ import annotations

import pytest

from support.timing import patience
from switchsum_controller.jobs.registry import MAX_NAME

from .conftest import SCRIPTS, Launch

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")

from switchsum.torch.members import LONGEST, LONGEST_JOB, Made, Members, fitting, job_name, listed  # noqa: E402

dist = torch.distributed


@pytest.mark.timeout(120)
def test_groups_of_other_ranks_are_kept_apart(launch: Launch) -> None:
    ended = launch(4, SCRIPTS / "subgroups.py", str(patience(2)))
    assert ended.check().count("lists are kept apart") == 4
    for rank in range(4):
        own, other = listed(sorted([rank, (rank + 1) % 4])), (rank + 1) % 4
        (line,) = [one for one in ended.outputs[rank].splitlines() if one.startswith("in vain")]
        assert line.startswith(f"in vain: rank {rank} waits in the group [{own}"), line
        assert f"in vain: rank {other} has made " in line
        assert f" and [{listed(sorted([other, (other + 1) % 4]))}" in line
        assert "call new_group with the same list" in line
        assert "resize" not in line


def test_a_process_that_replaces_a_lost_one_meets_those_who_have_made_groups_before(launch: Launch) -> None:
    text = launch(2, SCRIPTS / "replaced.py", str(patience(20))).check()
    for rank in range(2):
        assert f"rank {rank} has [[3, 3, 3], [3, 3, 3]]" in text


def test_names_tell_groups_apart() -> None:
    assert [listed(one) for one in ([0], [0, 1], [0, 1, 2, 3, 8], [3, 2], [0, 2, 4])] == [
        *("0", "0,1", "0-3,8", "3,2", "0,2,4")
    ]
    made = Made(dist.HashStore(), 1)
    lists = [(0, 1), (0, 1, 2), (1, 0), (0, 1), tuple(range(0, 200, 2)), tuple(range(0, 202, 2))]
    names = [made.note(one).job("torch-here") for one in lists]
    assert len(set(names)) == len(names)
    assert all(len(name) <= MAX_NAME for name in names)
    assert names[0] == "torch-here/0,1"
    assert LONGEST == MAX_NAME
    assert len(Members(lists[-1], 99).job(fitting("x" * 300, LONGEST_JOB))) <= MAX_NAME


def test_whoever_waits_in_vain_hears_what_the_others_have_made() -> None:
    store = dist.HashStore()
    made = [Made(store, rank) for rank in range(3)]
    members = made[0].note([0, 1, 2])
    made[1].note([1, 2])
    made[1].note([0, 1, 2])
    said = made[0].compared(members, [1, 2])
    assert said == (
        "rank 0 waits in the group [0-2] in vain: rank 1 has made [1,2] and [0-2]; "
        "rank 2 has made no group of some ranks"
    )


def test_trainings_of_one_name_do_not_share_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    store, other = dist.HashStore(), dist.HashStore()
    first = job_name(dist.PrefixStore("attempt 0/", store))
    assert first.startswith("torch-127.0.0.1-29500-")
    assert job_name(dist.PrefixStore("attempt 1/", store)) == first  # torchrun has restarted it
    assert job_name(other) != first
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "long" * 30)
    assert len(job_name(store)) <= LONGEST_JOB
