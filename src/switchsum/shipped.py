"""Files that come with switchsum and are no modules: Mininet's custom file, the Wireshark dissector, the examples.

In a clone they lie where the repository has them; a wheel puts them below `share/switchsum` of the environment.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Final

from switchsum.protocol.errors import LocalError

PLACES: Final = {
    "mininet": "mininet/custom.py",
    "dissector": "src/switchsum/packets/switchsum.lua",
    "demo": "examples/digits.py",
}
"""What users ask for by name, relative to the clone."""
_CLONE: Final = Path(__file__).parents[2]


def shipped(name: str) -> Path:
    """Return the path of one of PLACES; raises LocalError when this installation does not have it."""
    place = PLACES[name]
    if (_CLONE / place).is_file():
        return _CLONE / place
    for file in importlib.metadata.files("switchsum") or ():
        if file.as_posix().endswith(f"share/switchsum/{place}"):
            return Path(str(file.locate())).resolve()
    raise LocalError(f"this installation of switchsum has no {place}: pip install --force-reinstall switchsum")
