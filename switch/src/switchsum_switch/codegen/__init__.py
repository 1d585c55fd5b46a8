"""Native code from verified IR.

Where to begin: `compile.py` (the steps), `layout.py` (where a packet and the state lie in memory), `graphs.py` (a graph
of the program as a function), `driver.py` and `egress.py` (the switch around the graphs), `wide.py` (fields of 128 bits
and more).  Each function of the output is written by one class that holds an `Emitter`.
"""

from __future__ import annotations

from .compile import compile_program
from .engine import Native

__all__ = ["Native", "compile_program"]
