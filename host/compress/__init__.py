"""Ways of sending less than a whole gradient, small and composable; see docs/compression.md."""

from __future__ import annotations

from .base import Communicates, Compressor, Exchanged, Part, State
from .feedback import DeepGradientCompression, ErrorFeedback
from .packed import Packed
from .powersgd import PowerSgd
from .quantise import Qsgd, ScaledSign, TernGrad
from .select import BlockTopK, RandomK, ThresholdTopK, TopK

__all__ = [
    "BlockTopK",
    "Communicates",
    "Compressor",
    "DeepGradientCompression",
    "ErrorFeedback",
    "Exchanged",
    "Packed",
    "Part",
    "PowerSgd",
    "Qsgd",
    "RandomK",
    "ScaledSign",
    "State",
    "TernGrad",
    "ThresholdTopK",
    "TopK",
]
