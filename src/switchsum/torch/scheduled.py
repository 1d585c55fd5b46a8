"""Training without a pause between steps: a layer waits for its own gradients, when its next forward pass comes.

DistributedDataParallel waits for all gradients before the optimizer's step, though the first layers, whose gradients
come last, are needed first.  Here each layer has an optimizer of its own, which steps right before the layer's next
forward pass (ByteScheduler, SOSP 2019; P3, MLSys 2019).  The first layers' gradients do not pass those of the others on
their way: that needs slots of its own, and was measured to be slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

from switchsum.torch.group import SwitchGroup
from switchsum.torch.lane_choice import check_lanes, lanes_for
from switchsum.torch.tensors import stage
from switchsum.torch.words import words
from switchsum_host.api.operation_queue import Handle
from switchsum_protocol.errors import UsageError


@dataclass(slots=True, kw_only=True)
class Layer:
    """Parameters that one module has itself."""

    parameters: list[nn.Parameter]
    optimizer: torch.optim.Optimizer
    missing: int
    """Gradients of this backward pass that are not there yet."""
    sums: torch.Tensor | None = None
    """All gradients side by side, under way."""
    handles: list[Handle] = field(default_factory=list)


class Scheduled:
    """A model whose gradients are averaged over the ranks while the next step has begun.

    Every backward pass must use every parameter, in the forward pass of a module that has it (several, where it is
    tied). The training loop has neither `zero_grad` nor `step`.  Call `finish` before anything but a forward pass looks
    at parameters: checkpoints, for instance.  docs/pytorch.md shows a training loop.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
        group: dist.ProcessGroup | None = None,
        *,
        lanes: str | None = None,
    ) -> None:
        """Give every rank rank 0's parameters and buffers, and make an optimizer for each layer.

        Args:
            model: Of float32 parameters on the CPU.
            optimizer: Returns an optimizer for parameters; it is called for each layer.
            group: A process group of the backend "switchsum" with several ranks; None: all ranks.
            lanes: What gradients travel as: "int32", "int16", "int8" or "each"; None: as all sums of the group.

        Raises:
            UsageError: The group, the parameters or the lanes are of another kind.

        """
        found = group or dist.group.WORLD
        if not isinstance(found, SwitchGroup) or found.size() == 1:
            raise UsageError("Scheduled needs a process group of the backend 'switchsum' with several ranks")
        self._group, self._lanes = found, check_lanes(lanes, "lanes")
        for tensor in (*model.parameters(), *model.buffers()):
            found.broadcast([tensor.detach()]).wait()
        self.layers: list[Layer] = []
        layer_of: dict[nn.Parameter, Layer] = {}
        for parameters in _owned(model):
            if any(one.dtype != torch.float32 or one.device.type != "cpu" for one in parameters):
                raise UsageError("Scheduled takes float32 parameters on the CPU: use DistributedDataParallel")
            layer = Layer(
                parameters=parameters,
                optimizer=optimizer(parameters),
                missing=len(parameters),
            )
            self.layers.append(layer)
            for parameter in parameters:
                layer_of[parameter] = layer
                parameter.register_post_accumulate_grad_hook(lambda _, layer=layer: self._begin(layer))
        # A tied parameter is ready before any module that has it: the first that runs need not be the first defined.
        for module in model.modules():
            for layer in {id(layer_of[one]): layer_of[one] for one in _own(module)}.values():
                module.register_forward_pre_hook(lambda _, __, layer=layer: self._finish(layer))

    def finish(self) -> None:
        """Wait for all gradients, and let every layer's optimizer step."""
        for layer in self.layers:
            self._finish(layer)

    def _begin(self, layer: Layer) -> None:
        """Begin the average of a layer's gradients when the last of them is there."""
        layer.missing -= 1
        if layer.missing:
            return
        layer.missing = len(layer.parameters)
        if layer.handles:
            raise UsageError(
                "a module had two backward passes without a forward pass in between: Scheduled needs one forward and "
                "one backward pass of each module in a step"
            )
        layer.sums = torch.cat([_gradient(one) for one in layer.parameters])
        communicator = self._group.connect()
        values = stage(layer.sums).array()
        lanes = lanes_for(values, "average", communicator, self._lanes or self._group.lanes)
        label = words("average of a layer's gradients", [layer.sums])
        layer.handles = [communicator.allreduce_async(values, "average", lanes=lanes, label=label)]

    def _finish(self, layer: Layer) -> None:
        """Wait for a layer's gradients, if they are under way, and step."""
        if layer.sums is None:
            return
        sums, layer.sums = layer.sums, None
        while layer.handles:
            layer.handles.pop().wait()
        for one, values in zip(layer.parameters, sums.split([one.numel() for one in layer.parameters]), strict=True):
            one.grad = values.reshape(one.shape)
        layer.optimizer.step()
        layer.optimizer.zero_grad()


def _own(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters to train that a module has itself, tied ones among them."""
    return [one for one in module.parameters(recurse=False) if one.requires_grad]


def _owned(model: nn.Module) -> Iterator[list[nn.Parameter]]:
    """Yield what each module has itself, in the order of their definition; tied parameters with the first of them."""
    seen: set[nn.Parameter] = set()
    for module in model.modules():
        own = [one for one in _own(module) if one not in seen]
        seen.update(own)
        if own:
            yield own


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    """Return a gradient's values; raises UsageError for sparse ones."""
    gradient = parameter.grad
    if gradient is None or gradient.layout != torch.strided:
        raise UsageError("Scheduled takes dense gradients: use DistributedDataParallel for this model")
    return gradient.reshape(-1)
