"""One allreduce, in which rank 1 waits for the file STOP; rank 0 says before what somebody would have to know."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np

import switchsum
from switchsum_host.engine.loop import Driver

with switchsum.connect() as communicator:
    values = np.full(256, 1000 + communicator.rank, np.int32)
    if communicator.rank == 1:
        while not Path(os.environ["STOP"]).exists():
            time.sleep(0.01)
    handle = communicator.allreduce_async(values)
    driver = communicator.queue.driver
    assert isinstance(driver, Driver)
    engine = driver.engine
    config = engine._config
    facts = {name: getattr(config, name) for name in ("job", "epoch", "rank", "cookie", "first_slot", "first_number")}
    facts |= {"own": [config.own.mac, config.own.ip, config.own.port]}
    facts |= {"switch": [config.switch.mac, config.switch.ip, config.switch.port]}
    print(json.dumps(facts | {"digest": int(engine.state.operations["digest"][0])}), flush=True)
    handle.wait()
    print(json.dumps({"values": np.unique(values).tolist(), "forged": communicator.statistics().forged_frames}))
