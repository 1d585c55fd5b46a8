"""Exercise 1: a switch that only forwards.  Complete what says TODO."""

from __future__ import annotations

from switchsum_exercises.frames import BROADCAST, Answers, Frame  # noqa: F401


class Switch:
    """Forwards by destination address."""

    def __init__(self, ports: int) -> None:
        self.ports = ports
        """The switch has ports 1 to this one."""
        self.stations: dict[int, int] = {}
        """Which address is behind which port.  The check fills it, as a controller does."""

    def process(self, port: int, frame: Frame) -> Answers:
        """Take a frame that came in at a port; return the frames that leave, each with its port."""
        # TODO: a frame to BROADCAST leaves through every port but the one that it came from.
        # TODO: a frame to a known station leaves through that station's port, but never where it came from.
        # TODO: a frame to an unknown address leaves nowhere.
        return []
