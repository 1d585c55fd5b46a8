"""From the typed BMv2 model to the IR.

A feature that this switch does not support is refused here, by its name and its line in the P4 source.  `program.py` is
the entry; `symbols.py` gives every name its index; `expressions.py` has the hard part, widths.
"""

from __future__ import annotations

from .program import lower

__all__ = ["lower"]
