"""DistributedDataParallel with a hook: what is not sent stays until it is, also over a checkpoint."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook, fp16_compress_wrapper
from torch.nn.parallel import DistributedDataParallel

from switchsum import Communicator, Handle
from switchsum.torch import compress as compress_by_name
from switchsum.torch import hooks
from switchsum_host import compress
from switchsum_protocol.errors import UsageError


@dataclass
class Part:
    """Every second value of a gradient under way."""

    handles: Sequence[Handle]
    values: npt.NDArray[np.float32]
    phase: int
    size: int

    def finish(self) -> npt.NDArray[np.float32]:
        """Return the average, zero where nothing was sent."""
        whole = np.zeros(self.size, np.float32)
        whole[self.phase :: 2] = self.values
        return whole


class EverySecond:
    """Sends the even values in one step and the odd ones in the next; a residual keeps the others."""

    def __init__(self) -> None:
        self.residuals: dict[str, npt.NDArray[Any]] = {}
        self.steps: dict[str, int] = {}

    def begin(self, communicator: Communicator, key: str, gradient: npt.NDArray[np.float32]) -> Part:
        """Send half of it."""
        rest = gradient + self.residuals.get(key, np.zeros_like(gradient))
        phase = self.steps.get(key, 0) % 2
        self.steps[key] = self.steps.get(key, 0) + 1
        values = rest[phase::2].copy()
        rest[phase::2] = 0
        self.residuals[key] = rest
        return Part([communicator.allreduce_async(values, "average")], values, phase, len(gradient))

    def state_dict(self) -> Mapping[str, npt.NDArray[Any]]:
        """Return residuals, and how far each bucket is."""
        return {**self.residuals, **{f"step {key}": np.array(value) for key, value in self.steps.items()}}

    def load_state_dict(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on from there."""
        self.steps = {key.removeprefix("step "): int(value) for key, value in state.items() if key.startswith("step ")}
        self.residuals = {key: value for key, value in state.items() if not key.startswith("step ")}


def gradients(hook: object, steps: int) -> list[torch.Tensor]:
    """Return the averaged gradient of each step of a linear model, whose own gradient is its input."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1, bias=False))
    model.register_comm_hook(None, hook)
    found = []
    for step in range(steps):
        model.zero_grad()
        model(torch.full((1, 8), step + dist.get_rank() + 1.0)).sum().backward()
        found.append(model.module.weight.grad.reshape(-1).clone())
    return found


def check_residuals() -> None:
    """Half of the values arrive in each step, and nothing is lost."""
    mean = (dist.get_world_size() - 1) / 2
    hook = hooks.compressed(EverySecond())
    first, second = gradients(hook, 2)
    assert first.tolist() == [1 + mean, 0] * 4
    assert second.tolist() == [0, (1 + mean) + (2 + mean)] * 4
    saved = io.BytesIO()
    torch.save(hook.state_dict(), saved)
    saved.seek(0)
    other = hooks.compressed(EverySecond())
    other.load_state_dict(torch.load(saved))
    for one in (hook, other):
        (third,) = gradients(one, 1)
        assert third.tolist() == [(2 + mean) + (1 + mean), 0] * 4


class Sometimes(nn.Module):
    """A layer that only some steps use, in a bucket with one that all do."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes = nn.Linear(8, 1, bias=False), nn.Linear(8, 1, bias=False)

    def forward(self, data: torch.Tensor, uses_both: bool) -> torch.Tensor:
        """Return a sum whose gradients are the data."""
        return self.always(data).sum() + (self.sometimes(data).sum() if uses_both else 0)


def check_unused_parameters() -> None:
    """What is kept of a parameter stays while DistributedDataParallel takes no average of it."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for how in ("topk:0.1", "oktopk:0.1", "blocktopk:0.1", "powersgd:1"):
        model = DistributedDataParallel(Sometimes(), find_unused_parameters=True)
        hook = compress_by_name(model, how)
        arrived = {name: torch.zeros(8) for name in ("always", "sometimes")}
        wanted = {name: torch.zeros(8) for name in arrived}
        for step in range(7):
            inputs = [
                torch.randn(1, 8, generator=torch.Generator().manual_seed(step * ranks + one)) for one in range(ranks)
            ]
            uses = [step % 2 == 0 and (step % 4 == 0 or one == 0) for one in range(ranks)]  # all, or the first one
            model.zero_grad()
            model(inputs[rank], uses[rank]).backward()
            for name, layer in (("always", model.module.always), ("sometimes", model.module.sometimes)):
                if layer.weight.grad is not None:
                    arrived[name] += layer.weight.grad[0]
                wanted[name] += (
                    sum(one[0] for one, used in zip(inputs, uses, strict=True) if used or name == "always") / ranks
                )
        assert isinstance(hook.compressor, compress.ErrorFeedback)
        for name, total in arrived.items():
            lost = torch.from_numpy(hook.compressor.lost(f"{name}.weight/1x8")).reshape(-1) / ranks
            dist.all_reduce(lost)
            assert torch.allclose(total + lost, wanted[name], atol=1e-5), (how, name, total + lost, wanted[name])


class Branches(nn.Module):
    """Layers side by side, used in the other order than that of their definition, so that buckets are made anew."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(30, 20), nn.Linear(30, 25), nn.Linear(30, 10)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """Return a sum whose gradients do not depend on parameters."""
        return self.third(data).sum() + self.second(data).sum() + self.first(data).sum()


class Noting(hooks.CompressedHook):
    """A hook that notes what each bucket has."""

    def __init__(self, compressor: hooks.Compressor, model: nn.Module | None = None) -> None:
        super().__init__(compressor, model=model)
        self.buckets: list[list[str]] = []

    def _parts(self, bucket: dist.GradBucket) -> list[compress.Part]:
        parts = super()._parts(bucket)
        self.buckets.append([part.key for part in parts])
        return parts


def restarted(hook: Noting, make: Callable[[nn.Module], Noting]) -> tuple[DistributedDataParallel, Noting]:
    """Return a model and a hook that go on with a checkpoint of another one's state."""
    saved = io.BytesIO()
    torch.save(hook.state_dict(), saved)
    saved.seek(0)
    model = Branches()
    other = make(model)
    other.load_state_dict(torch.load(saved))
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.001)
    parallel.register_comm_hook(None, other)
    return parallel, other


def check_new_buckets() -> None:
    """A residual stays with its parameter where buckets are made anew, and where a checkpoint begins with the first."""
    makers: list[Callable[[nn.Module], Noting]] = [
        lambda _: Noting(EverySecond()),
        lambda _: Noting(compress.ErrorFeedback(compress.TopK(0.3))),
        lambda model: Noting(compress.ErrorFeedback(compress.TopK(0.3)), model),
    ]
    for make in makers:
        hook = make(Branches())
        sums, given = [torch.zeros(one.shape) for one in Branches().parameters()], 0.0
        for _ in range(2):
            model, hook = restarted(hook, make)
            for step in range(3):
                model.zero_grad()
                model(torch.full((2, 30), step + dist.get_rank() + 1.0)).backward()
                given += step + (dist.get_world_size() + 1) / 2
                for total, one in zip(sums, model.parameters(), strict=True):
                    total.add_(one.grad)
            buckets = len(hook.buckets) // 3
            assert hook.buckets[:buckets] != hook.buckets[buckets : 2 * buckets]
        own = hook.compressor
        kept = own.residuals if isinstance(own, EverySecond) else own.state_dict()["lost"]
        assert len(kept) == len(sums), kept.keys()
        residual = torch.tensor(sum(float(one.sum()) for one in kept.values()))
        dist.all_reduce(residual, dist.ReduceOp.AVG)
        # Each weight's gradient is twice the input, each bias' gradient two.
        expected = sum(one.numel() * (2 * given if one.dim() > 1 else 2 * 6) for one in sums)
        found = sum(float(one.sum()) for one in sums) + float(residual)
        assert abs(found - expected) < 1e-4 * expected, (found, expected)


COMPRESSORS: dict[str, Callable[[], compress.Compressor]] = {
    "BlockScaled": compress.BlockScaled,
    "BlockTopK": lambda: compress.BlockTopK(0.5, block=32),
    "DeepGradientCompression": lambda: compress.DeepGradientCompression(0.1),
    "ErrorFeedback": lambda: compress.ErrorFeedback(compress.TopK(0.1)),
    "GlobalTopK": lambda: compress.ErrorFeedback(compress.GlobalTopK(0.1)),
    "Packed": compress.Packed,
    "PowerSgd": lambda: compress.ErrorFeedback(compress.PowerSgd(2)),
    "Qsgd": compress.Qsgd,
    "TernGrad": compress.TernGrad,
    "Thc": lambda: compress.ErrorFeedback(compress.Thc()),
    "ThresholdTopK": lambda: compress.ErrorFeedback(compress.ThresholdTopK(0.1)),
    "TopK": lambda: compress.TopK(0.1),
}


def losses(model: DistributedDataParallel, steps: int) -> list[float]:
    """Train a model that is to return what it is given."""
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    data = torch.randn(32, 16, generator=torch.Generator().manual_seed(dist.get_rank()))
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def check_every_compressor() -> None:
    """Each learns, gives every rank the same parameters, and its state goes into a checkpoint and back."""
    assert {*COMPRESSORS, "Communicates", "Compressor", "Exchanged", "Part", "CompressorState"} == set(compress.__all__)
    for name, make in COMPRESSORS.items():
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16)))
        hook = hooks.compressed(make())
        model.register_comm_hook(None, hook)
        found = losses(model, 20)
        assert found[-1] < found[0], (name, found)
        parameters = torch.cat([value.detach().reshape(-1) for value in model.parameters()])
        everybody = [torch.empty_like(parameters) for _ in range(dist.get_world_size())]
        dist.all_gather(everybody, parameters)
        assert all(torch.equal(one, parameters) for one in everybody), name
        saved = io.BytesIO()
        torch.save(hook.state_dict(), saved)
        saved.seek(0)
        other = hooks.compressed(make())
        other.load_state_dict(torch.load(saved))
        np.testing.assert_equal(other.compressor.state_dict(), hook.compressor.state_dict(), name)


def check_names() -> None:
    """A line is enough; ranks have the same parameters, and a second one is refused."""
    for how in (
        "int8",
        "int16:32",
        "int10",
        "thc",
        "thc:4",
        "blocks:32+int16",
        "topk:0.1+int16",
        "topk:0.1+int16+keep",
        "oktopk:0.1",
        "globaltopk:0.1",
        "blocktopk:0.5+int8",
        "dgc:0.1+int16",
    ):
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16)))
        hook = compress_by_name(model, how)
        found = losses(model, 20)
        assert found[-1] < found[0], (how, found)
        parameters = torch.cat([value.detach().reshape(-1) for value in model.parameters()])
        everybody = [torch.empty_like(parameters) for _ in range(dist.get_world_size())]
        dist.all_gather(everybody, parameters)
        assert all(torch.equal(one, parameters) for one in everybody), how
        assert isinstance(hook.state_dict(), dict)
    with pytest.raises(UsageError, match="already"):
        compress_by_name(model, "int16")


def check_layers() -> None:
    """Bytes and errors of each layer: a step in two is averaged whole as well."""
    errors: dict[str, float] = {}
    for how, least, most in (
        ("int8", 0.7, 0.8),
        ("int10", 0.6, 0.67),
        ("thc", 0.7, 0.75),
        ("thc:4", 0.83, 0.88),
        ("topk:0.01", 0.88, 0.99),  # a value in 100 takes four bytes and one for its place: 1.3 %, and headers
    ):
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 2048), nn.Tanh(), nn.Linear(2048, 16)))
        hook = compress_by_name(model, how, check_every=2)
        losses(model, 4)
        layers = hook.statistics()
        assert {name.partition("/")[0] for name in layers} == {"0.weight", "0.bias", "2.weight", "2.bias"}
        assert all(one.exchanges == 4 and one.whole_bytes == 16 * one.values for one in layers.values())
        sent, whole = sum(one.sent_bytes for one in layers.values()), sum(one.whole_bytes for one in layers.values())
        assert least < 1 - sent / whole < most, (how, sent / whole)
        errors[how] = layers["2.weight/16x2048"].error or 0.0
        arrived = [one.arrived or 0 for one in layers.values()]
        assert (max(arrived) < 0.9) == (how == "topk:0.01"), (how, arrived)
        assert str(layers).count("%") == 8
    assert 0 < errors["int10"] < errors["int8"] < errors["topk:0.01"], errors
    with pytest.raises(UsageError, match="check_every must be"):
        hooks.compressed(compress.TopK(0.1), check_every=-1)
    half: Any = 1.5
    with pytest.raises(UsageError, match="check_every must be"):
        hooks.compressed(compress.TopK(0.1), check_every=half)


def check_narrow_lanes() -> None:
    """Half the bytes, and the values to within the lanes' precision."""
    mean = (dist.get_world_size() - 1) / 2
    (found,) = gradients(hooks.compressed(hooks.NarrowLanes("int16")), 1)
    torch.testing.assert_close(found, torch.full((8,), 1 + mean), rtol=1e-3, atol=0.0)


def check_small_blocks() -> None:
    """Only rows of an embedding that some rank has looked up travel, and the gradient is that of whole frames."""
    rows, width = 4096, 32

    def gradient(hook: object) -> torch.Tensor:
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.EmbeddingBag(rows, width))
        model.register_comm_hook(None, hook)
        wanted = torch.arange(8) * 100 + dist.get_rank()
        model(wanted.reshape(1, -1)).square().sum().backward()
        assert model.module.weight.grad is not None
        return model.module.weight.grad

    whole = gradient(hooks.compressed(hooks.NarrowLanes("int32")))
    for block in (width, "auto"):
        hook = hooks.compressed(hooks.SmallBlocks(block), check_every=1)
        torch.testing.assert_close(gradient(hook), whole, rtol=1e-5, atol=1e-7)
        (layer,) = hook.statistics().values()
        sent = 8 * dist.get_world_size() * width * 4 + rows / 8
        assert layer.sent_bytes == sent, (block, layer)
        assert (layer.error or 0.0) < 1e-6, (block, layer)


def check_torchs_own_hooks() -> None:
    """Hooks of torch, alone and around ours."""
    mean = (dist.get_world_size() - 1) / 2
    (wrapped,) = gradients(fp16_compress_wrapper(hooks.compressed(EverySecond())), 1)
    assert wrapped.tolist() == [1 + mean, 0] * 4
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1, bias=False))
    model.register_comm_hook(None, fp16_compress_hook)
    model(torch.full((1, 8), dist.get_rank() + 1.0)).sum().backward()
    assert model.module.weight.grad.reshape(-1).tolist() == [1 + mean] * 8


def twice(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket, and its average once more when it is there."""

    def again(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        work = dist.all_reduce(future.value()[0], async_op=True)
        return work.get_future().wait()[0] / dist.get_world_size() ** 2

    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(again)


# DistributedDataParallel compares annotations with the classes themselves; here they are text.
twice.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]})


def check_static_graphs() -> None:
    """Hooks' futures come true, for all of which DistributedDataParallel waits in the first step's last callback."""
    found = []
    for register in (
        lambda model: model.register_comm_hook(None, twice),
        lambda model: compress_by_name(model, "topk:1"),
        lambda model: compress_by_name(model, "int10"),
    ):
        torch.manual_seed(0)
        layers = [nn.Linear(16, 16) for _ in range(4)]
        model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.001, static_graph=True)
        register(model)
        found.append(losses(model, 4))
    torch.testing.assert_close(found[1:], found[:1] * 2, rtol=1e-2, atol=0.0)


if __name__ == "__main__":
    dist.init_process_group("switchsum")
    for check in (
        check_residuals,
        check_unused_parameters,
        check_new_buckets,
        check_every_compressor,
        check_names,
        check_layers,
        check_narrow_lanes,
        check_small_blocks,
        check_torchs_own_hooks,
        check_static_graphs,
    ):
        check()
        if dist.get_rank() == 0:
            print("passed", check.__name__, flush=True)
    dist.destroy_process_group()
