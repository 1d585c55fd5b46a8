"""From the verified IR to native code, split by P4 element."""

from __future__ import annotations

from switchsum.switch.codegen.compile import compile_program
from switchsum.switch.codegen.engine import Native

__all__ = ["Native", "compile_program"]
