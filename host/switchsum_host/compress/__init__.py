"""Ways of sending less than a whole gradient, small and composable; see docs/compression.md."""

from __future__ import annotations

from .base import Communicates, Compressor, CompressorState, Exchanged, Part
from .block_scaled import BlockScaled
from .feedback import DeepGradientCompression, ErrorFeedback
from .global_topk import GlobalTopK
from .packed import Packed
from .powersgd import PowerSgd
from .quantise import Qsgd, TernGrad
from .select import BlockTopK, ThresholdTopK, TopK
from .thc import Thc

__all__ = [
    "BlockScaled",
    "BlockTopK",
    "Communicates",
    "Compressor",
    "CompressorState",
    "DeepGradientCompression",
    "ErrorFeedback",
    "Exchanged",
    "GlobalTopK",
    "Packed",
    "Part",
    "PowerSgd",
    "Qsgd",
    "TernGrad",
    "Thc",
    "ThresholdTopK",
    "TopK",
]
