"""The command line, `switchsum`."""

from __future__ import annotations

from switchsum.cli.app import app, main

__all__ = ["app", "main"]
