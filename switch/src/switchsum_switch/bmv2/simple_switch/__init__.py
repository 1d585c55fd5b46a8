"""Real BMv2 without root: frames over a Unix socket, entries over Thrift."""

from __future__ import annotations

from ..thrift import Refused
from .process import SimpleSwitch, run_bmv2

__all__ = ["Refused", "SimpleSwitch", "run_bmv2"]
