"""Ways of sending less than a whole gradient, small and composable; see docs/compression.md."""

from __future__ import annotations

from switchsum.host.compress.base import Communicates, Compressor, Exchanged, Part, State
from switchsum.host.compress.feedback import DeepGradientCompression, ErrorFeedback
from switchsum.host.compress.powersgd import PowerSgd
from switchsum.host.compress.quantise import Qsgd, ScaledSign, TernGrad
from switchsum.host.compress.select import BlockTopK, RandomK, ThresholdTopK, TopK

__all__ = [
    "BlockTopK",
    "Communicates",
    "Compressor",
    "DeepGradientCompression",
    "ErrorFeedback",
    "Exchanged",
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
