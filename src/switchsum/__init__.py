"""In-network allreduce for distributed training: a P4 switch adds gradients while they pass."""

from __future__ import annotations

__version__ = "0.1.0"
