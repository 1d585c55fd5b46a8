"""Ranks that die and others that come, while the rest train on."""

from __future__ import annotations

import re
from typing import Any

import pytest

from support.timing import patience
from switchsum_protocol.errors import UsageError

from .conftest import SCRIPTS, Launch

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
from switchsum.torch import ElasticGroup  # noqa: E402  (it needs torch)

KILLED = -9


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("victim", "then"), [(1, "builds"), (0, "comes"), (2, "vanishes")])
def test_a_rank_that_dies_is_left_out_and_one_that_comes_gets_the_model(launch: Launch, victim: int, then: str) -> None:
    seconds = patience(4) if then == "vanishes" else patience(30)
    ended = launch(4, SCRIPTS / "comes_and_goes.py", victim, then, seconds)
    assert ended.codes == [KILLED if rank == victim else 0 for rank in range(4)], ended.text
    said = re.findall(r"sizes (\[.*?\]), after (\d+) more steps (\w+)", ended.text)
    expected = ["[3, 2]", "[3, 2]"] if then == "vanishes" else ["[3, 2, 3]", "[3, 2, 3]", "[3]"]
    assert [sizes for sizes, _, _ in said] == expected, ended.text
    assert {steps for _, steps, _ in said} == {"21"}
    assert len({digest for _, _, digest in said}) == 1, ended.text
    assert "ranks have died; 2 go on" in ended.text
    assert ("no new rank has come after all" in ended.text) == (then == "vanishes")
    if then == "vanishes":  # the others wait for all of their patience
        assert re.search(r"waiting for rank 2 of job '.*' to come in, for up to", ended.text), ended.text


@pytest.mark.parametrize(
    ("given", "variables", "text"),
    [
        ({"link": "shm:x"}, {}, "no job: pass ElasticGroup"),
        ({"job": "a"}, {}, "no link: pass ElasticGroup"),
        ({"job": "a", "link": "shm:x", "rank": 0}, {}, "no world_size: pass ElasticGroup"),
        ({"job": "a", "link": "shm:x"}, {"RANK": "first"}, "RANK is 'first', which is no number"),
        # Ranks that mpirun or srun has started are first ranks, and do not wait to be taken in.
        ({"job": "a", "link": "shm:x"}, {"OMPI_COMM_WORLD_RANK": "0"}, "set OMPI_COMM_WORLD_SIZE"),
        ({"job": "a", "link": "shm:x"}, {"SLURM_PROCID": "1"}, "set SLURM_NTASKS"),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], variables: dict[str, str], text: str
) -> None:
    launchers = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "SLURM_PROCID")
    for name in ("SWITCHSUM_JOB", "SWITCHSUM_LINK", *launchers, "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=text):
        ElasticGroup(controller="unix:/nowhere", **given)


@pytest.mark.timeout(120)
def test_torchft_forms_its_group_anew_for_each_quorum(launch: Launch) -> None:
    pytest.importorskip("torchft", reason="torchft is not installed")
    text = launch(3, SCRIPTS / "quorums.py", own_switch=True).check()
    assert text.count("2 quorums of torchft-switchsum") == 3
