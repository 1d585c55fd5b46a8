"""What ranks must have alike in averages and outer steps, and how they compare it before they go on.

An average over the switch has the record in its first operation's label (`switchsum_host.api.record`).  Before a
training begins, and before it ends, and over other backends, ranks show each other the text in one small gathering.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import torch
import torch.distributed as dist

from switchsum_host.api import parts
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.record import Record, call_of, digest_of
from switchsum_protocol.errors import OperationMismatch
from switchsum_protocol.issued import compared

SHOWN_BYTES: Final = 512
"""Bytes that each rank shows the others: a digest, and as much of the text as has room."""
DIGEST_BYTES: Final = 16

RANKS_MAY_DIFFER: Final = {
    "model": "each rank trains its own; names and shapes of its parameters are compared",
    "inner": "each rank may learn in its own way",
    "group": "it is what the ranks are in",
}
"""Arguments of DiLoCo and LocalSGD that ranks need not have alike, and why."""
WORDS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32}
"""Integers as wide as a value of so many bytes; wider values are one of 64 bits, or two."""
Check: TypeAlias = "Callable[[], None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """What all ranks must have alike in outer steps."""

    kind: str
    """The class: DiLoCo or LocalSGD."""
    every: int
    fragments: int
    delay: int
    how: str
    """The compressor, with its arguments."""
    quorum: float | None
    patience_s: float | None

    def made(self, model: Any) -> Record:
        """Return the record of a training that is about to begin."""
        settings = [f"{name}={value}" for name, value in asdict(self).items() if name != "kind" and value is not None]
        return Record(title=f"{self.kind}({', '.join(settings)}) of a model [{digest_of(model)}]")

    def step(
        self, step: int, place: int, number: int, optimizer: torch.optim.Optimizer, outer: Sequence[torch.Tensor] = ()
    ) -> Record:
        """Return the record of an outer step, the one with this number of a fragment, after so many inner steps.

        `outer` are the outer parameters: they and the outer optimizer's state, such as momentum, must be alike.
        """
        state = f", from the state [{state_of(optimizer, outer)}]" if outer else ""
        return Record(
            title=f"{self.kind}'s outer step {number} after {step} steps, fragment {place + 1} of {self.fragments}, "
            f"with {words_of(optimizer)}{state}",
            facts={"settings": asdict(self), "groups": groups_of(optimizer)},
        )

    def finish(self, step: int) -> Record:
        """Return the record of a training that ends."""
        return Record(title=f"{self.kind}.finish() after {step} steps")


def state_of(optimizer: torch.optim.Optimizer, outer: Sequence[torch.Tensor]) -> str:
    """Return a digest of outer parameters and of what their optimizer keeps, such as momentum.

    Each tensor stands in it with the sum of its bits, which takes a pass over memory where an average takes many.
    """
    sums, others = [_sum_of_bits(one) for one in outer], []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for name, value in sorted(optimizer.state.get(parameter, {}).items()):
                others.append(name if isinstance(value, torch.Tensor) else [name, value])
                sums += [_sum_of_bits(value)] if isinstance(value, torch.Tensor) else []
    return digest_of([torch.stack([one.cpu() for one in sums]).numpy(), others])


def _sum_of_bits(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach()
    plain = plain.to_local() if hasattr(plain, "to_local") else plain
    return plain.reshape(-1).view(WORDS.get(plain.element_size(), torch.int64)).sum(dtype=torch.int64)


def groups_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return all that an optimizer was told, for each group of its parameters."""
    return [
        {name: _plain(value) for name, value in group.items() if name != "params"} for group in optimizer.param_groups
    ]


def words_of(optimizer: torch.optim.Optimizer) -> str:
    """Return an optimizer with what it was told beyond its defaults, of its first group."""
    usual = inspect.signature(type(optimizer).__init__).parameters
    given = groups_of(optimizer)[0]
    return call_of(
        type(optimizer).__name__,
        {name: value for name, value in given.items() if name not in usual or usual[name].default != value},
    )


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
        return value.item() if value.ndim == 0 else value
    return value


def begin_to_compare(record: Record, group: dist.ProcessGroup, device: torch.device) -> Check:
    """Show a record to the ranks of another backend than ours; what is returned waits, and raises OperationMismatch."""
    own = torch.from_numpy(_shown(record)).to(device)
    rows = [torch.empty_like(own) for _ in range(group.size())]
    work = dist.all_gather(rows, own, group=group, async_op=True)

    def check() -> None:
        work.wait()
        _check(np.stack([row.cpu().numpy() for row in rows]), record)

    return check


def compare(record: Record, about: str, group: dist.ProcessGroup | Communicator, device: torch.device) -> None:
    """Show a record to all ranks, and wait; raises OperationMismatch on all of them if any has another one."""
    if not isinstance(group, Communicator):
        begin_to_compare(record, group, device)()
        return
    collective = parts.allgather(_shown(record), group.ranks, label=about)
    collective.operation.words = record.title
    _check(group.start(collective, stays=True).wait(), record)


def _shown(record: Record) -> Any:
    text = record.text.encode()
    shown = hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest() + text[: SHOWN_BYTES - DIGEST_BYTES]
    return np.frombuffer(shown.ljust(SHOWN_BYTES, b"\0"), np.uint8).copy()


def _check(rows: Any, record: Record) -> None:
    if (rows == rows[0]).all():
        return
    texts = [row[DIGEST_BYTES:].tobytes().rstrip(b"\0").decode(errors="replace") for row in rows]
    said = compared(texts) or f"ranks issued different operations, the first {SHOWN_BYTES} bytes of which are the same"
    raise OperationMismatch(said, record.title)


def facts_of(tensors: list[torch.Tensor], names: list[str]) -> Mapping[str, Any]:
    """Return what is compared of tensors that are averaged."""
    return {"tensors": [[name, list(one.shape), str(one.dtype)] for name, one in zip(names, tensors, strict=True)]}
