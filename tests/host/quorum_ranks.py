"""Ranks in this process that agree on who takes part in operations, by a real controller without a switch."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from support.timing import patience
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import communicators
from switchsum_controller.jobs.agreement import Agreement
from switchsum_controller.service.config import Config
from switchsum_controller.service.controller import Controller
from switchsum_host.api.communicator import Communicator
from switchsum_protocol import rpc_codec
from switchsum_protocol.agreement_rpc import AgreeReply
from switchsum_protocol.errors import ControllerUnreachable, SwitchsumError
from switchsum_switch.messages import codec
from tests.controller.planned import SLOTS, make_jobs, make_settings, plan, rebuilt, running_job
from tests.controller.rig import SWITCH, program

LONG_S = patience(20.0)


class QuorumRanks:
    """Communicators of a job, and those that they join as groups of some ranks."""

    def __init__(self, workers: int) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, list[Communicator]] = {}
        self.jobs = make_jobs()
        self.job = running_job(self.jobs, workers=workers, slots=SLOTS // 2)
        self.comms = self._make(workers)
        for rank, comm in enumerate(self.comms):
            self._join(rank, comm)
        self.start()

    def _make(self, workers: int) -> list[Communicator]:
        return communicators(
            workers, config=ClusterConfig(workers=workers, lanes_per_frame=256, window_slots=16, timeout_s=LONG_S)
        )

    def _join(self, rank: int, comm: Communicator) -> None:
        membership: Any = comm.queue.membership
        assert self.job.live is not None
        membership.job, membership.reply = "a", SimpleNamespace(nonce=self.job.live.members[rank].nonce)
        membership.ask, membership.lost = self._ask, frozenset()
        comm.connect_again = lambda rank, world_size, job, cancelled: self._group(job, world_size)[rank]

    def _ask(self, _method: str, request: Any, _reply: type, _wait_s: float) -> Any:
        """Call the controller; what it answers, or raises, is written and read as it is on the wire."""
        try:
            reply = self.controller.agreements.agree(request)
        except SwitchsumError as error:
            raise rpc_codec.error_from_details(rpc_codec.details_of(error)) from error
        except RuntimeError as error:  # the controller was killed
            raise ControllerUnreachable(str(error)) from error
        return codec.decode(AgreeReply, codec.encode(reply))

    def _group(self, name: str, size: int) -> list[Communicator]:
        with self._lock:
            if name not in self._groups:
                self._groups[name] = self._make(size)
            return self._groups[name]

    def start(self) -> None:
        """Start a controller for the jobs."""
        controller = Controller(Config(program=program(), switch_address="127.0.0.1:1", address=SWITCH))
        reconciler: Any = controller.reconciler
        reconciler.is_fresh, reconciler.jobs, reconciler.fleet = False, self.jobs, SimpleNamespace(is_settled=True)
        reconciler.synchronise = reconciler.end_jobs_if_ousted = lambda **_: None
        self.controller = controller

    def restart(self) -> None:
        """Kill the controller in the midst of whatever it does; another one reads the entries of the switch."""
        former: Any = self.controller.reconciler

        def die(*_: object, **__: object) -> None:
            raise RuntimeError("the controller was killed")

        with former.changed:
            entries = plan(self.jobs, make_settings())
            self.jobs = rebuilt(entries)[0]
            self.job = self.jobs.find("a")
            former.need_jobs = former.synchronise = die
            self.start()
            former.changed.notify_all()

    @property
    def agreement(self) -> Agreement:
        """What the controller has decided."""
        assert self.job.live is not None
        return self.job.live.agreement

    def close(self) -> None:
        """Leave everything."""
        for comm in (*self.comms, *(comm for group in self._groups.values() for comm in group)):
            comm.close()
