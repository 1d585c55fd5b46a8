"""Compiled code for a copy of the repository, or for a process, in which some modules of the engine are changed.

The cache has one digest for all kernels.  So any change would have all of them compiled anew, which takes a minute.
`python -m checks.compiled` prints the digest of the sources that it imports.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Final

from switchsum_switch.kernels.loading import kernel_store
from switchsum_switch.kernels.sources import imports, module_sources, source_digest

WITHOUT: Final = {"switchsum_host.engine.state", "switchsum_host.engine.fetching"}
"""Modules that hold nothing of recovery: one has the policies' records, the other brings memory into the cache."""
_BELOW: Final = {"switchsum_host.engine.receiving", "switchsum_host.engine.sending"}
"""Where one of these is changed, `WITHOUT` may hold something of it."""


def copy_code(to: Path, digest: str, changed: Collection[str]) -> None:
    """Copy the code of kernels that hold nothing of some modules, for a process with another digest of sources.

    `to` is that process's cache (SWITCHSUM_CACHE_DIR).
    """
    store = kernel_store()
    if store is None:
        return
    folder, programs = to / "kernels" / digest, store.path.parents[1] / "switch"
    for path in (to, to / "kernels", folder):
        path.mkdir(mode=0o700)
    if programs.is_dir():  # of switches, which know nothing of workers
        shutil.copytree(programs, to / "switch")
    free = {module.removeprefix("switchsum").lstrip("._") for module in module_sources().keys() - holding(changed)}
    for path in store.path.glob("*.object"):
        if path.name.rsplit(".", 3)[0] in free:
            shutil.copy2(path, folder)


def holding(changed: Collection[str]) -> set[str]:
    """Return the modules whose code may hold some others': these themselves, and those that import them, or others."""
    without = set() if _BELOW & set(changed) else WITHOUT - set(changed)
    imported = {name: imports(*source) for name, source in module_sources().items() if name not in without}
    found = set(changed)
    while more := {name for name, others in imported.items() if name not in found and others & found}:
        found |= more
    return found


if __name__ == "__main__":
    print(source_digest())
