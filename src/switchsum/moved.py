"""Old names of modules, for one release: `import switchsum.host.connect` finds `switchsum_host.connect`, and warns.

Until 0.2 all parts were folders of one package.  Programs, and pickles such as checkpoints, may name them so.  What
such a name gives is a stand-in whose attributes are those of the module itself, so that each class exists once.

Every process imports this file first, so that it imports next to nothing before an old name is asked for.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as typing's, which takes long to import
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

PACKAGES = {
    "switchsum.baselines": ("switchsum_lab.baselines",),
    "switchsum.conform": ("switchsum_lab.conform",),
    "switchsum.connections": ("switchsum_switch.connections", "switchsum_protocol.clients"),
    "switchsum.controller": ("switchsum_controller",),
    "switchsum.differ": ("switchsum_switch.differ",),
    "switchsum.exercises": ("switchsum_exercises",),
    "switchsum.host": ("switchsum_host",),
    "switchsum.laboratory": ("switchsum_lab.sweeps", "switchsum_lab"),
    "switchsum.native": ("switchsum_switch",),
    "switchsum.protocol": ("switchsum_protocol", "switchsum_switch.messages"),
    "switchsum.simulation": ("switchsum_lab.simulation",),
    "switchsum.switch": (
        *("switchsum_switch", "switchsum_switch.state", "switchsum_switch.queues", "switchsum_switch.program"),
        *("switchsum_switch.names", "switchsum_switch.execution", "switchsum_switch.api", "switchsum_switch.daemon"),
    ),
}
"""Old packages, and where their modules are now: in the first of these packages that has one of the name."""
MODULES = {
    "switchsum.switch.live": "switchsum_switch.live.network",
    "switchsum.switch.live_file": "switchsum_switch.live.file",
}
"""Modules with another name."""


def new_name(old: str) -> str | None:
    """Return where a module of an old name is now; None if there is none."""
    if old in MODULES:
        return MODULES[old]
    from importlib.util import find_spec  # noqa: PLC0415

    package = next((one for one in PACKAGES if old == one or old.startswith(f"{one}.")), None)
    if package is None:
        return None
    for place in PACKAGES[package]:
        try:
            if find_spec(new := place + old.removeprefix(package)) is not None:
                return new
        except ModuleNotFoundError:  # a package on the way to it is missing
            continue
    return None


class Moved:
    """A finder and loader by their methods; it stands behind Python's own and sees only what these do not find."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find a module by its old name."""
        new = new_name(name) if name.startswith("switchsum.") else None
        # The class without an import: each module has one.
        return None if new is None else type(__spec__)(name, Moved(), origin=new, is_package=True)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Let Python make an empty module."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Make it a stand-in for the module that has moved."""
        import warnings  # noqa: PLC0415
        from importlib import import_module  # noqa: PLC0415

        new = str(module.__spec__ and module.__spec__.origin)
        warnings.warn(f"{module.__name__} is {new} now", DeprecationWarning, stacklevel=2)
        real = import_module(new)
        module.__doc__ = real.__doc__
        module.__dict__["__getattr__"] = lambda name: getattr(real, name)
        module.__dict__["__dir__"] = lambda: dir(real)


def install() -> None:
    """Have old names found from now on."""
    if Moved not in sys.meta_path:
        sys.meta_path.append(Moved)
