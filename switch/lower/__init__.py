"""From the typed BMv2 model to the IR; whatever this switch does not support is refused by name and source line."""

from __future__ import annotations

from switchsum.switch.lower.program import lower

__all__ = ["lower"]
