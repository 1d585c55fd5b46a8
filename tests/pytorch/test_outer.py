"""Trainings that synchronise every so many steps: DiLoCo, streamed or not, and LocalSGD."""

from __future__ import annotations

import copy
import io
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import pytest

from support.timing import patience
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import communicators
from switchsum_protocol.errors import UsageError

from .conftest import RANKS, SCRIPTS, Launch

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
from switchsum.torch import DiLoCo, LocalSGD  # noqa: E402  (it needs torch)

nn = torch.nn
STEPS, EVERY = 14, 6
_SEEDING = threading.Lock()


@pytest.fixture
def ranks() -> Iterator[Callable[[float], list[Any]]]:
    """Communicators, of whose frames a share is lost."""
    made: list[Any] = []

    def make(loss: float = 0.0) -> list[Any]:
        config = ClusterConfig(workers=RANKS, lanes_per_frame=256, window_slots=16, timeout_s=patience(50))
        made.extend(communicators(RANKS, config=config, loss=loss))
        return made

    yield make
    for one in made:
        one.close()


def network(seed: int) -> Any:
    with _SEEDING:  # ranks are threads
        torch.manual_seed(seed)
        return nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 40), nn.Tanh(), nn.Linear(40, 3))


def batch(rank: int, step: int) -> Any:
    return torch.randn(16, 8, generator=torch.Generator().manual_seed(1000 * rank + step))


class Rank:
    """A rank that trains a model of its own to sort what it is given."""

    def __init__(self, rank: int, make: Callable[[Any, Any], Any]) -> None:
        self.rank, self.model = rank, network(seed=rank)  # unlike the others' until the first ones are shared
        self.inner = torch.optim.AdamW(self.model.parameters(), 0.01)
        self.synchronised = make(self.model, self.inner)

    def train(self, first: int, last: int) -> None:
        for step in range(first, last):
            self.step(step)

    def step(self, step: int) -> None:
        given = batch(self.rank, step)
        self.inner.zero_grad()
        nn.functional.cross_entropy(self.model(given), given[:, :3].argmax(1)).backward()
        self.inner.step()

    @property
    def outer(self) -> list[bytes]:
        """All outer parameters, fragment by fragment, bit by bit."""
        return [b"".join(bits(one) for one in fragment.outer) for fragment in self.synchronised.fragments]

    @property
    def whole(self) -> bytes:
        """The model, buffers and all."""
        return b"".join(bits(one) for one in self.model.state_dict().values())


def bits(tensor: Any) -> bytes:
    data: bytes = tensor.detach().numpy().tobytes()
    return data


def on_ranks(groups: list[Any], function: Callable[[int, Any], Any]) -> list[Any]:
    """Call a function for each rank and its group, in threads of their own."""
    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(function, range(RANKS), groups))


def restart_switch(communicators: list[Any]) -> None:
    """Have the switch forget all rounds, and tell every rank, as heartbeats do."""
    network = communicators[0].queue.driver.transport._network
    with network._lock:
        network._switch.clear()
    for one in communicators:
        one.queue.membership.loads += 1
        one.queue.membership.on_heartbeat()


@pytest.mark.parametrize(
    ("fragments", "delay", "how", "loss"),
    [
        pytest.param(1, 0, None, 0.0, id="whole"),
        pytest.param(2, 0, "int10", 0.02, id="loss"),
        pytest.param(3, 2, "int10", 0.02, id="loss-and-restarts"),
        pytest.param(2, 5, "topk:0.1", 0.0, id="topk"),
    ],
)
def test_outer_parameters_have_the_same_bits_after_each_outer_step_and_models_in_the_end(
    ranks: Callable[[float], list[Any]], fragments: int, delay: int, how: str | None, loss: float
) -> None:
    def train(rank: int, group: Any) -> tuple[list[Any], list[bytes], bytes]:
        made = Rank(
            rank, lambda *own: DiLoCo(*own, every=EVERY, fragments=fragments, delay=delay, how=how, group=group)
        )
        trail = [(made.outer, [fragment.steps for fragment in made.synchronised.fragments])]
        locals_ = []
        for step in range(STEPS):
            made.step(step)
            if rank == 0 and (fragments, loss) == (3, 0.02):
                restart_switch(groups)
            trail.append((made.outer, [fragment.steps for fragment in made.synchronised.fragments]))
            locals_.append(made.whole)
        made.synchronised.finish()
        return trail, locals_, made.whole

    groups = ranks(loss)
    trails, locals_, ends = zip(*on_ranks(groups, train), strict=True)
    assert trails == (trails[0],) * RANKS
    counts = [counts for _, counts in trails[0]]
    # A fragment's outer steps are begun after every sixth step, those of others in between, and end `delay` later.
    offsets = [(number + 1) * EVERY // fragments for number in range(fragments)]
    expected = [[len(range(offset, done + 1 - delay, EVERY)) for offset in offsets] for done in range(STEPS + 1)]
    assert counts == expected
    changes = [after != before for (before, _), (after, _) in pairwise(trails[0])]
    assert changes == [after != before for before, after in pairwise(counts)]
    assert len({one[2] for one in locals_}) == RANKS  # between outer steps each is on its own
    assert ends == (ends[0],) * RANKS
    assert ends[0] not in {one[-1] for one in locals_}


def by_hand(steps: int, rate: float, momentum: float) -> list[Any]:
    """Return what DiLoCo in one fragment comes to, with an optimizer of torch on averages of torch."""
    models = [network(seed=0) for _ in range(RANKS)]
    outer = network(seed=0)
    inners = [torch.optim.AdamW(model.parameters(), 0.01) for model in models]
    optimizer = torch.optim.SGD(outer.parameters(), rate, momentum=momentum, nesterov=momentum > 0)
    for step in range(steps):
        for rank, (model, inner) in enumerate(zip(models, inners, strict=True)):
            given = batch(rank, step)
            inner.zero_grad()
            nn.functional.cross_entropy(model(given), given[:, :3].argmax(1)).backward()
            inner.step()
        if (step + 1) % EVERY == 0:
            for one, *own in zip(outer.parameters(), *(model.parameters() for model in models), strict=True):
                one.grad = torch.stack([one.detach() - each.detach() for each in own]).mean(0)
            optimizer.step()
            with torch.no_grad():
                for model in models:
                    for one, each in zip(outer.parameters(), model.parameters(), strict=True):
                        each.copy_(one)
    return [one.detach() for one in outer.parameters()]


@pytest.mark.parametrize("kind", [DiLoCo, LocalSGD])
def test_it_is_what_the_paper_says(ranks: Callable[[], list[Any]], kind: Any) -> None:
    def train(rank: int, group: Any) -> list[Any]:
        options = {} if kind is LocalSGD else {"fragments": 1}
        made = Rank(rank, lambda *own: kind(*own, every=EVERY, how=None, group=group, **options))
        made.train(0, 2 * EVERY)
        return [one.detach() for one in made.model.parameters()]

    expected = by_hand(2 * EVERY, *((1.0, 0.0) if kind is LocalSGD else (0.7, 0.9)))
    found = on_ranks(ranks(), train)
    for own in found:
        for one, other in zip(own, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_what_a_rank_learns_while_an_average_is_under_way_stays(ranks: Callable[[], list[Any]]) -> None:
    """With outer steps of nothing, streaming leaves each rank's own training as it is."""

    def nothing(parameters: Any) -> Any:
        return torch.optim.SGD(parameters, 0.0)

    def train(rank: int, group: Any) -> tuple[list[Any], list[Any]]:
        made = Rank(
            rank,
            lambda model, inner: DiLoCo(model, inner, nothing, every=4, fragments=1, delay=3, how=None, group=group),
        )
        made.train(0, 4)
        before = [one.detach().clone() for one in made.model.parameters()]
        start = [one.clone() for one in made.synchronised.fragments[0].outer]
        made.train(4, 7)
        after = [one.detach().clone() for one in made.model.parameters()]
        alone = Rank(rank, lambda *own: None)
        alone.model.load_state_dict(network(seed=0).state_dict())
        alone.train(0, 4)
        for one, other in zip(before, alone.model.parameters(), strict=True):
            assert torch.equal(one, other)
        alone.train(4, 7)
        drifted = zip(start, before, alone.model.parameters(), strict=True)
        return after, [one.detach() + (late.detach() - early) for one, early, late in drifted]

    for after, expected in on_ranks(ranks(), train):
        for one, other in zip(after, expected, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("stop", [6, 8])
def test_a_checkpoint_goes_on_bit_for_bit_also_while_an_average_is_under_way(
    ranks: Callable[[], list[Any]], stop: int
) -> None:
    def train(rank: int, group: Any) -> tuple[bytes, bytes, bool]:
        def make(*own: Any) -> Any:
            return DiLoCo(*own, every=EVERY, fragments=2, delay=3, how="topk:0.2", group=group)

        first = Rank(rank, make)
        first.train(0, stop)
        saved = io.BytesIO()
        parts = (first.model, first.inner, first.synchronised)
        torch.save([part.state_dict() for part in parts], saved)
        is_under_way = any(fragment.under_way for fragment in first.synchronised.fragments)
        first.train(stop, STEPS)
        first.synchronised.finish()
        second = Rank(rank, make)
        saved.seek(0)
        for part, state in zip(
            (second.model, second.inner, second.synchronised), torch.load(saved, weights_only=True), strict=True
        ):
            part.load_state_dict(state)
        second.train(stop, STEPS)
        second.synchronised.finish()
        return first.whole, second.whole, is_under_way

    for whole, again, is_under_way in on_ranks(ranks(), train):
        assert whole == again
        assert is_under_way


def test_a_checkpoint_of_another_model_is_refused(ranks: Callable[[], list[Any]]) -> None:
    def load(rank: int, group: Any) -> None:
        made = Rank(rank, lambda *own: DiLoCo(*own, group=group))
        state = copy.deepcopy(made.synchronised.state_dict())
        state["fragments"].append(state["fragments"][0])
        with pytest.raises(UsageError, match="has 3 fragments, not 2"):
            made.synchronised.load_state_dict(state)
        state["fragments"] = state["fragments"][1:]
        with pytest.raises(UsageError, match="made with other fragments"):
            made.synchronised.load_state_dict(state)

    on_ranks(ranks(), load)


@pytest.mark.parametrize(
    ("widths", "count", "sizes"),
    [
        ([20] * 13, 4, [1260] * 4),
        ([4, 100, 3], 4, [200, 201, 199, 203]),  # rows of 4, 1, 100 and 1 value
        ([9, 1, 1], 3, [9, 1, 2]),  # one row that is larger than all others together
        ([1, 1], 2, [1, 1]),
    ],
)
def test_fragments_have_the_same_size_up_to_a_row(widths: list[int], count: int, sizes: list[int]) -> None:
    model = nn.Sequential(*(nn.Linear(one, other) for one, other in pairwise(widths)))
    (alone,) = communicators(1)
    diloco = DiLoCo(model, torch.optim.SGD(model.parameters(), 0.1), fragments=count, group=alone)
    assert [fragment.size for fragment in diloco.fragments] == sizes
    own = [piece for fragment in diloco.fragments for piece in fragment.own()]
    whole = torch.cat([one.detach().reshape(-1) for one in model.parameters()])
    assert torch.equal(torch.cat([piece.reshape(-1) for piece in own]), whole)  # every value once, in order
    assert len({name for fragment in diloco.fragments for name in fragment.names}) == len(own)
    for piece in own:
        piece.zero_()
    assert not any(one.any() for one in model.parameters())  # in the model's memory


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"every": 0}, "every is a whole number from 1 on, not 0"),
        ({"fragments": 1.5}, "fragments is a whole number from 1 on, not 1.5"),
        ({"delay": -1}, "delay is a whole number from 0 on"),
        ({"every": 3, "fragments": 4}, "4 fragments need every of at least 4 steps, not 3"),
        ({"every": 5, "delay": 5}, "choose a delay below every=5"),
        ({"every": 200, "fragments": 103}, "a model with 102 rows of parameters to train has no 103 fragments"),
        ({"how": "gzip"}, "no compression 'gzip'"),
        ({"outer": "sgd"}, "outer is a function that returns an optimizer for parameters"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], text: str) -> None:
    (alone,) = communicators(1)
    model = network(0)
    inner = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(UsageError, match=text):
        DiLoCo(model, inner, group=alone, **options)


def test_without_the_hook_the_optimizer_is_as_before(ranks: Callable[[], list[Any]]) -> None:
    def train(rank: int, group: Any) -> int:
        made = Rank(rank, lambda *own: LocalSGD(*own, every=2, group=group))
        made.synchronised.remove()
        made.train(0, 4)
        steps: int = made.synchronised.step
        return steps

    assert on_ranks(ranks(), train) == [0] * RANKS


@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", ["wrapped", "shards", "gloo", "accelerate", "lightning"])
def test_within_other_peoples_loops(launch: Launch, what: str) -> None:
    if what in ("accelerate", "lightning") and find_spec(what) is None:
        pytest.skip(f"{what} is not installed (the extra train)")
    size = 4 if what == "shards" else 2
    assert launch(size, SCRIPTS / "outer.py", what).check().count("the same bits on every rank") == size
