"""Other systems' protocols, each a P4 program and its hosts, for `switchsum run --baseline`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
