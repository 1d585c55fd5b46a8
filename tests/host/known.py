"""What an engine knows of the network, by the names of fields, in whatever record they lie."""

from __future__ import annotations

from typing import Any

import numpy as np

from switchsum_host.engine.engine import Engine


class Known:
    """What an engine knows, of one path where it is a path's; times by way are those over slots alone."""

    def __init__(self, engine: Engine, path: int = 0) -> None:
        recovery, here = np.asarray(engine.state.core)[0]["recovery"], np.asarray(engine.state.paths)[path]
        records = (recovery["timer"], recovery["doubt"], recovery, here["window"], here["trips"], here["order"], here)
        self._record_of = {name: record for record in reversed(records) for name in record.dtype.names}

    def __getitem__(self, name: str) -> Any:
        value = self._record_of[name][name]
        return value[0] if np.ndim(value) else value

    def __setitem__(self, name: str, value: float) -> None:
        record = self._record_of[name]
        if record[name].shape:
            record[name][0] = value
        else:
            record[name] = value

    def learn(self, **facts: float) -> None:
        """Let the engine know."""
        for name, value in facts.items():
            self[name] = value
