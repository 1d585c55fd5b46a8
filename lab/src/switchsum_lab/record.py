"""Record a training with DistributedDataParallel as it is: `python -m switchsum_lab.record NAME SCRIPT [ARGUMENTS]`.

Start each rank so, in place of `python SCRIPT`; with torchrun that is `-m switchsum_lab.record NAME SCRIPT`.  Every
bucket of gradients is noted when it is ready, on any backend, and then averaged as without the recording.
"""

from __future__ import annotations

import gc
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from switchsum_lab.sweeps.recording import Recorder, hook
from switchsum_protocol.errors import SwitchsumError

USAGE: Final = "python -m switchsum_lab.record NAME SCRIPT [ARGUMENTS]"


def record_models(name: str) -> None:
    """Let every `DistributedDataParallel` that this process makes from now on note its buckets.

    Args:
        name: Path of the recording without `.rank0.jsonl`.  A second model has `-2` behind it.

    Example:
        >>> record_models("run")  # doctest: +SKIP

    """
    from torch import distributed  # noqa: PLC0415 - not everybody who reads a recording has PyTorch
    from torch.nn.parallel import DistributedDataParallel as Model  # noqa: PLC0415

    make, forward, register, count = Model.__init__, Model.forward, Model.register_comm_hook, [0]

    def made(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        count[0] += 1
        path = name if count[0] == 1 else f"{name}-{count[0]}"
        self._recorder = Recorder(path, rank=distributed.get_rank(), world_size=distributed.get_world_size())

    def registered(self: Any, state: Any, own: Callable[[Any, Any], Any]) -> None:
        """Register a hook of the training's own, which averages what was noted."""
        register(self, state, hook(self._recorder, own))
        self._recorder_hooked = True

    def forwarded(self: Any, *args: Any, **options: Any) -> Any:
        """Register the recorder's hook before the first step, unless the training has one of its own."""
        if not getattr(self, "_recorder_hooked", False):
            register(self, None, hook(self._recorder))
            self._recorder_hooked = True
        return forward(self, *args, **options)

    Model.__init__ = made
    Model.forward = forwarded
    Model.register_comm_hook = registered


def main() -> None:
    """Run a script as `python SCRIPT` does, and record its models."""
    if len(sys.argv) < 3 or not Path(sys.argv[2]).is_file():
        raise SystemExit(f"usage: {USAGE}")
    _, name, script, *arguments = sys.argv
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    try:
        record_models(name)
    except ImportError as error:
        raise SystemExit(f"a training with DistributedDataParallel needs PyTorch: {error}") from None
    try:
        runpy.run_path(script, run_name="__main__")
    except SwitchsumError as error:
        raise SystemExit(f"switchsum: {error}") from None
    finally:
        gc.collect()  # a backend's threads may end the process if they let go of models while the interpreter ends


if __name__ == "__main__":
    main()
