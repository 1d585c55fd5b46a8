"""Communication hooks for DistributedDataParallel."""

from __future__ import annotations

from switchsum.host.pytorch.hooks import CompressedHook, Compressor, Exchange, NarrowLanes, compressed

__all__ = ["CompressedHook", "Compressor", "Exchange", "NarrowLanes", "compressed"]
