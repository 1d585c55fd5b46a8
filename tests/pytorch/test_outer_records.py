"""Ranks whose outer steps differ all hear of it; a new argument is compared, or says why it need not be."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from support.timing import patience
from switchsum.testing import on_ranks
from switchsum_protocol.errors import OperationMismatch

from .conftest import SCRIPTS, Launch

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
from switchsum.torch import Average, DiLoCo, LocalSGD  # noqa: E402
from switchsum.torch.outer_quorum import OuterTerms  # noqa: E402
from switchsum.torch.records import RANKS_MAY_DIFFER, Outer, groups_of, state_of  # noqa: E402

ALIKE = Outer(kind="DiLoCo", every=4, fragments=2, delay=0, how="Packed()", quorum=None, patience_s=None)


def sgd(rate: float, **more: Any) -> Callable[[Any], Any]:
    return lambda parameters: torch.optim.SGD(parameters, rate, **more)


class Training:
    """A rank's training."""

    def __init__(self, comm: Any, kind: Any = DiLoCo, **options: Any) -> None:
        self.model = torch.nn.Linear(6, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05)
        self.outer = kind(self.model, self.optimizer, group=comm, **{"every": 4} | options)

    def train(self, steps: int, skips: int = -1) -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(steps):
            loss = self.model(torch.ones(5, 6)).square().mean() * (float("inf") if step == skips else 1.0)
            scaler.scale(loss).backward()
            scaler.step(self.optimizer)
            scaler.update()
            self.optimizer.zero_grad()


def mismatches(call: Callable[[Any], object]) -> list[str]:
    def run(comm: Any) -> str:
        with pytest.raises(OperationMismatch) as caught:
            call(comm)
        return str(caught.value)

    return on_ranks(2, run)


DIFFERENT: dict[str, dict[str, Any]] = {
    "every": {"every": 5},
    "fragments": {"fragments": 1},
    "delay": {"delay": 2},
    "how": {"how": "int8"},
    "how, none": {"how": None},
    "kind": {"kind": LocalSGD},
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_settings_that_differ_are_named_before_the_training_begins(name: str) -> None:
    for error in mismatches(lambda comm: Training(comm, **(DIFFERENT[name] if comm.rank else {}))):
        assert "rank 0 issued DiLoCo(every=4, fragments=2, delay=0, how=Packed(" in error
        assert "rank 1 issued " in error


@pytest.mark.parametrize(
    "other", [sgd(0.5, momentum=0.9, nesterov=True), sgd(0.7), lambda parameters: torch.optim.Adam(parameters, 0.7)]
)
def test_outer_optimizers_that_differ_are_named(other: Any) -> None:
    def train(comm: Any) -> None:
        Training(comm, **({"outer": other} if comm.rank else {})).train(4)

    own, others = mismatches(train)
    assert "outer step 1 after 2 steps, fragment 1 of 2, with SGD(lr=0.7, momentum=0.9, nesterov=True)" in own
    assert "with SGD(lr=0.7, momentum=0.9, nesterov=True)" not in others


@pytest.mark.parametrize(("first", "second"), [(10, 6), (10, 9)])
def test_checkpoints_of_other_steps_never_end_in_other_models(first: int, second: int) -> None:
    def train(comm: Any) -> None:
        before, states = Training(comm, fragments=1), {}
        for step in range(1, 11):
            before.train(1)
            states[step] = copy.deepcopy(before.outer.state_dict())
        before.outer.remove()
        after = Training(comm, fragments=1)
        after.outer.load_state_dict(states[second if comm.rank else first])
        after.train(8)
        after.outer.finish()

    own, others = mismatches(train)
    assert own != others or ("18 steps" in own and "17 steps" in own)


@pytest.mark.parametrize("part", ["momentum", "outer parameters"])
def test_a_state_that_differs_at_the_same_step_is_named(part: str) -> None:
    """As with a checkpoint that was put together from two, or an outer optimizer that one rank has reset."""

    def train(comm: Any) -> None:
        made = Training(comm, fragments=1)
        made.train(4)
        (fragment,) = made.outer.fragments
        for one in fragment.outer if comm.rank else ():
            with torch.no_grad():
                (fragment.optimizer.state[one]["momentum_buffer"] if part == "momentum" else one).mul_(1.001)
        made.train(4)

    (own,), (others,) = (re.findall(r"from the state (\[\w+\])", error) for error in mismatches(train))
    assert own != others


def test_equal_states_have_equal_digests_whatever_their_tensors_are() -> None:
    tensors = [torch.ones(3), torch.ones(2, 2, dtype=torch.bfloat16), torch.zeros(0), torch.tensor(2.0)]
    for make in (sgd(0.1, momentum=0.9), lambda parameters: torch.optim.Adam(parameters, 0.1)):
        states = []
        for factor in (1.0, 1.0, 2.0):
            parameters = [one.clone().requires_grad_() for one in tensors]
            optimizer = make(parameters)
            for one in parameters:
                one.grad = factor * torch.ones_like(one)
            optimizer.step()
            states.append(state_of(optimizer, parameters))
        assert states[0] == states[1] != states[2]


@pytest.mark.parametrize(("first", "second"), [(20, 19), (11, 10)])
def test_other_numbers_of_steps_are_one_error_with_both(first: int, second: int) -> None:
    def train(comm: Any) -> None:
        made = Training(comm, every=50)
        made.train(second if comm.rank else first)
        made.outer.finish()

    text = f"rank 0 issued DiLoCo.finish() after {first} steps; rank 1 issued DiLoCo.finish() after {second} steps"
    assert [re.sub(r" \[\w+\]", "", error) for error in mismatches(train)] == [text] * 2


def test_a_step_that_a_scaler_skips_is_a_step_of_that_rank() -> None:
    def train(comm: Any) -> tuple[int, list[float]]:
        made = Training(comm)
        made.train(9, skips=3 if comm.rank else -1)
        made.outer.finish()
        model = made.model.weight.flatten().tolist()
        made.outer.remove()
        made.train(2, skips=1)  # whose steps count no more
        return made.outer.step, model

    (steps, model), (others, other_model) = on_ranks(2, train)
    assert steps == others == 9
    assert model == other_model


def test_averages_compare_names_and_dtypes() -> None:
    for other in ({"names": ("b", "a")}, {"dtype": torch.float16}):

        def average(comm: Any, other: dict[str, Any] = other) -> None:
            mine = {"names": ("a", "b"), "dtype": torch.float32} | (other if comm.rank else {})
            Average(None, comm)([torch.ones(3, dtype=mine["dtype"]) for _ in range(2)], names=mine["names"])

        assert all("an average of 2 tensors" in error for error in mismatches(average))


def test_every_argument_of_an_outer_training_is_compared_or_says_why_not() -> None:
    """`outer` is compared by the optimizer that it makes, in each outer step."""
    given = {*inspect.signature(DiLoCo.__init__).parameters, *inspect.signature(LocalSGD.__init__).parameters}
    given = given - {"self", "terms"} | OuterTerms.__annotations__.keys()
    compared = {one.name for one in fields(Outer)} - {"kind"} | {"outer"}
    assert compared | RANKS_MAY_DIFFER.keys() == given
    assert not compared & RANKS_MAY_DIFFER.keys()
    assert all(RANKS_MAY_DIFFER.values())


@pytest.mark.parametrize("name", [one.name for one in fields(Outer)])
def test_every_setting_is_in_the_record_of_a_beginning_and_of_a_step(name: str) -> None:
    [optimizer] = [torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)]
    value = getattr(ALIKE, name)
    changed: dict[str, Any] = {name: f"{value}!" if isinstance(value, str) else (value or 0) + 1}
    other = replace(ALIKE, **changed)
    assert other.made([]).text != ALIKE.made([]).text
    assert other.step(4, 0, 1, optimizer).text != ALIKE.step(4, 0, 1, optimizer).text


def test_all_that_an_optimizer_was_told_is_in_the_record_of_a_step() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
    before = ALIKE.step(4, 0, 1, optimizer).text
    for name, value in groups_of(optimizer)[0].items():
        optimizer.param_groups[0][name] = 0.25 if not isinstance(value, bool) else not value
        assert ALIKE.step(4, 0, 1, optimizer).text != before, name
        optimizer.param_groups[0][name] = value
    for others in ((5, 0, 1), (4, 1, 1), (4, 0, 2)):
        assert ALIKE.step(*others, optimizer).text != before


@pytest.mark.timeout(patience(120))
def test_over_gloo_ranks_that_differ_raise_the_same_and_never_end_with_other_models(launch: Launch) -> None:
    ended = launch(2, SCRIPTS / "differ.py", patience(60))
    ended.check()
    said = [dict(line.split(": ", 1) for line in one.splitlines() if ": " in line) for one in ended.outputs]
    for name in ("alike", "streamed", "skipped"):
        assert [one[name] for one in said] == ["8 steps, the same model"] * 2
    names = {"steps", "last steps", "every", "fragments", "outer", "class", "names", "streamed, outer"}
    assert {name for name in said[0] if said[0][name].startswith("OperationMismatch rank 0 issued ")} == names
    assert said[0] == said[1]
    assert "after 20 steps" in said[0]["steps"]
    assert "DiLoCo.finish() after 19 steps" in said[0]["steps"]
