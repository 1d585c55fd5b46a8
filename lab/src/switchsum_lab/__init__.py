"""A laboratory for in-network aggregation: virtual time, sweeps, rivals from papers, and conformance of programs."""

from __future__ import annotations

__version__ = "0.2.0"
