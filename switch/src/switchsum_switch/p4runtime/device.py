"""The switch as a P4Runtime device: the program that is saved, and the program that runs (section 7).

To load a program takes seconds, and packets and calls go on meanwhile.  So it is done in two steps: `prepare` compiles
and changes nothing; `apply` is quick and runs under the lock of the data plane.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Generic, Protocol, TypeVar

from switchsum_switch.messages.p4runtime import Code, v1

from ..state.clock import Clock
from ..state.state import ProgramState
from .device_config import program_of
from .entities import Entities
from .reconcile import carry_over
from .refusal import Refused, invalid, refusals

_Action = v1.SetForwardingPipelineConfigRequest
_WITH_CONFIG = (_Action.VERIFY, _Action.VERIFY_AND_SAVE, _Action.VERIFY_AND_COMMIT, _Action.RECONCILE_AND_COMMIT)
Response = v1.GetForwardingPipelineConfigRequest


class HasState(Protocol):
    """A loaded pipeline, as far as the server needs it."""

    @property
    def state(self) -> ProgramState:
        """The tables, counters, registers and groups of its program."""


Pipeline = TypeVar("Pipeline", bound=HasState)


class Device(Generic[Pipeline]):
    """The programs of one device.

    Reads and writes go to the program that was saved last, as the specification says; packets go through the one that
    was committed last.  A saved program has its own state, so that writes to it take effect when it is committed.
    """

    def __init__(self, load: Callable[[bytes], Pipeline], clock: Clock | None = None) -> None:
        self._load = load
        """Turns a BMv2 JSON into a pipeline; raises ProgramError."""
        self._clock = clock or Clock()
        """The time that digests and idle timeouts see."""
        self._saved: tuple[Entities, Pipeline] | None = None
        self._committed: tuple[Entities, Pipeline] | None = None

    @property
    def pipeline(self) -> Pipeline | None:
        """The committed pipeline, through which packets go."""
        return self._committed[1] if self._committed else None

    @property
    def committed(self) -> Entities | None:
        """The program of the committed pipeline."""
        return self._committed[0] if self._committed else None

    @property
    def current(self) -> Entities:
        """The program to which reads and writes go; raises Refused if there is none yet."""
        newest = self._saved or self._committed
        if newest is None:
            raise Refused(Code.FAILED_PRECONDITION, "no forwarding pipeline config has been set")
        return newest[0]

    def prepare(self, action: int, config: Any) -> tuple[Entities, Pipeline] | None:
        """Do the slow part of setting a config, which changes nothing; raises Refused if it cannot be realized."""
        given = bool(config.p4_device_config) or config.HasField("p4info")
        if action == _Action.COMMIT:
            if given:
                raise invalid("COMMIT realizes the saved config and takes none")
            return None
        if not given:
            raise invalid("no config is given")
        if action == _Action.RECONCILE_AND_COMMIT and self._runs(config):
            return None
        if action not in _WITH_CONFIG:
            raise invalid("no action is given")
        with refusals():
            pipeline = self._load(program_of(config.p4_device_config))
        return Entities(config, pipeline.state, self._clock), pipeline

    def adopt(self, config: Any, pipeline: Pipeline) -> tuple[Entities, Pipeline]:
        """Return what `prepare` would, for a pipeline that is loaded already; raises Refused if P4Info differs."""
        with refusals():
            return Entities(config, pipeline.state, self._clock), pipeline

    def apply(self, action: int, config: Any, prepared: tuple[Entities, Pipeline] | None) -> None:
        """Do the quick part, with the result of `prepare`; raises Refused if it needs a saved config and there is none.

        No packet goes through the old program meanwhile.
        """
        with self._committed[1].state.lock if self._committed else nullcontext():
            self._apply(action, config, prepared)

    def _apply(self, action: int, config: Any, prepared: tuple[Entities, Pipeline] | None) -> None:
        if action == _Action.VERIFY_AND_SAVE:
            self._saved = prepared
        elif action == _Action.VERIFY_AND_COMMIT:
            self._committed, self._saved = prepared, None
        elif action == _Action.COMMIT:
            if self._saved is None:
                raise Refused(Code.NOT_FOUND, "no config has been saved since the last commit")
            self._committed, self._saved = self._saved, None
        elif action == _Action.RECONCILE_AND_COMMIT:
            self._reconcile(config, prepared)

    def config(self, response_type: int) -> Any:
        """Return the parts of the config that a response type asks for; None if there is no config yet."""
        newest = self._saved or self._committed
        if newest is None:
            return None
        config, answer = newest[0].config, v1.ForwardingPipelineConfig()
        if config.HasField("cookie"):
            answer.cookie.CopyFrom(config.cookie)
        if response_type in (Response.ALL, Response.P4INFO_AND_COOKIE):
            answer.p4info.CopyFrom(config.p4info)
        if response_type in (Response.ALL, Response.DEVICE_CONFIG_AND_COOKIE):
            answer.p4_device_config = config.p4_device_config
        return answer

    def _reconcile(self, config: Any, prepared: tuple[Entities, Pipeline] | None) -> None:
        """Commit a config, and keep the state of the program that runs; raises Refused if the new one has no place."""
        running = self.committed
        if prepared is None:
            if running is None or not self._runs(config):  # another program has been committed since `prepare`
                raise Refused(Code.ABORTED, "another program has been committed meanwhile")
            running.config.CopyFrom(config)
        else:
            if running is not None:
                carry_over(running, prepared[0])
            self._committed = prepared
        self._saved = None

    def _runs(self, config: Any) -> bool:
        """Return whether a config differs from the committed one in its cookie at most."""
        running = self.committed
        return running is not None and (config.p4info, config.p4_device_config) == (
            running.config.p4info,
            running.config.p4_device_config,
        )
