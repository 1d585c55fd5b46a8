"""Reports call buckets of gradients by the layers in them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")


@pytest.fixture
def group() -> Iterator[Any]:
    import torch.distributed as dist

    dist.init_process_group("switchsum", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def model_of(**options: Any) -> Any:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    layers = nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 300), nn.Linear(300, 300), nn.Linear(300, 10))
    for parameter in layers[1].parameters():
        parameter.requires_grad_(False)
    return DistributedDataParallel(layers, bucket_cap_mb=0.3, **options)


@pytest.mark.parametrize("may_be_unused", [False, True])
def test_a_bucket_is_called_by_its_layers(group: Any, may_be_unused: bool) -> None:
    """As they are once buckets were made anew, which they are not where parameters may be unused."""
    from switchsum.torch.buckets import Bucket, buckets_of

    model = model_of(find_unused_parameters=may_be_unused)
    for _ in range(3):
        model(torch.ones(1, 300)).sum().backward()
    made = buckets_of(model)
    assert sorted(name for bucket in made for name, _ in bucket) == sorted(
        name for name, one in model.module.named_parameters() if one.requires_grad
    )
    assert len(made) > 1 or may_be_unused
    sizes = [sum(one.numel() for _, one in bucket) for bucket in made]
    said = [str(Bucket(weakref.ref(group), number, size)) for number, size in enumerate(sizes)]
    ends = [(bucket[0][0], bucket[-1][0]) for bucket in made]
    layers = [first if first == last else f"{first} to {last}" for first, last in ends]
    assert said == [f"gradient bucket {number} ({names})" for number, names in enumerate(layers)]
    assert str(Bucket(weakref.ref(group), 0, sizes[0] + 1)) == "gradient bucket 0"  # of a model that is not known
    second = model_of(find_unused_parameters=may_be_unused)
    for _ in range(3):
        second(torch.ones(1, 300)).sum().backward()
    assert str(Bucket(weakref.ref(group), 0, sizes[0])) == said[0]  # both call it so
    second.logger = None  # as while a model is made, when another thread may look for names
    assert str(Bucket(weakref.ref(group), 0, sizes[0])) == said[0]


def test_buckets_are_counted_in_backward_passes_alone(group: Any) -> None:
    from switchsum.torch.buckets import Buckets

    counted, found = Buckets(group), []
    weight = torch.ones(3, requires_grad=True)
    weight.register_post_accumulate_grad_hook(lambda one: found.append(counted.next([one])))
    for _ in range(2):
        (weight.sum() + torch.ones(3).sum()).backward()
        assert counted.next([weight]) is None
    assert [(one.number, one.size) for one in found if one is not None] == [(0, 3), (0, 3)]
