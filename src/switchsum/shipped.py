"""Files that come with switchsum and are no modules: Mininet's custom file, the Wireshark dissector, the examples.

The dissector lies beside its module, and the skeleton of a protocol among the baselines.  The others lie where the
repository has them; a wheel puts them below `share/switchsum` of the environment.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Final

from switchsum_protocol.errors import LocalError

PLACES: Final = {
    "mininet": "mininet/custom.py",
    "demo": "examples/digits.py",
}
"""Places that users ask for by name, relative to the clone."""
_DISSECTOR: Final = Path(__file__).with_name("packets") / "switchsum.lua"
_CLONE: Final = Path(__file__).parents[2]


def shipped(name: str) -> Path:
    """Return the path of a file or folder; raises LocalError if this installation has it not."""
    if name == "dissector":
        return _DISSECTOR
    if name == "skeleton":
        return _skeleton()
    place = PLACES[name]
    if (_CLONE / place).is_file():
        return _CLONE / place
    for file in importlib.metadata.files("switchsum") or ():
        if file.as_posix().endswith(f"share/switchsum/{place}"):
            return Path(str(file.locate())).resolve()
    raise LocalError(f"this installation of switchsum has no {place}: pip install --force-reinstall switchsum")


def _skeleton() -> Path:
    """Return the folder of the least protocol, which the laboratory has; raises LocalError."""
    spec = importlib.util.find_spec("switchsum_lab.baselines") if importlib.util.find_spec("switchsum_lab") else None
    for folder in (spec and spec.submodule_search_locations) or ():
        return Path(folder) / "skeleton"
    raise LocalError(
        "the skeleton is a part of the laboratory, which is not installed: pip install ./lab (in the clone)"
    )
