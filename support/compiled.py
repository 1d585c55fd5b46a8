"""Compares compiled P4 programs."""

from __future__ import annotations

from typing import Any


def without_places(value: Any) -> Any:
    """Leave out of a compiled program what depends on where p4c is installed, and its version."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key not in ("source_info", "__meta__")}
        return {key: without_places(item) for key, item in kept.items()}
    return [without_places(item) for item in value] if isinstance(value, list) else value
