"""Checks of this machine: what works with switchsum, what is missing, and the command that mends it."""

from __future__ import annotations

from switchsum.doctor.examine import examine
from switchsum.doctor.finding import Finding, Verdict
from switchsum.doctor.shell import find_shell_python

__all__ = ["Finding", "Verdict", "examine", "find_shell_python"]
