"""The command line, `switchsum`."""

from __future__ import annotations

from switchsum.cli.app import application, main

__all__ = ["application", "main"]
